"""How sure a regressor is of a layer: split conformal prediction on held-out families (Lei et al., 2018).

Errors are measured against how large they usually are for an operator and a size, and the quantile of that is taken
apart for each range of distances to what was trained on (Mondrian conformal prediction; Vovk et al., 2005): where
there is less to interpolate between, the interval is wider, by as much as held-out errors were.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any, Self

import numpy as np

from costmodel.composition import Cost, Uncertainty
from costmodel.tolerance import known_fields
from costmodel.training.support import FARTHEST

__all__ = ["DISTANCES", "SIZES_US", "Calibration", "conformal_quantile", "predicted_costs"]

# Limits of the ranges of distances, and of predicted latencies, within which errors are alike.
DISTANCES = (0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.5, FARTHEST)
SIZES_US = (1.0, 3.0, 10.0, 30.0, 100.0, 1e3, 1e4)
# Errors below this are noise of the measurement: no operator is known better.
_LEAST_ERROR = 0.005
# Layers of its own that count as much for an operator as what all have in common.
_SHRINK = 20
_STEPS = 4
# What is farther than anything that could be judged has no errors to learn from; its interval is widened by a round
# factor. A layer is called extrapolated where errors are as much larger than at usual distances.
EXTRAPOLATION_FACTOR = 2.0


def conformal_quantile(scores: Sequence[float] | np.ndarray, level: float) -> float:
    """The value that a new score stays below with probability `level`; the largest score if there are too few.

    Raises:
        ValueError: There is no score at all, and so nothing to say.
    """
    ordered = np.sort(np.asarray(scores, dtype=np.float64))
    if not len(ordered):
        raise ValueError("a quantile of no scores")
    rank = math.ceil((len(ordered) + 1) * level)
    return float(ordered[min(rank, len(ordered)) - 1])


@dataclass(frozen=True, slots=True)
class Calibration:
    """Half-widths of intervals, in log latency, so that they are factors on a cost.

    Attributes:
        level: Nominal coverage.
        by_distance: Half-width for a layer of no operator in particular, for each range between `DISTANCES`; it never
            falls.
        by_kind: Factor on that for the kinds of sequences that were judged.
        by_size: Factor on that for each range of predicted latencies between `SIZES_US`.
        extrapolated_from: Distance from which on a prediction is called extrapolated.
        uncertainty: For composed latencies.
    """

    level: float
    by_distance: tuple[float, ...]
    by_kind: Mapping[str, float] = field(default_factory=dict)
    by_size: tuple[float, ...] = (1.0,) * (len(SIZES_US) + 1)
    extrapolated_from: float = FARTHEST
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
        """Widths from residuals of sequences whose family was held out.

        Args:
            kinds: Of the held-out sequences, at least one.
            predicted_us: Their predicted costs, shape [num_sequences].
            distances: To what was trained on, shape [num_sequences].
            residuals: log(measured / predicted), shape [num_sequences].
            level: Nominal coverage.

        Raises:
            ValueError: There is no sequence at all.
        """
        if not len(residuals):
            raise ValueError("intervals of no residuals")
        sizes = np.abs(residuals)
        names, of_kind = np.unique(np.asarray(kinds, dtype=object).astype(str), return_inverse=True)
        of_size = np.digitize(predicted_us, SIZES_US)
        usual = np.log(np.maximum(sizes, _LEAST_ERROR))
        by_kind, by_size = _effects(usual, [(of_kind, len(names)), (of_size, len(SIZES_US) + 1)])
        by_kind, by_size = np.exp(by_kind), np.exp(by_size)
        by_distance = _by_distance(sizes / (by_kind[of_kind] * by_size[of_size]), distances, level)
        return cls(
            level=level,
            by_distance=by_distance,
            by_kind=dict(zip(names.tolist(), by_kind.tolist(), strict=True)),
            by_size=tuple(by_size.tolist()),
            extrapolated_from=_strange_from(by_distance, distances),
        )

    def half_widths(self, kinds: Sequence[str], latencies_us: np.ndarray, distances: np.ndarray) -> np.ndarray:
        """Half-widths for predicted sequences, shape [num_sequences].

        Args:
            kinds: Theirs.
            latencies_us: Predicted, shape [num_sequences].
            distances: To what was trained on, shape [num_sequences].
        """
        of_kinds = np.array([self.by_kind.get(kind, 1.0) for kind in kinds])
        of_sizes = np.array(self.by_size)[np.digitize(latencies_us, SIZES_US)]
        return np.asarray(of_kinds * of_sizes * np.array(self.by_distance)[np.digitize(distances, DISTANCES)])

    def to_dict(self) -> dict[str, Any]:
        """JSON-able; read back by `from_dict`."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """What `to_dict` wrote down."""
        lists = {name: tuple(data[name]) for name in ("by_distance", "by_size")}
        uncertainty = Uncertainty(**known_fields(Uncertainty, data["uncertainty"]))
        return cls(**{**known_fields(cls, data), **lists, "uncertainty": uncertainty})


def _effects(values: np.ndarray, classes: Sequence[tuple[np.ndarray, int]]) -> list[np.ndarray]:
    """What it adds to a value to be of a class, in each of several classifications at once (Tukey's median polish).

    Args:
        values: Shape [num_values].
        classes: Of each classification the class of each value, shape [num_values], and how many there are.
    """
    typical = np.median(values)
    effects = [np.zeros(number) for _, number in classes]
    orders = [np.argsort(of, kind="stable") for of, _ in classes]
    for _ in range(_STEPS):
        for this, ((of, number), order) in enumerate(zip(classes, orders, strict=True)):
            others = sum(effects[i][classes[i][0]] for i in range(len(classes)) if i != this)
            left = (values - typical - others)[order]
            ends = np.searchsorted(of[order], np.arange(number + 1))
            for one, (start, end) in enumerate(pairwise(ends.tolist())):
                if end > start:
                    effects[this][one] = np.median(left[start:end]) * (end - start) / (end - start + _SHRINK)
    return effects


def _by_distance(scores: np.ndarray, distances: np.ndarray, level: float) -> tuple[float, ...]:
    """The conformal quantile of the scores in each range of distances.

    A range with too few of its own, or with a smaller quantile than a nearer one has, is one with that.
    """
    places = np.digitize(distances, DISTANCES)
    least = max(10, math.ceil(1 / (1 - level)))
    pools: list[tuple[np.ndarray, int]] = []  # scores, of how many ranges
    farthest = 0
    for place in range(len(DISTANCES) + 1):
        pool, ranges = scores[places == place], 1
        if len(pool) >= least:
            farthest = place
        while pools and (
            min(len(pool), len(pools[-1][0])) < least
            or conformal_quantile(pool, level) <= conformal_quantile(pools[-1][0], level)
        ):
            nearer, more = pools.pop()
            pool, ranges = np.concatenate([nearer, pool]), ranges + more
        pools.append((pool, ranges))
    found = [width for pool, ranges in pools for width in [conformal_quantile(pool, level)] * ranges]
    return tuple(width if place <= farthest else EXTRAPOLATION_FACTOR * width for place, width in enumerate(found))


def _strange_from(by_distance: Sequence[float], distances: np.ndarray) -> float:
    """The distance from which on errors are larger than at the usual one by more than a factor."""
    usual = by_distance[int(np.digitize(np.median(distances), DISTANCES))]
    beyond = (
        start
        for start, width in zip(DISTANCES, by_distance[1:], strict=True)
        if width >= EXTRAPOLATION_FACTOR * usual and start > np.median(distances)
    )
    return next(beyond, FARTHEST)


def predicted_costs(
    latencies_us: np.ndarray, kinds: Sequence[str], distances: np.ndarray, calibration: Calibration
) -> list[Cost]:
    """Predicted latencies with their intervals.

    Args:
        latencies_us: Shape [num_sequences].
        kinds: Of the sequences.
        distances: To what was trained on, shape [num_sequences].
        calibration: Of the regressor.
    """
    factors = np.exp(calibration.half_widths(kinds, latencies_us, distances))
    strange = distances >= calibration.extrapolated_from
    columns = (latencies_us, latencies_us / factors, latencies_us * factors, strange, kinds)
    return [
        Cost(us, (low, high), "extrapolated" if is_strange else "predicted", kind)
        for us, low, high, is_strange, kind in zip(
            *(column.tolist() if isinstance(column, np.ndarray) else column for column in columns), strict=True
        )
    ]
