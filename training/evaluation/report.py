"""Writes the report of an evaluation: a folder with its document, tables and figures."""

import csv
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from costmodel.progress import Progress
from costmodel.training.evaluation import figures
from costmodel.training.evaluation.evaluation import Evaluation
from costmodel.training.evaluation.intervals import HeldOutWithDistances, coverage_by_level
from costmodel.training.evaluation.learning_curve import learning_curve
from costmodel.training.regressors.registry import REGRESSORS, Regressor
from costmodel.units import format_us

__all__ = ["family_errors", "full_report", "write_report"]

# Number of operators in the figure.
_OPERATORS = 20


def full_report(
    evaluation: Evaluation,
    *,
    predictors: Mapping[str, Callable[[int], Regressor]] = REGRESSORS,
    jobs: int = 1,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Returns the document of an evaluation with two slower parts: `coverage` and `learning_curve` of the champion.

    If the champion is the graph neural network, the learning curve is that of LightGBM, which shows in far less time
    what the data lack.

    Args:
        evaluation: Evaluation of a data set.
        predictors: Makers of regressors by name.
        jobs: Number of splits that are evaluated in parallel.
        progress: Called with (done, total, what is next).
    """
    report = evaluation.report
    run = evaluation.held_out[report["champion"]]
    curve_predictor = "lightgbm" if report["champion"] == "gnn" else report["champion"]
    points = learning_curve(
        run.dataset, predictors[curve_predictor], seeds=report["seeds"], jobs=jobs, progress=progress
    )
    return {
        **report,
        "coverage": coverage_by_level(HeldOutWithDistances(run, evaluation.distances)),
        "learning_curve": {"predictor": curve_predictor, "points": points},
    }


def write_report(folder: Path, report: Mapping[str, Any]) -> None:
    """Writes `evaluation.json`, and its results for the champion as tables and figures.

    Args:
        folder: Folder to write to, created if it does not exist; files of an earlier report are replaced.
        report: Document that `full_report` returned.

    Raises:
        MissingExtraError: Matplotlib (extra `plots`) is not installed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "evaluation.json").write_text(json.dumps(report, indent=1, allow_nan=False) + "\n")
    name = report["champion"]
    result = report["predictors"][name]
    subtitle = f"{name} on {report['system']}, {report['split']}"
    _write_predictors(folder, report["predictors"])
    _write_csv(folder / "sizes.csv", result["sizes"])
    _write_csv(folder / "distances.csv", result["distances"]["ranges"])
    _write_csv(folder / "operators.csv", [{"operator": kind, **errors} for kind, errors in result["operators"].items()])
    operators = dict(list(result["operators"].items())[:_OPERATORS])
    sizes = {_latency_range(size["from_us"], size["to_us"]): size for size in result["sizes"] if size["layers"]}
    ranges = result["distances"]["ranges"]
    distances = {_distance_range(of["from"], of["to"]): of for of in ranges if of["layers"]}
    for class_name, title, classes, all_of_them in (
        ("operators", "Layers by operator, most time first", operators, result["operators"].values()),
        ("sizes", "Sequences by how long they take", sizes, result["sizes"]),
        ("distances", "Sequences by how far they lie from what was trained on", distances, ranges),
    ):
        if classes:  # there are none where only whole models are measured
            time_us = sum(errors["latency_us"] for errors in all_of_them)
            figures.shares_and_errors(folder / f"{class_name}.svg", f"{title}\n{subtitle}", classes, time_us)
    if result["models"]:
        _write_csv(folder / "models.csv", result["models"])
        figures.predictions(folder / "predictions.svg", f"Models of families left out\n{subtitle}", result["models"])
        rows = family_errors(result["models"])
        _write_csv(folder / "families.csv", rows)
        figures.families(folder / "families.svg", f"Error by family\n{subtitle}", rows)
    _write_csv(folder / "coverage.csv", report["coverage"])
    if all(point[key] is not None for point in report["coverage"] for key in ("model", "model_unseen")):
        figures.coverage(folder / "coverage.svg", f"Do intervals keep their promise?\n{subtitle}", report["coverage"])
    points = report["learning_curve"]["points"]
    curve_subtitle = f"{report['learning_curve']['predictor']} on {report['system']}"
    _write_csv(folder / "learning_curve.csv", points)
    key, label = ("model_unseen", "mean error of models") if result["models"] else ("layer", "mean error of layers")
    figures.learning_curve(
        folder / "learning_curve.svg", f"What more data brings\n{curve_subtitle}", points, key, label
    )


def family_errors(models: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Returns the mean absolute relative errors of the models of each family, the largest first.

    Args:
        models: Models of a report.

    Returns:
        For each family `family`, `models` (their number), and as fractions the errors `unseen` (every layer predicted),
        `predicted` (layers measured where another family has them) and `sum` (every layer measured).
    """
    of_families: dict[str, list[Mapping[str, Any]]] = {}
    for model in models:
        of_families.setdefault(model["family"], []).append(model)
    rows = [
        {
            "family": family,
            "models": len(own),
            **{
                key: float(np.mean([abs(model[f"{key}_us"] / model["latency_us"] - 1) for model in own]))
                for key in ("unseen", "predicted", "sum")
            },
        }
        for family, own in of_families.items()
    ]
    return sorted(rows, key=lambda row: -float(row["unseen"]))


def _latency_range(low_us: float, high_us: float | None) -> str:
    if high_us is None:
        return f"over {_short(low_us)}"
    return f"{_short(low_us)} to {_short(high_us)}" if low_us else f"under {_short(high_us)}"


def _distance_range(low: float, high: float | None) -> str:
    return "operator never measured" if high is None else f"{low:g} to {high:g}"


def _short(latency_us: float) -> str:
    number, _, unit = format_us(latency_us).partition(" ")
    return f"{float(number):g} {unit}"


def _write_predictors(folder: Path, predictors: Mapping[str, Any]) -> None:
    """Writes a line for each predictor and part: layers, models, and models with every layer predicted."""
    _write_csv(
        folder / "predictors.csv",
        [
            {"predictor": name, "of": part, **{key: result[part].get(key) for key in _metric_names(predictors)}}
            for name, result in predictors.items()
            for part in ("layer", "model", "model_unseen")
        ],
    )


def _metric_names(predictors: Mapping[str, Any]) -> Sequence[str]:
    parts = (result[part] for result in predictors.values() for part in ("layer", "model"))
    return list(dict.fromkeys(key for part in parts for key in part))


def _write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(rows[0] if rows else ())
        writer.writerows([f"{cell:.6g}" if isinstance(cell, float) else cell for cell in row.values()] for row in rows)
