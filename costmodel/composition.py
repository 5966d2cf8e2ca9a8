"""Composition: from the costs of sequences to the latency of a model."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["SOURCES", "TYPICAL_CONSTRUCTION", "Cost", "Uncertainty", "compose", "half_width"]

SOURCES = ("measured", "predicted", "extrapolated", "unpriced")
# Where no model was measured whole: of 29 models, 90% lay within a tenth of the sum of their layers.
TYPICAL_CONSTRUCTION = 0.1


@dataclass(frozen=True, slots=True)
class Cost:
    """Latency of one sequence on one system.

    Attributes:
        latency_us: Of back-to-back runs on the quiet machine.
        interval_us: Where it lies with the level of the estimate.
        source: One of `SOURCES`; an unpriced cost has latency 0 and appears only in partial estimates.
        kind: Operator types.
    """

    latency_us: float
    interval_us: tuple[float, float]
    source: str
    kind: str

    def scaled(self, factor: float) -> "Cost":
        """As much of it; `factor` is 0 or more."""
        if factor == 1:
            return self
        low, high = self.interval_us
        return Cost(factor * self.latency_us, (factor * low, factor * high), self.source, self.kind)


@dataclass(frozen=True, slots=True)
class Uncertainty:
    """What is known about the error of a composed latency beyond its parts.

    Attributes:
        correlation: How far the errors of predicted costs go together: 0 not at all, so that they cancel out in long
            sums, 1 wholly, so that they add up; more where models were worse than that. Held-out models say it.
        construction: Half-width, in log latency, of (sum of measured layers) / (whole model).
    """

    correlation: float = 1.0
    construction: float = TYPICAL_CONSTRUCTION


def compose(
    costs: Sequence[Cost], shares: Sequence[float] | None = None, uncertainty: Uncertainty | None = None
) -> tuple[float, tuple[float, float]]:
    """The latency of a model and its interval, in microseconds.

    Args:
        costs: Of its sequences.
        shares: Of the latency of each, how much the latency of the model includes, as `costmodel.rules.shares` gives
            them; None for all of it.
        uncertainty: Errors beyond those of the parts.
    """
    included = costs if shares is None else [cost.scaled(share) for cost, share in zip(costs, shares, strict=True)]
    latency = sum(cost.latency_us for cost in included)
    if latency <= 0:
        return latency, (latency, latency)
    width = half_width(included, uncertainty or Uncertainty())
    return latency, (latency * math.exp(-width), latency * math.exp(width))


def half_width(costs: Sequence[Cost], uncertainty: Uncertainty) -> float:
    """Half-width of the sum of `costs` in log latency, so that it is a factor and never crosses zero.

    Each cost widens the sum by its share. Predictions that are equal are of one layer that repeats: its error repeats
    too. Those of different ones go together as far as their correlation says: a regressor that is wrong about one
    convolution is wrong about its siblings in the same direction. Noise of measurements has no such memory.
    """
    total = sum(cost.latency_us for cost in costs)
    measured = 0.0
    predicted: dict[Cost, float] = {}
    for cost in costs:
        if cost.latency_us <= 0:
            continue
        share = cost.latency_us / total * math.log(cost.interval_us[1] / cost.latency_us)
        if cost.source == "measured":
            measured += share**2
        else:
            predicted[cost] = predicted.get(cost, 0.0) + share
    together, apart = sum(predicted.values()) ** 2, sum(share**2 for share in predicted.values())
    rho = uncertainty.correlation
    # Rounding must not make it negative where all of it is one cost.
    return math.sqrt(measured + max(0.0, rho * together + (1 - rho) * apart) + uncertainty.construction**2)
