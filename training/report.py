"""The folder of an evaluation: its document, tables, and figures."""

import csv
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from costmodel.training import figures
from costmodel.training.evaluation import Evaluation
from costmodel.training.intervals import Judged, coverage_by_level
from costmodel.training.learning_curve import learning_curve
from costmodel.training.regressors import REGRESSORS, Regressor
from costmodel.units import format_us

__all__ = ["family_errors", "full_report", "write_report"]

_OPERATORS = 20


def full_report(
    evaluation: Evaluation,
    *,
    predictors: Mapping[str, Callable[[int], Regressor]] = REGRESSORS,
    jobs: int = 1,
    progress: Callable[[int, int, str], None] | None = None,
) -> dict[str, Any]:
    """The document of an evaluation, with what takes longer: the champion's `coverage` and its `learning_curve`.

    A graph neural network has the learning curve of LightGBM: that shows what the data lack, in far less time.

    Args:
        evaluation: Of a data set.
        predictors: Makers of regressors by name.
        jobs: Splits at once.
        progress: Told (done, total, what is next).
    """
    report = evaluation.report
    run = evaluation.held_out[report["champion"]]
    of = "lightgbm" if report["champion"] == "gnn" else report["champion"]
    points = learning_curve(run.dataset, predictors[of], seeds=report["seeds"], jobs=jobs, progress=progress)
    return {
        **report,
        "coverage": coverage_by_level(Judged(run, evaluation.distances)),
        "learning_curve": {"predictor": of, "points": points},
    }


def write_report(folder: Path, report: Mapping[str, Any]) -> None:
    """Write `evaluation.json`, and what it says of the champion as tables and figures.

    Args:
        folder: Made if need be; what it held of an earlier report is replaced.
        report: As `full_report` makes it.

    Raises:
        MissingExtraError: What draws figures is not installed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "evaluation.json").write_text(json.dumps(report, indent=1, allow_nan=False) + "\n")
    name = report["champion"]
    result = report["predictors"][name]
    where = f"{name} on {report['system']}, {report['split']}"
    _write_predictors(folder, report["predictors"])
    _write(folder / "sizes.csv", result["sizes"])
    _write(folder / "distances.csv", result["distances"]["ranges"])
    _write(folder / "operators.csv", [{"operator": kind, **errors} for kind, errors in result["operators"].items()])
    operators = dict(list(result["operators"].items())[:_OPERATORS])
    sizes = {_range(size["from_us"], size["to_us"]): size for size in result["sizes"] if size["layers"]}
    ranges = result["distances"]["ranges"]
    distances = {_apart(of["from"], of["to"]): of for of in ranges if of["layers"]}
    for what, title, classes, all_of_them in (
        ("operators", "Layers by operator, most time first", operators, result["operators"].values()),
        ("sizes", "Sequences by how long they take", sizes, result["sizes"]),
        ("distances", "Sequences by how far they lie from what was trained on", distances, ranges),
    ):
        if classes:  # none where only whole models are measured
            time_us = sum(errors["latency_us"] for errors in all_of_them)
            figures.shares_and_errors(folder / f"{what}.svg", f"{title}\n{where}", classes, time_us)
    if result["models"]:
        _write(folder / "models.csv", result["models"])
        figures.predictions(folder / "predictions.svg", f"Models of families left out\n{where}", result["models"])
        rows = family_errors(result["models"])
        _write(folder / "families.csv", rows)
        figures.families(folder / "families.svg", f"Error by family\n{where}", rows)
    _write(folder / "coverage.csv", report["coverage"])
    if all(point[key] is not None for point in report["coverage"] for key in ("model", "model_unseen")):
        figures.coverage(folder / "coverage.svg", f"Do intervals keep their promise?\n{where}", report["coverage"])
    points = report["learning_curve"]["points"]
    what = f"{report['learning_curve']['predictor']} on {report['system']}"
    _write(folder / "learning_curve.csv", points)
    key, label = ("model_unseen", "mean error of models") if result["models"] else ("layer", "mean error of layers")
    figures.learning_curve(folder / "learning_curve.svg", f"What more data brings\n{what}", points, key, label)


def family_errors(models: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """For each family, the mean absolute relative error of its models, the largest first.

    Args:
        models: As a report lists them.

    Returns:
        `family`, `models` (how many), `unseen` (every layer predicted), `predicted` (as the product answers) and `sum`
        (the layers measured), in fractions.
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


def _range(low_us: float, high_us: float | None) -> str:
    if high_us is None:
        return f"over {_short(low_us)}"
    return f"{_short(low_us)} to {_short(high_us)}" if low_us else f"under {_short(high_us)}"


def _apart(low: float, high: float | None) -> str:
    return "operator never measured" if high is None else f"{low:g} to {high:g}"


def _short(latency_us: float) -> str:
    number, _, unit = format_us(latency_us).partition(" ")
    return f"{float(number):g} {unit}"


def _write_predictors(folder: Path, predictors: Mapping[str, Any]) -> None:
    """A line for each predictor and part: layers, models, models with every layer unseen."""
    _write(
        folder / "predictors.csv",
        [
            {"predictor": name, "of": part, **{key: result[part].get(key) for key in _keys(predictors)}}
            for name, result in predictors.items()
            for part in ("layer", "model", "model_unseen")
        ],
    )


def _keys(predictors: Mapping[str, Any]) -> Sequence[str]:
    parts = (result[part] for result in predictors.values() for part in ("layer", "model"))
    return list(dict.fromkeys(key for part in parts for key in part))


def _write(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(rows[0] if rows else ())
        writer.writerows([f"{cell:.6g}" if isinstance(cell, float) else cell for cell in row.values()] for row in rows)
