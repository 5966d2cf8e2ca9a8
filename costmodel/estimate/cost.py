"""The cost of a layer sequence on a system, and what is known about the errors of costs."""

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

__all__ = ["SOURCES", "TYPICAL_CONSTRUCTION", "UNPRICED", "Cost", "Source", "Uncertainty"]

Source = Literal["measured", "predicted", "extrapolated", "unpriced"]
SOURCES: tuple[Source, ...] = get_args(Source)
# Used where no whole model was measured: 90% of 29 models were within a tenth of the sum of their layers.
TYPICAL_CONSTRUCTION = 0.1
# Latency of a model in microseconds to which `Uncertainty.construction` applies as it is, and the latencies below and
# above which the error of composition does not change any more.
_TYPICAL_US, _SHORTEST_US, _LONGEST_US = 20e3, 1e3, 50e3


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of one layer sequence on one system.

    Attributes:
        latency_us: Latency of back-to-back runs on the quiet machine, in microseconds.
        interval_us: Lower and upper bound, in microseconds, between which the latency lies with the probability
            `Estimate.interval_level`.
        source: One of `SOURCES`; an unpriced cost has latency 0 and appears only in partial estimates, where layers
            without a cost are allowed.
        kind: Operator types of the sequence's layers, joined by "+".
    """

    latency_us: float
    interval_us: tuple[float, float]
    source: Source
    kind: str

    def scaled(self, factor: float) -> "Cost":
        """Returns the cost with its latency and interval multiplied by a factor of 0 or more."""
        if factor == 1:
            return self
        low, high = self.interval_us
        return Cost(factor * self.latency_us, (factor * low, factor * high), self.source, self.kind)


@dataclass(frozen=True, slots=True)
class Uncertainty:
    """The parts of a composed latency's error that do not follow from the intervals of its costs.

    Attributes:
        correlation: Correlation between the errors of predicted costs: at 0 they cancel out in long sums, at 1 they add
            up. It is estimated from held-out models, and exceeds 1 where the errors of these models were larger than
            the sum of the errors of their parts.
        construction: Half-width of the interval of log((sum of measured layers) / (latency of the whole model)), for a
            model of 20 ms.
        construction_power: Power of 20 ms over the latency of a model by which `construction` is multiplied, because
            the sums of shorter models are farther off; at 0 it is the same for all models.
    """

    correlation: float = 1.0
    construction: float = TYPICAL_CONSTRUCTION
    construction_power: float = 0.0

    def construction_at(self, latencies_us: np.ndarray) -> np.ndarray:
        """Returns `construction` for models of the given latencies in microseconds, shape [num_models]."""
        longer = np.clip(latencies_us, _SHORTEST_US, _LONGEST_US) / _TYPICAL_US
        return np.asarray(self.construction * longer**-self.construction_power)


UNPRICED = Cost(0.0, (0.0, 0.0), "unpriced", "")
