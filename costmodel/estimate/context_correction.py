"""Context correction: from the cost of a layer in isolation to its cost inside a model.

The sum of layers measured one by one has a systematic error: short layers take less time inside a model, where the
runtime's own code and the layer's input are still in a cache. How much less is learnt from models that were measured
whole, by `costmodel.training.context_correction`. Short layers of a model whose weights are a few times as large as the
level 2 cache have a correction of their own: neither way of timing layers reproduces how much of it is in the cache.
A runtime whose layers are timed warm one by one has weights in that cache which the model reads from further away.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from costmodel.measure.groups import CORE_SHARE, memory_bound_bytes, warm_bytes
from costmodel.systems.host import Host
from costmodel.unknown_fields import known_fields

__all__ = [
    "SCALES_BETWEEN",
    "SHORT_US",
    "ContextCorrection",
    "cache_pressure",
    "cache_pressures",
    "pressure_basis",
    "reread_kb_per_us",
    "short_layer_basis",
    "small_weights_kb",
]

# Scales of what counts as a short layer, in microseconds: each is the scale of an exponential. The first two stand for
# what is in a cache, the others for what it takes to wake threads (docs/adr/0008).
SHORT_US = (3.0, 20.0, 100.0, 500.0)
# Number of scales, the shortest ones, that have a part for models between inside and outside of the cache.
SCALES_BETWEEN = 2
# The cache pressure at which models are neither in the level 2 cache nor outside of it (weights 2.7 times as large as
# the cache), and the width of the bell curve around it.
_BETWEEN, _BETWEEN_WIDTH = 1.0, 1.0
# Cache pressure up to which the layers of a model are timed warm.
_WARM = np.log(CORE_SHARE)
# Most kilobytes of weights in a microsecond that count: more than the level 2 cache gives a core. A predicted cost that
# is far too low would be multiplied by a large number.
_MOST_KB_PER_US = 100.0


@dataclass(frozen=True, slots=True)
class ContextCorrection:
    """A linear model of log(cost inside a model / cost in isolation) of a layer.

    Attributes:
        short: Coefficient of each column of `short_layer_basis`, one for each scale of `SHORT_US`; scales that are left
            out at the end have none.
        short_between: Coefficients as `short`, of the first `SCALES_BETWEEN` scales, times how far the model is between
            inside and outside of the level 2 cache: 1 if its weights are 2.7 times as large as the cache, 0 if they are
            far from that.
        footprint: Coefficient of the `cache_pressure` of the model that the layer belongs to.
        operators: Constant that is added for each operator type; 0 for a type that is not listed.
        model_us: Time in microseconds that each model takes besides its layers. It is spread over the layers of a model
            in proportion to their costs, so that these still add up to the latency.
        reread: Coefficient of `reread_kb_per_us` of a layer, in microseconds for each kilobyte.
    """

    short: tuple[float, ...] = (0.0,) * len(SHORT_US)
    short_between: tuple[float, ...] = (0.0,) * SCALES_BETWEEN
    footprint: float = 0.0
    operators: Mapping[str, float] = field(default_factory=dict)
    model_us: float = 0.0
    reread: float = 0.0

    def factors(
        self, costs_us: np.ndarray, operators: Sequence[str], cache_pressure: float, weights_kb: np.ndarray
    ) -> np.ndarray:
        """Returns the factor from each layer's cost in isolation to its cost inside a model, shape [num_layers].

        Args:
            costs_us: Costs of the layers in isolation in microseconds, shape [num_layers].
            operators: Operator type of each layer.
            cache_pressure: Cache pressure of the model that the layers belong to.
            weights_kb: `small_weights_kb` of each layer, shape [num_layers].
        """
        pressures = np.array([cache_pressure])
        of_pressure = self.pressure_coefficients(costs_us, operators) @ pressure_basis(pressures)[0]
        return np.asarray(np.exp(of_pressure + self.reread * reread_kb_per_us(costs_us, weights_kb, pressures)))

    def pressure_coefficients(self, costs_us: np.ndarray, operators: Sequence[str]) -> np.ndarray:
        """Returns the logarithm of each layer's factor as coefficients of `pressure_basis`, shape [num_layers, 3].

        Args:
            costs_us: Costs of the layers in isolation in microseconds, shape [num_layers].
            operators: Operator type of each layer.
        """
        of_operators = np.array([self.operators.get(operator, 0.0) for operator in operators])
        basis = short_layer_basis(costs_us)
        return np.column_stack(
            [
                basis[:, : len(self.short)] @ np.array(self.short) + of_operators,
                np.full(len(of_operators), self.footprint),
                basis[:, : len(self.short_between)] @ np.array(self.short_between),
            ]
        )

    def to_dict(self) -> dict[str, Any]:
        """Returns the coefficients as JSON-serialisable data, which `from_dict` reads."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "ContextCorrection":
        """Returns the correction from the output of `to_dict`."""
        tuples = {name: tuple(data[name]) for name in ("short", "short_between") if name in data}
        return cls(**{**known_fields(cls, data), **tuples})


