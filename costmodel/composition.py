"""Composition: from the costs of sequences to the latency of a model."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

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
        kind: Operator types; errors of predictions of one kind are taken as fully correlated.
    """

    latency_us: float
    interval_us: tuple[float, float]
    source: str
    kind: str

    def scaled(self, factor: float) -> "Cost":
        """As much of it; `factor` is 0 or more."""
        low, high = self.interval_us
        return replace(self, latency_us=factor * self.latency_us, interval_us=(factor * low, factor * high))


@dataclass(frozen=True, slots=True)
class Uncertainty:
    """What is known about the error of a composed latency beyond its parts.

    Attributes:
        scale: Factor on the width that the parts give, so that held-out models are covered.
        construction: Half-width, in log latency, of (sum of measured layers) / (whole model).
    """

    scale: float = 1.0
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

    Each cost widens the sum by its share. A regressor that is wrong about one convolution is wrong about its siblings
    in the same direction, so predicted costs add linearly within a kind and in quadrature between kinds; noise of
    measurements has no such memory and adds in quadrature.
    """
    total = sum(cost.latency_us for cost in costs)
    measured = 0.0
    by_kind: dict[str, float] = {}
    for cost in costs:
        if cost.latency_us <= 0:
            continue
        share = cost.latency_us / total * math.log(cost.interval_us[1] / cost.latency_us)
        if cost.source == "measured":
            measured += share**2
        else:
            by_kind[cost.kind] = by_kind.get(cost.kind, 0.0) + share
    predicted = sum(share**2 for share in by_kind.values()) * uncertainty.scale**2
    return math.sqrt(measured + predicted + uncertainty.construction**2)
