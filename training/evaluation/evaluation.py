"""Evaluates every predictor on the same held-out lineages, by the errors of layers and of whole models.

A predictor is never trained on a layer of the models that it is judged on. The latency of a model is composed in two
ways: with the measured cost of each layer that also occurs in a model of another lineage (`model`), as in normal use,
and with predicted costs only (`model_unseen`).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise

import numpy as np

from costmodel.progress import Progress, reported
from costmodel.training.calibration import DISTANCES, Calibration
from costmodel.training.dataset import Dataset
from costmodel.training.evaluation.distances import Distances, distances
from costmodel.training.evaluation.held_out import (
    Errors,
    HeldOut,
    accuracy,
    errors_of,
    predict_held_out,
    rank_correlation,
)
from costmodel.training.evaluation.intervals import HeldOutWithDistances
from costmodel.training.evaluation.results import (
    ClassErrors,
    DistanceErrors,
    DistanceResult,
    EvaluationReport,
    FamilyFacts,
    LayerMetrics,
    ModelMetrics,
    ModelResult,
    PredictorResult,
    SizeErrors,
)
from costmodel.training.evaluation.splits import LEAST_FAMILIES, leave_families_out, split_name
from costmodel.training.evaluation.truth import standard_errors, truth_of
from costmodel.training.lineages import by_lineage
from costmodel.training.regressors.learner import Regressor
from costmodel.training.regressors.registry import BASELINES, DETERMINISTIC, REGRESSORS

__all__ = ["Evaluation", "evaluate"]

# Sequences above this latency in microseconds are judged apart: shorter ones take next to no time, and are measured to
# half a microsecond at best.
LONG_US = 20.0
# Limits of the size classes of layers, in microseconds.
_SIZES_US = (0.0, 10.0, 100.0, 1e3, 1e4, float("inf"))
# Number of groups of models that are held out where models instead of families are held out.
_MODEL_FOLDS = 10


@dataclass(frozen=True)
class Evaluation:
    """Results of predictors on held-out lineages.

    Attributes:
        report: Metrics of all predictors.
        calibrations: For each predictor, the calibration of its intervals by its held-out errors.
        best: Name of the predictor with the smallest error over models, baselines included.
        held_out: For each predictor, its predictions for held-out lineages with the first seed.
        distances: Distances of the held-out sequences to the training data.
    """

    report: EvaluationReport
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
    """Evaluates every predictor with every seed on held-out lineages (`costmodel.training.lineages`).

    Where fewer than three lineages are measured, families are held out instead; where only whole models are measured,
    and of fewer than three families (such as the models of a search space), models.

    Args:
        dataset: Measured sequences and models.
        seeds: Seeds of the regressors that use random numbers; results are averaged over them. The others are
            evaluated once.
        folds: Number of groups in which lineages are held out; None for one at a time.
        level: Nominal coverage of intervals.
        predictors: Functions that make a predictor from a seed, by name; the champion is the predictor with the
            smallest error over models that is not a baseline.
        jobs: Number of splits that are evaluated in parallel.
        progress: Called with (trainings done, trainings in total, name of the next predictor), a training being that
            of a predictor with one seed on all groups.

    Raises:
        TrainingError: Fewer than three families are measured, and not only whole models.
    """
    judged = by_lineage(dataset)
    split = split_name(folds, "family" if judged is dataset else "lineage")
    dataset = judged
    if dataset.whole_only and len(dataset.all_families) < LEAST_FAMILIES:
        judged, folds = dataset.by_model(), _MODEL_FOLDS
        split = f"leave-models-out, {folds} folds"
    splits = leave_families_out(judged, folds)
    held_out_distances = distances(judged, splits)
    names = list(predictors)
    results: dict[str, PredictorResult] = {}
    calibrations = {}
    runs: dict[str, list[HeldOut]] = {name: [] for name in names}
    trainings = [(name, seed) for name in names for seed in (seeds[:1] if name in DETERMINISTIC else seeds)]
    for name, seed in reported(trainings, lambda training: training[0], progress):
        runs[name].append(predict_held_out(judged, splits, predictors[name], seed, jobs=jobs))
    for name in names:
        results[name], calibrations[name] = _score(
            dataset, [HeldOutWithDistances(run, held_out_distances) for run in runs[name]], level
        )
    first_runs = {name: of_seeds[0] for name, of_seeds in runs.items()}
    ranked = sorted(names, key=lambda name: _mape(results[name]))
    champion = next((name for name in ranked if name not in BASELINES), ranked[0])
    judged_models = first_runs[champion].judged_models.tolist()
    report = EvaluationReport(
        system=dataset.system.name,
        split=split,
        seeds=tuple(seeds),
        noise_floor_mape=dataset.noise_floor(),
        predictors=results,
        champion=champion,
        rows=len(dataset),
        borrowed_rows=int(dataset.borrowed.sum()),
        noise_floor_above_20us=dataset.weighted_noise_floor(LONG_US),
        families={family: _family_facts(dataset, family) for family in _own_families(dataset)},
        measured=_model_metrics([accuracy(first_runs[names[0]]).measured], [None], [None]),
        truth=truth_of(
            first_runs[champion].unseen_us[judged_models],
            np.array([dataset.models[i].latency_us for i in judged_models]),
            [dataset.models[i].measured_us for i in judged_models],
        ),
    )
    return Evaluation(report, calibrations, best=ranked[0], held_out=first_runs, distances=held_out_distances)


def _mape(result: PredictorResult) -> float:
    """Returns the mean absolute relative error of a predictor over models with every layer predicted.

    It is the error over sequences if no model was measured whole, and infinite if there was nothing to judge.
    """
    return next((mape for mape in (result.model_unseen.mape, result.layer.mape) if mape is not None), float("inf"))


def _own_families(dataset: Dataset) -> list[str]:
    """Returns the families that have rows of the system itself, in alphabetical order."""
    own = (of_row for of_row, borrowed in zip(dataset.families, dataset.borrowed, strict=True) if not borrowed)
    return sorted({family for of_row in own for family in of_row})


def _family_facts(dataset: Dataset, family: str) -> FamilyFacts:
    real = ~dataset.sampled & ~dataset.whole & ~dataset.borrowed
    own = [f for f, is_real in zip(dataset.families, real, strict=True) if family in f and is_real]
    shared = sum(len(f) > 1 for f in own)
    return FamilyFacts(
        models=sum(model.family == family for model in dataset.models),
        sequences=len(own),
        shared_with_other_families=shared / len(own) if own else 0.0,
    )


def _score(
    dataset: Dataset, judged: Sequence[HeldOutWithDistances], level: float
) -> tuple[PredictorResult, Calibration]:
    """Returns a predictor's results, averaged over seeds, and its calibration by the errors with the first seed.

    Args:
        dataset: Measured sequences and models.
        judged: The predictor's predictions for held-out lineages with each seed.
        level: Nominal coverage of intervals.
    """
    runs = [of_seed.run for of_seed in judged]
    accuracies = [accuracy(run) for run in runs]
    covered = [of_seed.coverage(level) for of_seed in judged]
    uncertain = standard_errors([model.measured_us for model in dataset.models])
    layer = _mean_errors([of_seed.layer for of_seed in accuracies])
    result = PredictorResult(
        layer=LayerMetrics(
            mape=layer.mape,
            weighted_mape=layer.weighted_mape,
            within_10pct=layer.within_10pct,
            kendall_tau=layer.kendall_tau,
            interval_coverage=_mean([of_seed.layer for of_seed in covered]),
            interval_half_width=_mean([of_seed.layer_width for of_seed in covered]),
            weighted_mape_above_20us=_mean([_weighted_mape_above(run, LONG_US) for run in runs]),
        ),
        model=_model_metrics(
            [of_seed.model for of_seed in accuracies],
            [of_seed.model for of_seed in covered],
            [of_seed.model_width for of_seed in covered],
        ),
        model_unseen=_model_metrics(
            [of_seed.model_unseen for of_seed in accuracies],
            [of_seed.model_unseen for of_seed in covered],
            [of_seed.model_unseen_width for of_seed in covered],
        ),
        operators=_by_operator(runs),
        sizes=_by_size(runs),
        distances=_by_distance(runs, judged[0].distances),
        models=tuple(
            ModelResult(
                model=model.name,
                family=model.family,
                latency_us=model.latency_us,
                sum_us=float(dataset.latencies_us[model.rows].sum()),
                predicted_us=float(np.mean([run.composed_us[i] for run in runs])),
                unseen_us=float(np.mean([run.unseen_us[i] for run in runs])),
                known_share=float(dataset.known_elsewhere[i].mean()),
                latency_error=None if uncertain is None else float(uncertain[1][i]),
            )
            for i, model in enumerate(dataset.models)
        ),
    )
    return result, judged[0].calibrate(level)


def _model_metrics(
    errors: Sequence[Errors], covered: Sequence[float | None], half_widths: Sequence[float | None]
) -> ModelMetrics:
    """Returns the metrics of a predictor over models, averaged over seeds.

    Args:
        errors: Errors over models with each seed.
        covered: Share of the models inside their intervals, with each seed.
        half_widths: Mean half-width of these intervals in log latency, with each seed.
    """
    mean = _mean_errors(errors)
    return ModelMetrics(
        mape=mean.mape,
        within_5pct=mean.within_5pct,
        within_10pct=mean.within_10pct,
        kendall_tau=mean.kendall_tau,
        interval_coverage=_mean(covered),
        interval_half_width=_mean(half_widths),
        percentile_95=mean.percentile_95,
        macro_mape=mean.macro_mape,
    )


def _weighted_mape_above(run: HeldOut, least_us: float) -> float | None:
    """Returns the error of sequences that take longer than `least_us`, weighted by their latency."""
    measured = run.dataset.latencies_us[run.judged]
    long = measured > least_us
    return errors_of(run.rows_us[run.judged][long], measured[long]).weighted_mape


def _by_operator(runs: Sequence[HeldOut]) -> dict[str, ClassErrors]:
    """Returns the errors of single layers by operator, starting with the operator that takes the most time in total."""
    dataset = runs[0].dataset
    rows: dict[str, list[int]] = {}
    for row in runs[0].judged.tolist():
        if dataset.encoded.lengths[row] == 1:
            rows.setdefault(dataset.kinds[row], []).append(row)
    by_time = sorted(rows.items(), key=lambda item: -dataset.latencies_us[item[1]].sum())
    return {kind: _class_errors(runs, np.array(of_kind)) for kind, of_kind in by_time}


def _by_size(runs: Sequence[HeldOut]) -> tuple[SizeErrors, ...]:
    """Returns the errors of sequences in each range of measured latencies."""
    judged = runs[0].judged
    return tuple(
        SizeErrors(low, high, _class_errors(runs, rows))
        for low, high, rows in _ranges(judged, runs[0].dataset.latencies_us[judged], _SIZES_US)
    )


def _by_distance(runs: Sequence[HeldOut], held_out_distances: Distances) -> DistanceResult:
    """Returns the errors of sequences in each range of distances, and the rank correlation of distance and error.

    Args:
        runs: Predictions for held-out lineages with each seed; the rank correlation is that of the first seed.
        held_out_distances: Distances of the sequences to the training data.
    """
    run = runs[0]
    of_rows = held_out_distances.rows[run.judged]
    sizes = np.abs(np.log(run.dataset.latencies_us[run.judged] / run.rows_us[run.judged]))
    return DistanceResult(
        rank_correlation(of_rows, sizes),
        tuple(
            DistanceErrors(low, high, _class_errors(runs, rows))
            for low, high, rows in _ranges(run.judged, of_rows, (0.0, *DISTANCES, float("inf")))
        ),
    )


def _ranges(
    rows: np.ndarray, values: np.ndarray, limits: Sequence[float]
) -> Iterator[tuple[float, float | None, np.ndarray]]:
    """Yields the lower and the upper limit of each range, and the rows whose values lie inside.

    Args:
        rows: Rows of the data set.
        values: Value of each of these rows.
        limits: Limits of the ranges in ascending order; an infinite upper limit is yielded as None.
    """
    for low, high in pairwise(limits):
        yield low, None if np.isinf(high) else high, rows[(values >= low) & (values < high)]


def _class_errors(runs: Sequence[HeldOut], rows: np.ndarray) -> ClassErrors:
    measured = runs[0].dataset.latencies_us[rows]
    mean = _mean_errors([errors_of(run.rows_us[rows], measured) for run in runs])
    return ClassErrors(len(rows), float(measured.sum()), mean.mape, mean.weighted_mape, mean.within_10pct)


def _mean_errors(of_seeds: Sequence[Errors]) -> Errors:
    return Errors(
        **{error.name: _mean([getattr(errors, error.name) for errors in of_seeds]) for error in fields(Errors)}
    )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return float(np.mean(known)) if known else None
