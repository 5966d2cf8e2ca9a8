"""What will this neural network cost on that machine, without running it there?"""

import os
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

# ONNX Runtime 1.29 and later starts a thread at import that reports to its makers: no business of theirs, and noise
# where time is measured.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

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
