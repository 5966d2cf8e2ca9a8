"""Prediction intervals by split conformal prediction on held-out lineages (Lei et al., 2018).

The error of each held-out layer is divided by the error that is typical of its operator and size. The quantile of
these quotients is taken separately for each range of distances to the training data (Mondrian conformal prediction;
Vovk et al., 2005). A layer far from the training data thus gets a wider interval, in proportion to the larger errors
that held-out layers at that distance had.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from typing import Any, Self

import numpy as np

from costmodel.estimate.cost import Cost, Uncertainty
from costmodel.training.support import MAX_DISTANCE
from costmodel.unknown_fields import known_fields

__all__ = ["DISTANCES", "SIZES_US", "Calibration", "conformal_quantile", "predicted_costs"]

# Limits of the ranges of distances, and of predicted latencies in microseconds, within which errors are alike.
DISTANCES = (0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.5, MAX_DISTANCE)
SIZES_US = (1.0, 3.0, 10.0, 30.0, 100.0, 1e3, 1e4)
# Errors below this are measurement noise: no operator is predicted better than that.
_LEAST_ERROR = 0.005
# Number of layers of a class at which its effect is shrunk to one half.
_SHRINK = 20
# Iterations of the median polish.
_STEPS = 4
# Beyond the largest distance with enough held-out errors, intervals are widened by this round factor. A
# layer is called extrapolated at distances where errors exceed those at usual distances by the same factor.
EXTRAPOLATION_FACTOR = 2.0
# Mean of |log(measured / predicted)| of layers whose operator was never measured; the values are distributed
# exponentially (docs/adr/0009, "Operators that were never measured").
_MEAN_ERROR_OF_NEW_OPERATORS = 0.6


def conformal_quantile(scores: Sequence[float] | np.ndarray, level: float, counts: np.ndarray | None = None) -> float:
    """Returns the value that a new score does not exceed with a probability of at least `level`.

    With too few scores for that level, the value is the largest score, and the probability may be lower.

    Args:
        scores: Scores that the new one is assumed to be distributed like, shape [num_scores].
        level: Probability, between 0 and 1.
        counts: How many independent scores each score counts as, shape [num_scores]; by default one.

    Raises:
        ValueError: There are no scores.
    """
    values = np.asarray(scores, dtype=np.float64)
    if not len(values):
        raise ValueError("a quantile of no scores")
    order = np.argsort(values, kind="stable")
    of_ordered = np.ones(len(values)) if counts is None else counts[order]
    # The new score counts as one that is larger than all others.
    reached = np.cumsum(of_ordered) / (of_ordered.sum() + 1)
    place = int(np.searchsorted(reached, level * (1 - 1e-12)))
    return float(values[order[min(place, len(values) - 1)]])


@dataclass(frozen=True, slots=True)
class Calibration:
    """Half-widths of the prediction intervals of a regressor, derived from its errors on held-out lineages.

    A half-width w is in log latency: the interval of a cost reaches from cost / exp(w) to cost * exp(w).

    Attributes:
        level: Nominal coverage: the share of true costs that intervals are meant to contain.
        by_distance: Half-width for a sequence of a typical kind and size, for each range of distances to the training
            data between the limits `DISTANCES`; it never decreases with the distance.
        by_kind: Factor on `by_distance` for each kind of sequence (its operator types) that had held-out errors.
        by_size: Factor on `by_distance` for each range of predicted latencies between the limits `SIZES_US`.
        extrapolated_from: Distance from which a prediction is called extrapolated.
        uncertainty: Parameters of the intervals of latencies that are composed of several costs.
    """

    level: float
    by_distance: tuple[float, ...]
    by_kind: Mapping[str, float] = field(default_factory=dict)
    by_size: tuple[float, ...] = (1.0,) * (len(SIZES_US) + 1)
    extrapolated_from: float = MAX_DISTANCE
    uncertainty: Uncertainty = field(default_factory=Uncertainty)

    @classmethod
    def fit(
        cls,
        kinds: Sequence[str],
        predicted_us: np.ndarray,
        distances: np.ndarray,
        residuals: np.ndarray,
        level: float,
    ) -> Self:
        """Computes half-widths from the errors of predictions for sequences whose family was held out.

        Args:
            kinds: Kind (operator types) of each held-out sequence; there must be at least one.
            predicted_us: Predicted cost of each sequence in microseconds, shape [num_sequences].
            distances: Distance of each sequence to the training data, shape [num_sequences].
            residuals: log(measured cost / predicted cost) of each sequence, shape [num_sequences].
            level: Nominal coverage.

        Raises:
            ValueError: There are no sequences.
        """
        if not len(residuals):
            raise ValueError("intervals of no residuals")
        sizes = np.abs(residuals)
        names, of_kind = np.unique(np.asarray(kinds, dtype=object).astype(str), return_inverse=True)
        of_size = np.digitize(predicted_us, SIZES_US)
        log_sizes = np.log(np.maximum(sizes, _LEAST_ERROR))
        by_kind, by_size = _effects(log_sizes, [(of_kind, len(names)), (of_size, len(SIZES_US) + 1)])
        by_kind, by_size = np.exp(by_kind), np.exp(by_size)
        by_distance = _by_distance(sizes / (by_kind[of_kind] * by_size[of_size]), distances, level)
        return cls(
            level=level,
            by_distance=by_distance,
            by_kind=dict(zip(names.tolist(), by_kind.tolist(), strict=True)),
            by_size=tuple(by_size.tolist()),
            extrapolated_from=_extrapolated_from(by_distance, distances),
        )

    def half_widths(self, kinds: Sequence[str], latencies_us: np.ndarray, distances: np.ndarray) -> np.ndarray:
        """Returns the half-widths of the intervals of predicted costs in log latency, shape [num_sequences].

        Args:
            kinds: Kind (operator types) of each sequence.
            latencies_us: Predicted cost of each sequence in microseconds, shape [num_sequences].
            distances: Distance of each sequence to the training data, shape [num_sequences].
        """
        of_kinds = np.array([self.by_kind.get(kind, 1.0) for kind in kinds])
        of_sizes = np.array(self.by_size)[np.digitize(latencies_us, SIZES_US)]
        return np.asarray(of_kinds * of_sizes * np.array(self.by_distance)[np.digitize(distances, DISTANCES)])

    def widened(self, half_width: float) -> Self:
        """Returns a calibration for costs that also have an error in common, which no held-out family could show.

        The error is that of guessing how quick a system is. It dominates, so that all kinds and sizes are alike.

        Args:
            half_width: Half-width of the interval of the common error, in log latency.
        """
        return replace(
            self,
            by_distance=tuple(math.hypot(width, half_width) for width in self.by_distance),
            by_kind={},
            by_size=(1.0,) * (len(SIZES_US) + 1),
            uncertainty=replace(self.uncertainty, correlation=max(1.0, self.uncertainty.correlation)),
        )

    def to_dict(self) -> dict[str, Any]:
        """Returns the calibration as JSON data, to be read back by `from_dict`."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Creates a calibration from the result of `to_dict`."""
        lists = {name: tuple(data[name]) for name in ("by_distance", "by_size")}
        uncertainty = Uncertainty(**known_fields(Uncertainty, data["uncertainty"]))
        return cls(**{**known_fields(cls, data), **lists, "uncertainty": uncertainty})


