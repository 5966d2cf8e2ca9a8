"""Evaluates every predictor on the same held-out families, by the errors of layers and of whole models.

A predictor is never trained on a layer of the models that it is judged on. The latency of a model is composed in two
ways: with the measured cost of each layer that also occurs in a model of another family (`model`), as in normal use,
and with predicted costs only (`model_unseen`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from costmodel.progress import Progress
from costmodel.training.calibration import DISTANCES, Calibration
from costmodel.training.dataset import Dataset
from costmodel.training.evaluation.distances import Distances, distances
from costmodel.training.evaluation.held_out import (
    METRICS,
    HeldOut,
    accuracy,
    errors_of,
    predict_held_out,
    rank_correlation,
)
from costmodel.training.evaluation.intervals import HeldOutWithDistances
from costmodel.training.evaluation.splits import LEAST_FAMILIES, leave_families_out, split_name
from costmodel.training.regressors.registry import BASELINES, REGRESSORS, Regressor

__all__ = ["Evaluation", "evaluate"]

# Limits of the size classes of layers, in microseconds.
_SIZES_US = (0.0, 10.0, 100.0, 1e3, 1e4, float("inf"))
# Number of groups of models that are held out where models instead of families are held out.
_MODEL_FOLDS = 10


@dataclass(frozen=True)
class Evaluation:
    """Results of predictors on held-out families.

    Attributes:
        report: The document of `costmodel evaluate --json`.
        calibrations: For each predictor, the calibration of its intervals by its held-out errors.
        best: Name of the predictor with the smallest error over models, baselines included.
        held_out: For each predictor, its held-out predictions with the first seed.
        distances: Distances of the held-out sequences to the training data.
    """

    report: dict[str, Any]
    calibrations: Mapping[str, Calibration]
    best: str
    held_out: Mapping[str, HeldOut]
    distances: Distances


def evaluate(
    dataset: Dataset,
    *,
    seeds: Sequence[int] = (0, 1, 2),
    folds: int | None = None,
    level: float = 0.9,
    predictors: Mapping[str, Callable[[int], Regressor]] = REGRESSORS,
    jobs: int = 1,
    progress: Progress | None = None,
) -> Evaluation:
    """Evaluates every predictor with every seed on held-out families.

    Where only whole models of fewer than three families are measured, as of a search space, models are held out
    instead of families.

    Args:
        dataset: Measured sequences and models.
        seeds: Seeds of the regressors that use random numbers; results are averaged over them.
        folds: Number of groups in which families are held out; None for one family at a time.
        level: Nominal coverage of intervals.
        predictors: Makers of regressors by name; the champion is the one with the smallest error over models that is
            not a baseline.
        jobs: Number of splits that are evaluated in parallel.
        progress: Called with (done, total, predictor).

    Raises:
        TrainingError: Fewer than three families are measured, and not only whole models.
    """
    judged, split = dataset, split_name(folds)
    if dataset.whole_only and len(dataset.all_families) < LEAST_FAMILIES:
        judged, folds = dataset.by_model(), _MODEL_FOLDS
        split = f"leave-models-out, {folds} folds"
    splits = leave_families_out(judged, folds)
    held_out_distances = distances(judged, splits)
    names = list(predictors)
    results: dict[str, Any] = {}
    calibrations = {}
    first_runs = {}
    for done, name in enumerate(names):
        if progress is not None:
            progress(done, len(names), name)
        runs = [predict_held_out(judged, splits, predictors[name], seed, jobs=jobs) for seed in seeds]
        results[name], calibrations[name] = _score(
            dataset, [HeldOutWithDistances(run, held_out_distances) for run in runs], level
        )
        first_runs[name] = runs[0]
    if progress is not None:
        progress(len(names), len(names), "")
    ranked = sorted(names, key=lambda name: _mape(results[name]))
    report = {
        "system": dataset.system.name,
        "split": split,
        "seeds": list(seeds),
        "noise_floor_mape": dataset.noise_floor(),
        "predictors": results,
        "champion": next((name for name in ranked if name not in BASELINES), ranked[0]),
        "rows": len(dataset),
        "families": {family: _family_facts(dataset, family) for family in dataset.all_families},
    }
    return Evaluation(report, calibrations, best=ranked[0], held_out=first_runs, distances=held_out_distances)


def _mape(result: Mapping[str, Any]) -> float:
    """Returns the error over models with every layer predicted; over sequences if no model was measured whole."""
    of_models = result["model_unseen"]["mape"]
    return float(result["layer"]["mape"] if of_models is None else of_models)


def _family_facts(dataset: Dataset, family: str) -> dict[str, Any]:
    """Returns the entry of a family in the report."""
    real = ~dataset.sampled & ~dataset.whole
    own = [f for f, is_real in zip(dataset.families, real, strict=True) if family in f and is_real]
    shared = sum(len(f) > 1 for f in own)
    return {
        "models": sum(model.family == family for model in dataset.models),
        "sequences": len(own),
        "shared_with_other_families": shared / len(own) if own else 0.0,
    }


def _score(
    dataset: Dataset, judged: Sequence[HeldOutWithDistances], level: float
) -> tuple[dict[str, Any], Calibration]:
    """Returns metrics averaged over seeds, and the calibration by the errors of the first seed."""
    runs = [of_seed.run for of_seed in judged]
    accuracies = [accuracy(run) for run in runs]
    means = {part: {key: _mean([a[part][key] for a in accuracies]) for key in keys} for part, keys in METRICS.items()}
    covered = [of_seed.coverage(level) for of_seed in judged]
    for part, metrics in means.items():
        metrics["interval_coverage"] = _mean([of_seed[part] for of_seed in covered])
        metrics["interval_half_width"] = _mean([of_seed[f"{part}_width"] for of_seed in covered])
    result = {
        **means,
        "operators": _by_operator(runs),
        "sizes": _by_size(runs),
        "distances": _by_distance(runs, judged[0].distances),
        "models": [
            {
                "model": model.name,
                "family": model.family,
                "latency_us": model.latency_us,
                "sum_us": float(dataset.latencies_us[model.rows].sum()),
                "predicted_us": float(np.mean([run.composed_us[i] for run in runs])),
                "unseen_us": float(np.mean([run.unseen_us[i] for run in runs])),
                "known_share": float(dataset.known_elsewhere[i].mean()),
            }
            for i, model in enumerate(dataset.models)
        ],
    }
    return result, judged[0].calibrate(level)


def _by_operator(runs: Sequence[HeldOut]) -> dict[str, Any]:
    """Returns the errors of single layers by operator, the operator with the most time first."""
    dataset = runs[0].dataset
    rows: dict[str, list[int]] = {}
    for row in runs[0].judged.tolist():
        if dataset.encoded.lengths[row] == 1:
            rows.setdefault(dataset.kinds[row], []).append(row)
    by_time = sorted(rows.items(), key=lambda item: -dataset.latencies_us[item[1]].sum())
    return {kind: _layer_errors(runs, np.array(of_kind)) for kind, of_kind in by_time}


def _by_size(runs: Sequence[HeldOut]) -> list[dict[str, Any]]:
    """Returns the errors of sequences in each range of latencies."""
    latencies = runs[0].dataset.latencies_us[runs[0].judged]
    result = []
    for low, high in pairwise(_SIZES_US):
        rows = runs[0].judged[(latencies >= low) & (latencies < high)]
        result.append({"from_us": low, "to_us": None if np.isinf(high) else high, **_layer_errors(runs, rows)})
    return result


def _by_distance(runs: Sequence[HeldOut], held_out_distances: Distances) -> dict[str, Any]:
    """Returns the errors of sequences in each range of distances, and the rank correlation of distance and error."""
    run = runs[0]
    of_rows = held_out_distances.rows[run.judged]
    sizes = np.abs(np.log(run.dataset.latencies_us[run.judged] / run.rows_us[run.judged]))
    ranges = []
    for low, high in pairwise((0.0, *DISTANCES, float("inf"))):
        rows = run.judged[(of_rows >= low) & (of_rows < high)]
        ranges.append({"from": low, "to": None if np.isinf(high) else high, **_layer_errors(runs, rows)})
    return {"rank_correlation": rank_correlation(of_rows, sizes), "ranges": ranges}


def _layer_errors(runs: Sequence[HeldOut], rows: np.ndarray) -> dict[str, Any]:
    measured = runs[0].dataset.latencies_us[rows]
    errors = [errors_of(run.rows_us[rows], measured) for run in runs]
    return {
        "layers": len(rows),
        "latency_us": float(measured.sum()),
        **{key: _mean([e[key] for e in errors]) for key in ("mape", "weighted_mape", "within_10pct")},
    }


def _mean(values: Sequence[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return float(np.mean(known)) if known else None
