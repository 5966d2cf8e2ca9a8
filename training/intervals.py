"""Intervals from the errors on held-out families, and how many models lie inside them."""

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from costmodel.composition import Cost, Uncertainty, compose
from costmodel.training.calibration import Calibration, conformal_quantile, model_scores, predicted_cost
from costmodel.training.held_out import HeldOut

__all__ = ["LEVELS", "calibrate", "coverage", "coverage_by_level"]

# Nominal coverages at which intervals are checked.
LEVELS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)


def calibrate(run: HeldOut, level: float, without: str | None = None) -> Calibration:
    """Intervals from held-out errors, those of one family left out where it is to be judged."""
    dataset = run.dataset
    if dataset.whole_only:
        return _of_wholes(run, level, without)
    rows = np.array([row for row in run.judged if without not in dataset.families[row]], dtype=int)
    residuals = np.log(dataset.latencies_us[rows] / run.rows_us[rows])
    models = [(i, m) for i, m in enumerate(dataset.models) if m.family != without]
    construction = np.array([np.log(m.latency_us / dataset.latencies_us[m.rows].sum()) for _, m in models])
    calibration = Calibration.fit([dataset.kinds[row] for row in rows], residuals, construction, level)
    costs = [_costs(run, i, calibration) for i, _ in models]
    scores = model_scores(costs, [m.latency_us for _, m in models], calibration.uncertainty)
    # Never narrower than the parts say: a few lucky models are no evidence of that.
    scale = max(1.0, conformal_quantile(scores, level)) if scores else 1.0
    return replace(calibration, uncertainty=replace(calibration.uncertainty, scale=scale))


def _of_wholes(run: HeldOut, level: float, without: str | None) -> Calibration:
    """Intervals where no errors of layers are known: a sum of layers may be as far off as whole models were."""
    models = run.dataset.models
    errors = [
        abs(math.log(models[i].latency_us / run.unseen_us[i])) for i in run.judged_models if models[i].family != without
    ]
    width = conformal_quantile(errors, level)
    return Calibration(level, width, uncertainty=Uncertainty(construction=width))


def _costs(run: HeldOut, model: int, calibration: Calibration, *, known: bool = False) -> list[Cost]:
    """The costs of a model; with `known`, measured where another family has the sequence.

    Those of a kind are one cost: their errors add up as their latencies do, and the interval is the same.
    """
    by_kind = (run.unknown_kinds_us if known else run.kinds_us)[model]
    costs = [predicted_cost(us, kind, calibration) for kind, us in by_kind.items()]
    if known and run.dataset.known_elsewhere[model].any():
        rows = run.dataset.models[model].rows[run.dataset.known_elsewhere[model]]
        exact = float(run.dataset.latencies_us[rows].sum())
        costs.append(Cost(exact, (exact, exact), "measured", "measured"))
    return costs


def coverage(run: HeldOut, level: float) -> tuple[float | None, float | None]:
    """Share of models whose latency lies in an interval that was calibrated without their family.

    Returns:
        With measured costs where another family has the layer, and with predicted ones only.
    """
    inside: list[list[bool]] = [[], []]
    models = run.dataset.models
    for family in sorted({model.family for model in models}):
        if not run.dataset.whole_only and all(family in run.dataset.families[row] for row in run.judged):
            continue
        calibration = calibrate(run, level, family)
        for i, model in enumerate(models):
            if model.family == family:
                for known, hits in zip((True, False), inside, strict=True):
                    costs = _costs(run, i, calibration, known=known)
                    _, (low, high) = compose(costs, uncertainty=calibration.uncertainty)
                    hits.append(low <= model.latency_us <= high)
    composed, unseen = (float(np.mean(hits)) if hits else None for hits in inside)
    return composed, unseen


def coverage_by_level(run: HeldOut, levels: Iterable[float] = LEVELS) -> list[dict[str, Any]]:
    """For each nominal coverage, the share of models inside their interval; None where it cannot be said."""
    return [
        {"level": level, "model": composed, "model_unseen": unseen}
        for level in levels
        for composed, unseen in [coverage(run, level)]
    ]
