"""How sure a regressor is: split conformal prediction (Vovk et al., 2005; Lei et al., 2018) on held-out families."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from costmodel.composition import Cost, Uncertainty, half_width

__all__ = ["Calibration", "conformal_quantile", "model_scores", "predicted_cost"]

# A kind of sequence has a width of its own from this many held-out residuals on: fewer do not fix a 90% quantile.
_LEAST_OF_KIND = 30
# What is outside the training range has no residuals to learn from; its interval is widened by a round factor.
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
        half_width: Of a predicted sequence of any kind.
        by_kind: Of the kinds that have enough residuals of their own.
        uncertainty: For composed latencies.
        extrapolation_factor: On the half-width outside the training range.
    """

    level: float
    half_width: float
    by_kind: Mapping[str, float] = field(default_factory=dict)
    uncertainty: Uncertainty = field(default_factory=Uncertainty)
    extrapolation_factor: float = EXTRAPOLATION_FACTOR

    @classmethod
    def fit(cls, kinds: Sequence[str], residuals: np.ndarray, construction: np.ndarray, level: float) -> "Calibration":
        """Widths from residuals of sequences whose family was held out.

        Args:
            kinds: Of the held-out sequences.
            residuals: log(measured / predicted), shape [num_sequences], at least one.
            construction: log(whole model / sum of its measured sequences), shape [num_models]; may be empty.
            level: Nominal coverage.
        """
        sizes = np.abs(residuals)
        of_kinds: dict[str, list[float]] = {}
        for kind, size in zip(kinds, sizes.tolist(), strict=True):
            of_kinds.setdefault(kind, []).append(size)
        by_kind = {
            kind: conformal_quantile(of_kind, level)
            for kind, of_kind in sorted(of_kinds.items())
            if len(of_kind) >= _LEAST_OF_KIND
        }
        uncertainty = Uncertainty()
        if len(construction):
            uncertainty = Uncertainty(construction=conformal_quantile(np.abs(construction), level))
        return cls(level, conformal_quantile(sizes, level), by_kind, uncertainty)

    def half_width_of(self, kind: str, *, extrapolated: bool) -> float:
        """Half-width for one predicted sequence."""
        width = self.by_kind.get(kind, self.half_width)
        return width * self.extrapolation_factor if extrapolated else width

    def to_dict(self) -> dict[str, Any]:
        """JSON-able; read back by `from_dict`."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Calibration":
        """What `to_dict` wrote down."""
        return cls(**{**data, "uncertainty": Uncertainty(**data["uncertainty"])})


def predicted_cost(latency_us: float, kind: str, calibration: Calibration, *, extrapolated: bool = False) -> Cost:
    """A predicted latency with its interval."""
    width = calibration.half_width_of(kind, extrapolated=extrapolated)
    return Cost(
        latency_us=latency_us,
        interval_us=(latency_us * math.exp(-width), latency_us * math.exp(width)),
        source="extrapolated" if extrapolated else "predicted",
        kind=kind,
    )


def model_scores(
    costs_of_models: Sequence[Sequence[Cost]], latencies_us: Sequence[float], uncertainty: Uncertainty
) -> list[float]:
    """For each held-out model, its error over the half-width that its parts give, both in log latency."""
    return [
        abs(math.log(measured / sum(cost.latency_us for cost in costs))) / max(half_width(costs, uncertainty), 1e-9)
        for costs, measured in zip(costs_of_models, latencies_us, strict=True)
    ]
