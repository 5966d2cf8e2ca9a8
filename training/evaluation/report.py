"""Completes the report of an evaluation, and writes it to a folder as a JSON document, tables and figures."""

import csv
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from costmodel.progress import Progress
from costmodel.training.evaluation import figures
from costmodel.training.evaluation.evaluation import Evaluation
from costmodel.training.evaluation.intervals import CoveragePoint, HeldOutWithDistances, coverage_by_level
from costmodel.training.evaluation.learning_curve import LearningCurve, learning_curve
from costmodel.training.evaluation.results import (
    EvaluationReport,
    FamilyErrors,
    LayerMetrics,
    ModelMetrics,
    ModelResult,
    PredictorResult,
)
from costmodel.training.regressors.learner import Regressor
from costmodel.training.regressors.registry import REGRESSORS
from costmodel.units import format_us

__all__ = ["FullReport", "family_errors", "full_report", "write_report"]

# Number of operators in the figure.
_OPERATORS = 20
_MOST_FAMILIES = 50  # in the figure; the table has all


@dataclass(frozen=True)
class FullReport:
    """A report of an evaluation with two parts that take longer to compute: interval coverage and a learning curve.

    Attributes:
        evaluation: Results of all predictors.
        coverage: Coverage of the champion's intervals at each nominal coverage, the lowest first.
        learning_curve: Learning curve of the champion, or of a faster predictor if the champion takes too long.
    """

    evaluation: EvaluationReport
    coverage: tuple[CoveragePoint, ...]
    learning_curve: LearningCurve

    def to_dict(self) -> dict[str, Any]:
        """Returns the JSON document that `costmodel evaluate --out DIR --json` prints."""
        return {
            **self.evaluation.to_dict(),
            "coverage": [asdict(point) for point in self.coverage],
            "learning_curve": asdict(self.learning_curve),
        }


def full_report(
    evaluation: Evaluation,
    *,
    predictors: Mapping[str, Callable[[int], Regressor]] = REGRESSORS,
    jobs: int = 1,
    progress: Progress | None = None,
) -> FullReport:
    """Completes the report of an evaluation with the coverage of the champion's intervals and a learning curve.

    The learning curve is that of the champion. If the champion is the graph neural network, it is that of LightGBM
    instead, which shows in far less time what the data lack.

    Args:
        evaluation: Evaluation of a data set.
        predictors: Functions that make a predictor from a seed, by name.
        jobs: Number of splits that are evaluated in parallel.
        progress: Called with (points of the learning curve done, points in total, a label of the next point).
    """
    report = evaluation.report
    run = evaluation.held_out[report.champion]
    curve_predictor = "lightgbm" if report.champion == "gnn" else report.champion
    points = learning_curve(run.dataset, predictors[curve_predictor], seeds=report.seeds, jobs=jobs, progress=progress)
    coverage = coverage_by_level(HeldOutWithDistances(run, evaluation.distances))
    return FullReport(report, coverage, LearningCurve(curve_predictor, points))


