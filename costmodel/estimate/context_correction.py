"""What a layer costs in a model, by what it costs alone.

The sum of layers measured one by one is a little off the latency of the model, and not at random: what is short is
shorter among others, where the runtime's own code and the layer's input are still in a cache. Models that were measured
whole say by how much (`costmodel.training.context_correction`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from costmodel.measure.groups import memory_bound_bytes
from costmodel.systems.host import Host
from costmodel.unknown_fields import known_fields

__all__ = ["SHORT_US", "ContextCorrection", "cache_pressure", "cache_pressures", "short_layer_basis"]

# What counts as short, in microseconds: each is the scale of an exponential.
SHORT_US = (3.0, 20.0)


@dataclass(frozen=True, slots=True)
class ContextCorrection:
    """log(cost in a model / cost alone) of a layer: a sum of what makes it so.

    Attributes:
        short: Times how short it is, as `short_layer_basis` says.
        footprint: Times the `cache_pressure` of the model's weights on the caches.
        operators: What comes with its operator; nothing where that is not listed.
    """

    short: tuple[float, ...] = (0.0,) * len(SHORT_US)
    footprint: float = 0.0
    operators: Mapping[str, float] = field(default_factory=dict)

    def factors(self, costs_us: np.ndarray, operators: Sequence[str], cache_pressure: float) -> np.ndarray:
        """What costs of layers alone are multiplied by; shape [num_layers].

        Args:
            costs_us: Of the layers alone, shape [num_layers].
            operators: Of the layers.
            cache_pressure: That of the weights of their model.
        """
        of_operators = np.array([self.operators.get(operator, 0.0) for operator in operators])
        return np.asarray(
            np.exp(short_layer_basis(costs_us) @ np.array(self.short) + self.footprint * cache_pressure + of_operators)
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON-able; read back by `from_dict`."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "ContextCorrection":
        """What `to_dict` wrote down."""
        return cls(**{**known_fields(cls, data), "short": tuple(data["short"])})


def short_layer_basis(costs_us: np.ndarray) -> np.ndarray:
    """How short layers are on each scale of `SHORT_US`: 1 is nothing, 0 is long; shape [num_layers, num_scales]."""
    return np.asarray(np.exp(-np.asarray(costs_us)[:, None] / np.array(SHORT_US)))


def cache_pressure(footprint_bytes: float, host: Host | None) -> float:
    """How far the weights of a model overflow a core's own cache, as a logarithm; 0 where caches are not known."""
    return float(cache_pressures(np.array([footprint_bytes]), host)[0])


def cache_pressures(footprints_bytes: np.ndarray, host: Host | None) -> np.ndarray:
    """The `cache_pressure` of several models; shape [num_models]."""
    if host is None or not host.l2_bytes:
        return np.zeros(len(footprints_bytes))
    return np.asarray(np.log((np.minimum(footprints_bytes, memory_bound_bytes(host)) + 1) / host.l2_bytes))
