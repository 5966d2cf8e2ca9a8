"""Evaluation: every predictor on the same held-out families, at the level of sequences and of whole models."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from costmodel.composition import Cost, compose
from costmodel.errors import MissingExtraError, TrainingError
from costmodel.training.calibration import Calibration, conformal_quantile, model_scores, predicted_cost
from costmodel.training.dataset import Dataset
from costmodel.training.regressors import BASELINES, REGRESSORS, Regressor

try:
    from joblib import Parallel, delayed
    from scipy.stats import kendalltau
except ModuleNotFoundError as error:
    raise MissingExtraError("evaluation", "train") from error

__all__ = ["SPLIT", "Evaluation", "evaluate"]

SPLIT = "leave-one-family-out"
_LEAST_FAMILIES = 3


@dataclass(frozen=True)
class _HeldOut:
    """Predictions of one predictor with one seed, each made without the family it belongs to.

    Attributes:
        rows: Rows of sequences that only the held-out family has.
        rows_us: Predicted costs of `rows`.
        models_us: For each measured model, predicted costs of its sequences.
    """

    rows: np.ndarray
    rows_us: np.ndarray
    models_us: tuple[np.ndarray, ...]


@dataclass(frozen=True)
class Evaluation:
    """How well predictors do on families that they have not seen.

    Attributes:
        report: The document of `costmodel evaluate --json`.
        calibrations: For each predictor, the intervals that its held-out errors justify.
        best: The predictor with the smallest error over models, baselines included.
    """

    report: dict[str, Any]
    calibrations: Mapping[str, Calibration]
    best: str


def evaluate(
    dataset: Dataset,
    *,
    seeds: Sequence[int] = (0, 1, 2),
    level: float = 0.9,
    predictors: Mapping[str, Callable[[int], Regressor]] = REGRESSORS,
    jobs: int = 1,
    progress: Callable[[int, int, str], None] | None = None,
) -> Evaluation:
    """Leave one family out at a time, for every predictor and seed.

    Args:
        dataset: Measured sequences and models.
        seeds: Of the regressors that use chance; results are averaged.
        level: Nominal coverage of intervals.
        predictors: Makers of regressors by name; the champion is the one with the smallest error over models that is no
            baseline.
        jobs: Families evaluated at once.
        progress: Told (done, total, predictor).

    Raises:
        TrainingError: Fewer than three families were measured, or they have every sequence in common.
    """
    families = dataset.all_families
    if len(families) < _LEAST_FAMILIES:
        raise TrainingError(
            f"evaluation leaves out one family at a time and needs {_LEAST_FAMILIES}, not {len(families)}: "
            "benchmark models of more families"
        )
    if not any(
        len(of_row) == 1 for of_row, sampled in zip(dataset.families, dataset.sampled, strict=True) if not sampled
    ):
        raise TrainingError(
            "every measured sequence is in models of several families, so that none can be left out of training: "
            "benchmark more models"
        )
    names = list(predictors)
    results: dict[str, Any] = {}
    calibrations = {}
    for done, name in enumerate(names):
        if progress is not None:
            progress(done, len(names), name)
        runs = [_leave_families_out(dataset, predictors[name], seed, families, jobs) for seed in seeds]
        results[name], calibrations[name] = _score(dataset, runs, families, level)
    if progress is not None:
        progress(len(names), len(names), "")
    ranked = sorted(names, key=lambda name: _mape(results[name]))
    report = {
        "system": dataset.system.name,
        "split": SPLIT,
        "seeds": list(seeds),
        "noise_floor_mape": dataset.noise_floor(),
        "predictors": results,
        "champion": next((name for name in ranked if name not in BASELINES), ranked[0]),
        "rows": len(dataset),
        "families": {family: _family_facts(dataset, family) for family in families},
    }
    return Evaluation(report, calibrations, best=ranked[0])


def _mape(result: Mapping[str, Any]) -> float:
    """Error over whole models, or over sequences where no model was measured whole."""
    of_models = result["model"]["mape"]
    return float(result["layer"]["mape"] if of_models is None else of_models)


def _family_facts(dataset: Dataset, family: str) -> dict[str, Any]:
    own = [f for f, sampled in zip(dataset.families, dataset.sampled, strict=True) if family in f and not sampled]
    shared = sum(len(f) > 1 for f in own)
    return {"sequences": len(own), "shared_with_other_families": shared / len(own) if own else 0.0}


def _leave_families_out(
    dataset: Dataset, make: Callable[[int], Regressor], seed: int, families: Iterable[str], jobs: int
) -> _HeldOut:
    def one(family: str) -> tuple[np.ndarray, np.ndarray, dict[int, np.ndarray]]:
        kept = dataset.without_family(family)
        regressor = make(seed).fit(dataset.features[kept], dataset.bounds_us[kept], dataset.latencies_us[kept])
        costs = regressor.predict_us(dataset.features, dataset.bounds_us)
        rows = np.flatnonzero(~kept & ~dataset.sampled)
        models = {i: costs[m.rows] for i, m in enumerate(dataset.models) if m.family == family}
        return rows, costs[rows], models

    # Threads: LightGBM and numpy let go of the interpreter, and the data need not be copied.
    parts = Parallel(n_jobs=jobs, prefer="threads")(delayed(one)(family) for family in families)
    by_model = {i: costs for _, _, models in parts for i, costs in models.items()}
    return _HeldOut(
        rows=np.concatenate([rows for rows, _, _ in parts]),
        rows_us=np.concatenate([costs for _, costs, _ in parts]),
        models_us=tuple(by_model[i] for i in range(len(dataset.models))),
    )


def _score(
    dataset: Dataset, runs: Sequence[_HeldOut], families: Sequence[str], level: float
) -> tuple[dict[str, Any], Calibration]:
    """Metrics averaged over seeds, and the calibration that the first seed justifies."""
    layer = [_errors(run.rows_us, dataset.latencies_us[run.rows]) for run in runs]
    measured = np.array([model.latency_us for model in dataset.models])
    totals = [np.array([costs.sum() for costs in run.models_us]) for run in runs]
    model = [_errors(total, measured) for total in totals]
    result = {
        "layer": {key: _mean([e[key] for e in layer]) for key in ("mape", "within_10pct", "kendall_tau")},
        "model": {
            **{key: _mean([e[key] for e in model]) for key in ("mape", "within_5pct", "within_10pct", "kendall_tau")},
            "interval_coverage": _mean([_coverage(dataset, run, families, level) for run in runs]),
        },
        "models": [
            {
                "model": m.name,
                "family": m.family,
                "latency_us": m.latency_us,
                "predicted_us": float(np.mean([t[i] for t in totals])),
            }
            for i, m in enumerate(dataset.models)
        ],
    }
    return result, _calibrate(dataset, runs[0], level)


def _errors(predicted: np.ndarray, measured: np.ndarray) -> dict[str, float | None]:
    if not len(measured):
        return {"mape": None, "within_5pct": None, "within_10pct": None, "kendall_tau": None}
    relative = np.abs(predicted - measured) / measured
    tau = float(kendalltau(predicted, measured).statistic) if len(measured) > 1 else None
    return {
        "mape": float(relative.mean()),
        "within_5pct": float((relative <= 0.05).mean()),
        "within_10pct": float((relative <= 0.10).mean()),
        "kendall_tau": None if tau is None or np.isnan(tau) else tau,
    }


def _mean(values: Sequence[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return float(np.mean(known)) if known else None


def _calibrate(dataset: Dataset, run: _HeldOut, level: float, without: str | None = None) -> Calibration:
    """Intervals from held-out errors, those of one family left out where it is to be judged."""
    rows = _judged(dataset, run, without)
    residuals = np.log(dataset.latencies_us[run.rows[rows]] / run.rows_us[rows])
    models = [(i, m) for i, m in enumerate(dataset.models) if m.family != without]
    construction = np.array([np.log(m.latency_us / dataset.latencies_us[m.rows].sum()) for _, m in models])
    calibration = Calibration.fit([dataset.kinds[row] for row in run.rows[rows]], residuals, construction, level)
    costs = [_costs(dataset, i, run, calibration) for i, _ in models]
    scores = model_scores(costs, [m.latency_us for _, m in models], calibration.uncertainty)
    # Never narrower than the parts say: a few lucky models are no evidence of that.
    scale = max(1.0, conformal_quantile(scores, level)) if scores else 1.0
    return replace(calibration, uncertainty=replace(calibration.uncertainty, scale=scale))


def _judged(dataset: Dataset, run: _HeldOut, without: str | None) -> np.ndarray:
    """Whether each held-out row is in no model of the family `without`."""
    return np.array([without not in dataset.families[row] for row in run.rows], dtype=bool)


def _costs(dataset: Dataset, model: int, run: _HeldOut, calibration: Calibration) -> list[Cost]:
    kinds = (dataset.kinds[row] for row in dataset.models[model].rows)
    return [predicted_cost(float(us), kind, calibration) for us, kind in zip(run.models_us[model], kinds, strict=True)]


def _coverage(dataset: Dataset, run: _HeldOut, families: Sequence[str], level: float) -> float | None:
    """Share of models whose latency lies in an interval that was calibrated without their family."""
    inside = []
    for family in families:
        own = [(i, model) for i, model in enumerate(dataset.models) if model.family == family]
        if not own or not _judged(dataset, run, family).any():
            continue
        calibration = _calibrate(dataset, run, level, family)
        for i, model in own:
            costs = _costs(dataset, i, run, calibration)
            _, (low, high) = compose(costs, uncertainty=calibration.uncertainty)
            inside.append(low <= model.latency_us <= high)
    return float(np.mean(inside)) if inside else None