def _effects(values: np.ndarray, classes: Sequence[tuple[np.ndarray, int]]) -> list[np.ndarray]:
    """Explains values as sums of effects of the classes that they belong to (Tukey's median polish).

    Each value belongs to one class of each classification, such as one operator and one range of sizes.

    Args:
        values: Values to explain, shape [num_values].
        classes: For each classification, the index of each value's class, shape [num_values], and the number of
            classes.

    Returns:
        For each classification, the amount that each of its classes adds to the overall median, shape [num_classes].
    """
    typical = np.median(values)
    effects = [np.zeros(number) for _, number in classes]
    orders = [np.argsort(of, kind="stable") for of, _ in classes]
    for _ in range(_STEPS):
        for position, ((of, number), order) in enumerate(zip(classes, orders, strict=True)):
            others = sum(effects[i][classes[i][0]] for i in range(len(classes)) if i != position)
            remainder = (values - typical - others)[order]
            ends = np.searchsorted(of[order], np.arange(number + 1))
            for one, (start, end) in enumerate(pairwise(ends.tolist())):
                if end > start:
                    effects[position][one] = np.median(remainder[start:end]) * (end - start) / (end - start + _SHRINK)
    return effects


def _by_distance(scores: np.ndarray, distances: np.ndarray, level: float) -> tuple[float, ...]:
    """Returns the conformal quantile of the scores in each range of distances between the limits `DISTANCES`.

    A range is pooled with the next nearer range if one of the two has too few scores, or if the quantile of the nearer
    range is at least as large. Beyond the last range with enough scores, the quantile is multiplied by
    `EXTRAPOLATION_FACTOR`; layers whose operator was never measured then have at least the errors that such layers have
    on other systems.
    """
    places = np.digitize(distances, DISTANCES)
    least = max(10, math.ceil(1 / (1 - level)))
    pools: list[tuple[np.ndarray, int]] = []  # scores, and the number of ranges that they come from
    sequence_distances = 0
    for place in range(len(DISTANCES) + 1):
        pool, ranges = scores[places == place], 1
        if len(pool) >= least:
            sequence_distances = place
        while pools and (
            min(len(pool), len(pools[-1][0])) < least
            or conformal_quantile(pool, level) <= conformal_quantile(pools[-1][0], level)
        ):
            nearer, more = pools.pop()
            pool, ranges = np.concatenate([nearer, pool]), ranges + more
        pools.append((pool, ranges))
    widths = [width for pool, ranges in pools for width in [conformal_quantile(pool, level)] * ranges]
    widths = [
        width if place <= sequence_distances else EXTRAPOLATION_FACTOR * width for place, width in enumerate(widths)
    ]
    if sequence_distances < len(DISTANCES):
        widths[-1] = max(widths[-1], -_MEAN_ERROR_OF_NEW_OPERATORS * math.log(1 - level))
    return tuple(widths)


