"""What will this neural network cost on that machine, without running it there?"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from costmodel.api import CostModel
    from costmodel.errors import CostModelError
    from costmodel.estimate import Estimate
    from costmodel.model import read_model
    from costmodel.serving.latency_table import LatencyTable
    from costmodel.specs import constant, layer, weight

__all__ = [
    "CostModel", "CostModelError", "Estimate", "LatencyTable", "constant", "layer", "read_model", "weight",
]  # fmt: skip

_HOMES = {
    "CostModel": "costmodel.api",
    "CostModelError": "costmodel.errors",
    "Estimate": "costmodel.estimate",
    "LatencyTable": "costmodel.serving.latency_table",
    "constant": "costmodel.specs",
    "layer": "costmodel.specs",
    "read_model": "costmodel.model",
    "weight": "costmodel.specs",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: `import costmodel` alone loads nothing heavy."""
    if name not in _HOMES:
        raise AttributeError(f"module 'costmodel' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