def short_layer_basis(costs_us: np.ndarray) -> np.ndarray:
    """Returns exp(-cost / scale) for each layer's cost and each scale of `SHORT_US`, shape [num_layers, num_scales]."""
    return np.asarray(np.exp(-np.asarray(costs_us)[:, None] / np.array(SHORT_US)))


def pressure_basis(cache_pressures: np.ndarray) -> np.ndarray:
    """Returns the functions of each model's cache pressure that a correction depends on, shape [num_models, 3].

    They are 1, the pressure, and how far the model is between inside and outside of the level 2 cache, from 0 to 1.
    """
    between = np.exp(-(((cache_pressures - _BETWEEN) / _BETWEEN_WIDTH) ** 2) / 2)
    return np.column_stack([np.ones(len(cache_pressures)), cache_pressures, between])


def small_weights_kb(weights_bytes: np.ndarray, host: Host | None) -> np.ndarray:
    """Returns the size of each layer's weights in kilobytes, and 0 for weights over half of the level 2 cache.

    Smaller ones stay in that cache when a layer runs several times by itself. For an unknown host all are 0. The result
    has the shape of the argument.
    """
    return np.where(weights_bytes <= warm_bytes(host), weights_bytes, 0.0) / 1e3


def reread_kb_per_us(costs_us: np.ndarray, weights_kb: np.ndarray, cache_pressures: np.ndarray) -> np.ndarray:
    """Returns how many kilobytes of weights each layer reads again in a run of its model, per microsecond of its cost.

    They stay in the level 2 cache while the layer runs by itself, but not where the weights of the model exceed half of
    that cache. For layers of other models it is 0. The result has the shape [num_layers].

    Args:
        costs_us: Costs of the layers in isolation in microseconds, shape [num_layers].
        weights_kb: `small_weights_kb` of each layer, shape [num_layers].
        cache_pressures: Cache pressure of the model of each layer, shape [num_layers] or [1].
    """
    per_us = np.minimum(weights_kb, _MOST_KB_PER_US * costs_us) / np.maximum(costs_us, np.finfo(float).tiny)
    return np.where(cache_pressures > _WARM, per_us, 0.0)


def cache_pressure(footprint_bytes: float, host: Host | None) -> float:
    """Returns log(footprint / size of a core's level 2 cache) of a model; 0 if the size of the cache is unknown.

    A footprint beyond `memory_bound_bytes` counts as that many bytes.
    """
    return float(cache_pressures(np.array([footprint_bytes]), host)[0])


def cache_pressures(footprints_bytes: np.ndarray, host: Host | None) -> np.ndarray:
    """Returns the `cache_pressure` of each of several models, given their footprints in bytes; shape [num_models]."""
    if host is None or not host.l2_bytes:
        return np.zeros(len(footprints_bytes))
    return np.asarray(np.log((np.minimum(footprints_bytes, memory_bound_bytes(host)) + 1) / host.l2_bytes))
