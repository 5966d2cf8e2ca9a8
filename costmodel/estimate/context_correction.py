"""Context correction: from the cost of a layer in isolation to its cost inside a model.

The sum of layers measured one by one has a systematic error: short layers take less time inside a model, where the
runtime's own code and the layer's input are still in a cache. Models that were measured whole show by how much
(`costmodel.training.context_correction`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from costmodel.measure.groups import memory_bound_bytes
from costmodel.systems.host import Host
from costmodel.unknown_fields import known_fields

__all__ = ["SHORT_US", "ContextCorrection", "cache_pressure", "cache_pressures", "short_layer_basis"]

# Scales of what counts as a short layer, in microseconds: each is the scale of an exponential.
SHORT_US = (3.0, 20.0)


@dataclass(frozen=True, slots=True)
class ContextCorrection:
    """A linear model of log(cost inside a model / cost in isolation) of a layer.

    Attributes:
        short: Coefficients of `short_layer_basis`.
        footprint: Coefficient of the `cache_pressure` of the model's weights.
        operators: Constant of each operator; 0 for one that is not listed.
    """

    short: tuple[float, ...] = (0.0,) * len(SHORT_US)
    footprint: float = 0.0
    operators: Mapping[str, float] = field(default_factory=dict)

    def factors(self, costs_us: np.ndarray, operators: Sequence[str], cache_pressure: float) -> np.ndarray:
        """Returns the factors from costs in isolation to costs inside a model, shape [num_layers].

        Args:
            costs_us: Costs of the layers in isolation in microseconds, shape [num_layers].
            operators: Operator of each layer.
            cache_pressure: Cache pressure of the model that the layers belong to.
        """
        of_operators = np.array([self.operators.get(operator, 0.0) for operator in operators])
        return np.asarray(
            np.exp(short_layer_basis(costs_us) @ np.array(self.short) + self.footprint * cache_pressure + of_operators)
        )

    def to_dict(self) -> dict[str, Any]:
        """Returns the coefficients as JSON; `from_dict` reads them."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "ContextCorrection":
        """Reads what `to_dict` wrote."""
        return cls(**{**known_fields(cls, data), "short": tuple(data["short"])})


def short_layer_basis(costs_us: np.ndarray) -> np.ndarray:
    """Returns exp(-cost / scale) for each scale of `SHORT_US`, shape [num_layers, num_scales]."""
    return np.asarray(np.exp(-np.asarray(costs_us)[:, None] / np.array(SHORT_US)))


def cache_pressure(footprint_bytes: float, host: Host | None) -> float:
    """Returns the logarithm of a model's weights over a core's own cache; 0 where the cache is not known."""
    return float(cache_pressures(np.array([footprint_bytes]), host)[0])


def cache_pressures(footprints_bytes: np.ndarray, host: Host | None) -> np.ndarray:
    """Returns the `cache_pressure` of several models, shape [num_models]."""
    if host is None or not host.l2_bytes:
        return np.zeros(len(footprints_bytes))
    return np.asarray(np.log((np.minimum(footprints_bytes, memory_bound_bytes(host)) + 1) / host.l2_bytes))
