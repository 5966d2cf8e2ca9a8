"""Composition: from the costs of sequences to the latency of a model."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = [
    "COMPOSITIONS",
    "SOURCES",
    "TYPICAL_CONSTRUCTION",
    "Cost",
    "Uncertainty",
    "compose",
    "counted",
    "critical_path",
    "half_width",
]

COMPOSITIONS = ("sequential", "parallel")
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


@dataclass(frozen=True, slots=True)
class Uncertainty:
    """What is known about the error of a composed latency beyond its parts.

    Attributes:
        scale: Factor on the width that the parts give, so that held-out models are covered.
        construction: Half-width, in log latency, of (sum of measured layers) / (whole model).
    """

    scale: float = 1.0
    construction: float = TYPICAL_CONSTRUCTION


def critical_path(latencies_us: Sequence[float], needs: Sequence[Sequence[int]]) -> list[int]:
    """Positions along the dearest chain of sequences, in execution order.

    Args:
        latencies_us: Cost of each sequence, in execution order.
        needs: For each sequence the positions of those that it reads from, all earlier ones.
    """
    if not latencies_us:
        return []
    finish: list[float] = []
    before: list[int | None] = []
    for latency, needed in zip(latencies_us, needs, strict=True):
        last = max(needed, key=finish.__getitem__, default=None)
        before.append(last)
        finish.append(latency + (finish[last] if last is not None else 0.0))
    position: int | None = max(range(len(finish)), key=finish.__getitem__)
    path = []
    while position is not None:
        path.append(position)
        position = before[position]
    return path[::-1]


def counted(costs: Sequence[Cost], needs: Sequence[Sequence[int]], composition: str) -> list[int]:
    """Positions of the sequences whose costs add up to the latency, in execution order.

    Args:
        costs: Of all sequences, in execution order.
        needs: For each sequence the positions of those that it reads from.
        composition: "sequential" counts every sequence, "parallel" those along the critical path.
    """
    if composition not in COMPOSITIONS:
        raise ValueError(f"composition must be one of {', '.join(COMPOSITIONS)}, not {composition!r}")
    if composition == "parallel":
        return critical_path([cost.latency_us for cost in costs], needs)
    return list(range(len(costs)))


def compose(
    costs: Sequence[Cost],
    needs: Sequence[Sequence[int]],
    composition: str = "sequential",
    uncertainty: Uncertainty | None = None,
) -> tuple[float, tuple[float, float]]:
    """The latency of a model and its interval, in microseconds.

    Args:
        costs: Of its sequences, in execution order.
        needs: For each sequence the positions of those that it reads from.
        composition: One of `COMPOSITIONS`; see `counted`.
        uncertainty: Errors beyond those of the parts.
    """
    chosen = [costs[position] for position in counted(costs, needs, composition)]
    latency = sum(cost.latency_us for cost in chosen)
    if latency <= 0:
        return latency, (latency, latency)
    width = half_width(chosen, uncertainty or Uncertainty())
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
