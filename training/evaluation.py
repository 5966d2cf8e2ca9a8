"""Evaluation: every predictor on the same held-out families, at the level of layers and of whole models.

A predictor never sees a layer of the models that it is judged on. Their latency is composed in two ways: as the product
answers, with the measured cost where a model of another family has the layer too (`model`), and as if every signature
were unseen (`model_unseen`).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from costmodel.composition import Cost, compose
from costmodel.errors import MissingExtraError
from costmodel.training.calibration import Calibration, conformal_quantile, model_scores, predicted_cost
from costmodel.training.dataset import Dataset
from costmodel.training.regressors import BASELINES, REGRESSORS, Regressor
from costmodel.training.splits import Split, leave_families_out, split_name

try:
    from joblib import Parallel, delayed
    from scipy.stats import kendalltau
except ModuleNotFoundError as error:
    raise MissingExtraError("evaluation", "train") from error

__all__ = ["Evaluation", "HeldOut", "evaluate", "held_out"]

# Limits of the size classes of layers, in microseconds.
_SIZES_US = (0.0, 10.0, 100.0, 1e3, 1e4, float("inf"))


@dataclass(frozen=True)
class HeldOut:
    """Predictions of one predictor with one seed, each made without the family it belongs to.

    Attributes:
        dataset: What was measured.
        rows_us: Predicted costs, shape [num_rows]; nan for samples and whole models.
        models_us: For each measured model, predicted costs of its sequences.
    """

    dataset: Dataset
    rows_us: np.ndarray
    models_us: tuple[np.ndarray, ...]

    @cached_property
    def judged(self) -> np.ndarray:
        """Rows with a prediction, as positions."""
        return np.flatnonzero(~np.isnan(self.rows_us))

    @cached_property
    def unseen_us(self) -> np.ndarray:
        """Predicted latencies of the models, no layer measured; shape [num_models]."""
        return np.array([costs.sum() for costs in self.models_us])

    @cached_property
    def composed_us(self) -> np.ndarray:
        """Latencies of the models as the product answers: layers that other families have are measured."""
        data = self.dataset
        return np.array(
            [
                np.where(data.known_elsewhere[i], data.latencies_us[model.rows], costs).sum()
                for i, (model, costs) in enumerate(zip(data.models, self.models_us, strict=True))
            ]
        )


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
    folds: int | None = None,
    level: float = 0.9,
    predictors: Mapping[str, Callable[[int], Regressor]] = REGRESSORS,
    jobs: int = 1,
    progress: Callable[[int, int, str], None] | None = None,
) -> Evaluation:
    """Leave families out, for every predictor and seed.

    Args:
        dataset: Measured sequences and models.
        seeds: Of the regressors that use chance; results are averaged.
        folds: Groups in which families are left out; None for one family at a time.
        level: Nominal coverage of intervals.
        predictors: Makers of regressors by name; the champion is the one with the smallest error over models that is no
            baseline.
        jobs: Splits evaluated at once.
        progress: Told (done, total, predictor).

    Raises:
        TrainingError: Fewer than three families were measured.
    """
    splits = leave_families_out(dataset, folds)
    names = list(predictors)
    results: dict[str, Any] = {}
    calibrations = {}
    for done, name in enumerate(names):
        if progress is not None:
            progress(done, len(names), name)
        runs = [held_out(dataset, splits, predictors[name], seed, jobs=jobs) for seed in seeds]
        results[name], calibrations[name] = _score(dataset, runs, level)
    if progress is not None:
        progress(len(names), len(names), "")
    ranked = sorted(names, key=lambda name: _mape(results[name]))
    report = {
        "system": dataset.system.name,
        "split": split_name(folds),
        "seeds": list(seeds),
        "noise_floor_mape": dataset.noise_floor(),
        "predictors": results,
        "champion": next((name for name in ranked if name not in BASELINES), ranked[0]),
        "rows": len(dataset),
        "families": {family: _family_facts(dataset, family) for family in dataset.all_families},
    }
    return Evaluation(report, calibrations, best=ranked[0])


def held_out(
    dataset: Dataset, splits: Iterable[Split], make: Callable[[int], Regressor], seed: int, *, jobs: int = 1
) -> HeldOut:
    """What a predictor says of every family when it has not seen it.

    Args:
        dataset: Measured sequences and models.
        splits: Which families are held out together.
        make: Of the predictor, from a seed.
        seed: Its seed.
        jobs: Splits at once.
    """

    def one(split: Split) -> tuple[np.ndarray, np.ndarray, dict[int, np.ndarray]]:
        regressor = make(seed).fit(dataset.encoded.take(split.kept), dataset.latencies_us[split.kept])
        asked = split.judged.copy()
        for i in split.models:
            asked[dataset.models[i].rows] = True
        costs = np.full(len(dataset), np.nan)
        if asked.any():
            some = dataset.encoded.take(asked)
            costs[asked] = some.totals(regressor.predict_us(some))
        return split.judged, costs, {i: costs[dataset.models[i].rows] for i in split.models}

    # Threads: LightGBM and numpy let go of the interpreter, and the data need not be copied.
    parts = Parallel(n_jobs=jobs, prefer="threads")(delayed(one)(split) for split in splits)
    rows_us = np.full(len(dataset), np.nan)
    by_model: dict[int, np.ndarray] = {}
    for judged, costs, models in parts:
        rows_us[judged] = costs[judged]
        by_model |= models
    return HeldOut(dataset, rows_us, tuple(by_model[i] for i in range(len(dataset.models))))


def _mape(result: Mapping[str, Any]) -> float:
    """Error over whole models, or over sequences where no model was measured whole."""
    of_models = result["model"]["mape"]
    return float(result["layer"]["mape"] if of_models is None else of_models)


def _family_facts(dataset: Dataset, family: str) -> dict[str, Any]:
    real = ~dataset.sampled & ~dataset.whole
    own = [f for f, is_real in zip(dataset.families, real, strict=True) if family in f and is_real]
    shared = sum(len(f) > 1 for f in own)
    return {
        "models": sum(model.family == family for model in dataset.models),
        "sequences": len(own),
        "shared_with_other_families": shared / len(own) if own else 0.0,
    }


def _score(dataset: Dataset, runs: Sequence[HeldOut], level: float) -> tuple[dict[str, Any], Calibration]:
    """Metrics averaged over seeds, and the calibration that the first seed justifies."""
    measured = np.array([model.latency_us for model in dataset.models])
    of_layers = [_errors(run.rows_us[run.judged], dataset.latencies_us[run.judged]) for run in runs]
    composed = [_errors(run.composed_us, measured) for run in runs]
    unseen = [_errors(run.unseen_us, measured) for run in runs]
    covered = [_coverage(run, level) for run in runs]
    layer_keys = ("mape", "weighted_mape", "within_10pct", "kendall_tau")
    model_keys = ("mape", "within_5pct", "within_10pct", "kendall_tau")
    result = {
        "layer": {key: _mean([e[key] for e in of_layers]) for key in layer_keys},
        "model": {
            **{key: _mean([e[key] for e in composed]) for key in model_keys},
            "interval_coverage": _mean([known for known, _ in covered]),
        },
        "model_unseen": {
            **{key: _mean([e[key] for e in unseen]) for key in model_keys},
            "interval_coverage": _mean([unknown for _, unknown in covered]),
        },
        "operators": _by_operator(runs),
        "sizes": _by_size(runs),
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
    return result, _calibrate(runs[0], level)


def _by_operator(runs: Sequence[HeldOut]) -> dict[str, Any]:
    """Errors of single layers by their operator, the most time first."""
    dataset = runs[0].dataset
    rows: dict[str, list[int]] = {}
    for row in runs[0].judged.tolist():
        if dataset.encoded.lengths[row] == 1:
            rows.setdefault(dataset.kinds[row], []).append(row)
    most = sorted(rows.items(), key=lambda item: -dataset.latencies_us[item[1]].sum())
    return {kind: _layer_errors(runs, np.array(of_kind)) for kind, of_kind in most}


def _by_size(runs: Sequence[HeldOut]) -> list[dict[str, Any]]:
    """Errors of layers by how long they take."""
    latencies = runs[0].dataset.latencies_us[runs[0].judged]
    result = []
    for low, high in pairwise(_SIZES_US):
        rows = runs[0].judged[(latencies >= low) & (latencies < high)]
        result.append({"from_us": low, "to_us": None if np.isinf(high) else high, **_layer_errors(runs, rows)})
    return result


def _layer_errors(runs: Sequence[HeldOut], rows: np.ndarray) -> dict[str, Any]:
    measured = runs[0].dataset.latencies_us[rows]
    errors = [_errors(run.rows_us[rows], measured) for run in runs]
    return {
        "layers": len(rows),
        "latency_us": float(measured.sum()),
        **{key: _mean([e[key] for e in errors]) for key in ("mape", "weighted_mape", "within_10pct")},
    }


def _errors(predicted: np.ndarray, measured: np.ndarray) -> dict[str, float | None]:
    if not len(measured):
        return dict.fromkeys(("mape", "weighted_mape", "within_5pct", "within_10pct", "kendall_tau"))
    relative = np.abs(predicted - measured) / measured
    tau = float(kendalltau(predicted, measured).statistic) if len(measured) > 1 else None
    return {
        "mape": float(relative.mean()),
        "weighted_mape": float(np.abs(predicted - measured).sum() / measured.sum()),
        "within_5pct": float((relative <= 0.05).mean()),
        "within_10pct": float((relative <= 0.10).mean()),
        "kendall_tau": None if tau is None or np.isnan(tau) else tau,
    }


def _mean(values: Sequence[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return float(np.mean(known)) if known else None


def _calibrate(run: HeldOut, level: float, without: str | None = None) -> Calibration:
    """Intervals from held-out errors, those of one family left out where it is to be judged."""
    dataset = run.dataset
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


def _costs(run: HeldOut, model: int, calibration: Calibration, *, known: bool = False) -> list[Cost]:
    """The costs of a model's sequences; with `known`, measured where another family has them."""
    dataset = run.dataset
    rows = dataset.models[model].rows
    costs = []
    for row, us, elsewhere in zip(rows, run.models_us[model], dataset.known_elsewhere[model], strict=True):
        if known and elsewhere:
            exact = float(dataset.latencies_us[row])
            costs.append(Cost(exact, (exact, exact), "measured", dataset.kinds[row]))
        else:
            costs.append(predicted_cost(float(us), dataset.kinds[row], calibration))
    return costs


def _coverage(run: HeldOut, level: float) -> tuple[float | None, float | None]:
    """Share of models whose latency lies in an interval that was calibrated without their family.

    Returns:
        With measured costs where another family has the layer, and with predicted ones only.
    """
    inside: list[list[bool]] = [[], []]
    models = run.dataset.models
    for family in sorted({model.family for model in models}):
        if all(family in run.dataset.families[row] for row in run.judged):
            continue
        calibration = _calibrate(run, level, family)
        for i, model in enumerate(models):
            if model.family == family:
                for known, hits in zip((True, False), inside, strict=True):
                    costs = _costs(run, i, calibration, known=known)
                    _, (low, high) = compose(costs, uncertainty=calibration.uncertainty)
                    hits.append(low <= model.latency_us <= high)
    composed, unseen = (float(np.mean(hits)) if hits else None for hits in inside)
    return composed, unseen