def write_report(folder: Path, report: FullReport) -> None:
    """Writes a report to a folder: `evaluation.json`, a table of all predictors, and the champion's tables and figures.

    Args:
        folder: Folder to write to, created if it does not exist; files of an earlier report are replaced.
        report: Report to write.

    Raises:
        MissingExtraError: Matplotlib (extra `plots`) is not installed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "evaluation.json").write_text(json.dumps(report.to_dict(), indent=1, allow_nan=False) + "\n")
    evaluation = report.evaluation
    result = evaluation.predictors[evaluation.champion]
    subtitle = f"{evaluation.champion} on {evaluation.system}, {evaluation.split}"
    _write_predictors(folder, evaluation)
    _write_classes(folder, result, subtitle)
    if result.models:
        _write_csv(folder / "models.csv", [asdict(model) for model in result.models])
        figures.predictions(folder / "predictions.svg", f"Models of lineages left out\n{subtitle}", result.models)
        families = family_errors(result.models)
        _write_csv(folder / "families.csv", [asdict(family) for family in families])
        some = f": the {_MOST_FAMILIES} largest of {len(families)}" if len(families) > _MOST_FAMILIES else ""
        title = f"Error by lineage{some}\n{subtitle}"
        figures.families(folder / "families.svg", title, families[:_MOST_FAMILIES])
    _write_csv(folder / "coverage.csv", [asdict(point) for point in report.coverage])
    if all(point.model is not None and point.model_unseen is not None for point in report.coverage):
        figures.coverage(folder / "coverage.svg", f"Do intervals keep their promise?\n{subtitle}", report.coverage)
    curve = report.learning_curve
    _write_csv(folder / "learning_curve.csv", [asdict(point) for point in curve.points])
    figures.learning_curve(
        folder / "learning_curve.svg",
        f"What more data brings\n{curve.predictor} on {evaluation.system}",
        curve.points,
        np.array([point.model_unseen if result.models else point.layer for point in curve.points], dtype=np.float64),
        "mean error of models" if result.models else "mean error of layers",
    )


def _write_classes(folder: Path, result: PredictorResult, subtitle: str) -> None:
    """Writes a predictor's errors by operator, by size and by distance as tables and figures.

    Args:
        folder: Folder to write to.
        result: Results of the predictor.
        subtitle: Second line of the title of each figure.
    """
    sizes, distances = result.sizes, result.distances.ranges
    _write_csv(folder / "sizes.csv", [size.to_dict() for size in sizes])
    _write_csv(folder / "distances.csv", [distance.to_dict() for distance in distances])
    _write_csv(
        folder / "operators.csv",
        [{"operator": operator, **asdict(errors)} for operator, errors in result.operators.items()],
    )
    for class_name, title, classes, all_of_them in (
        (
            "operators",
            "Layers by operator, most time first",
            dict(list(result.operators.items())[:_OPERATORS]),
            list(result.operators.values()),
        ),
        (
            "sizes",
            "Sequences by how long they take",
            {_latency_range(size.from_us, size.to_us): size.errors for size in sizes if size.errors.layers},
            [size.errors for size in sizes],
        ),
        (
            "distances",
            "Sequences by how far they lie from what was trained on",
            {_distance_range(of.from_distance, of.to_distance): of.errors for of in distances if of.errors.layers},
            [of.errors for of in distances],
        ),
    ):
        if classes:  # there are none where only whole models are measured
            time_us = sum(errors.latency_us for errors in all_of_them)
            figures.shares_and_errors(folder / f"{class_name}.svg", f"{title}\n{subtitle}", classes, time_us)


def family_errors(models: Iterable[ModelResult]) -> list[FamilyErrors]:
    """Computes the mean errors of the models of each family; the family with the largest error is first.

    Args:
        models: Results of the models in a report.
    """
    of_families: dict[str, list[ModelResult]] = {}
    for model in models:
        of_families.setdefault(model.family, []).append(model)
    errors = [
        FamilyErrors(
            family=family,
            models=len(own),
            unseen=_mean_error((model.unseen_us, model.latency_us) for model in own),
            predicted=_mean_error((model.predicted_us, model.latency_us) for model in own),
            sum=_mean_error((model.sum_us, model.latency_us) for model in own),
        )
        for family, own in of_families.items()
    ]
    return sorted(errors, key=lambda family: -family.unseen)


def _mean_error(pairs: Iterable[tuple[float, float]]) -> float:
    """Returns the mean absolute relative error of (estimate, measurement) pairs."""
    return float(np.mean([abs(estimated / measured - 1) for estimated, measured in pairs]))


def _latency_range(low_us: float, high_us: float | None) -> str:
    if high_us is None:
        return f"over {_short(low_us)}"
    return f"{_short(low_us)} to {_short(high_us)}" if low_us else f"under {_short(high_us)}"


def _distance_range(low: float, high: float | None) -> str:
    return "operator never measured" if high is None else f"{low:g} to {high:g}"


def _short(latency_us: float) -> str:
    number, _, unit = format_us(latency_us).partition(" ")
    return f"{float(number):g} {unit}"


def _write_predictors(folder: Path, report: EvaluationReport) -> None:
    """Writes a table of each predictor's metrics over layers, over models, and over models with all costs predicted."""
    metric_names = dict.fromkeys(field.name for metrics in (LayerMetrics, ModelMetrics) for field in fields(metrics))
    _write_csv(
        folder / "predictors.csv",
        [
            {"predictor": name, "of": part, **{metric: getattr(metrics, metric, None) for metric in metric_names}}
            for name, result in report.predictors.items()
            for part, metrics in result.parts.items()
        ],
    )


def _write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(rows[0] if rows else ())
        writer.writerows([f"{cell:.6g}" if isinstance(cell, float) else cell for cell in row.values()] for row in rows)