def _extrapolated_from(by_distance: Sequence[float], distances: np.ndarray) -> float:
    """Returns the distance from which intervals are `EXTRAPOLATION_FACTOR` times as wide as at the median distance.

    Args:
        by_distance: Half-width for each range of distances between the limits `DISTANCES`.
        distances: Distances of the held-out sequences, shape [num_sequences].
    """
    usual = by_distance[int(np.digitize(np.median(distances), DISTANCES))]
    beyond = (
        start
        for start, width in zip(DISTANCES, by_distance[1:], strict=True)
        if width >= EXTRAPOLATION_FACTOR * usual and start > np.median(distances)
    )
    return next(beyond, MAX_DISTANCE)


def predicted_costs(
    latencies_us: np.ndarray, kinds: Sequence[str], distances: np.ndarray, calibration: Calibration
) -> list[Cost]:
    """Returns predicted latencies as costs with intervals.

    Args:
        latencies_us: Predicted latency of each sequence in microseconds, shape [num_sequences].
        kinds: Kind (operator types) of each sequence.
        distances: Distance of each sequence to the training data, shape [num_sequences].
        calibration: Calibration of the regressor that predicted the latencies.
    """
    factors = np.exp(calibration.half_widths(kinds, latencies_us, distances))
    extrapolated = distances >= calibration.extrapolated_from
    columns = (latencies_us, latencies_us / factors, latencies_us * factors, extrapolated, kinds)
    return [
        Cost(us, (low, high), "extrapolated" if is_extrapolated else "predicted", kind)
        for us, low, high, is_extrapolated, kind in zip(
            *(column.tolist() if isinstance(column, np.ndarray) else column for column in columns), strict=True
        )
    ]
