"""The folder of an evaluation report: figures, and tables with the same numbers."""

import csv
import json
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from costmodel.training.dataset import Dataset
from costmodel.training.evaluation.evaluation import evaluate
from costmodel.training.evaluation.intervals import LEVELS, HeldOutWithDistances, coverage_by_level
from costmodel.training.evaluation.learning_curve import REDUCTIONS, SHARES, learning_curve
from costmodel.training.evaluation.report import FullReport, family_errors, full_report, write_report
from costmodel.training.evaluation.results import FamilyErrors, ModelResult
from costmodel.training.regressors.baselines import RooflineRegressor
from tests.synthetic import LINEAGES, MEASURED

CHEAP = {"roofline": lambda seed: RooflineRegressor()}
FIGURES = {"coverage", "distances", "families", "learning_curve", "operators", "predictions", "sizes"}


def _report(dataset: Dataset) -> FullReport:
    evaluation = evaluate(dataset, seeds=(0, 1), predictors=CHEAP)
    return full_report(evaluation, predictors=CHEAP)


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def _words(path: Path) -> list[str]:
    return [str(text.text).strip() for text in ElementTree.parse(path).iter() if text.tag.endswith("}text")]


@pytest.fixture(scope="module")
def report(dataset: Dataset) -> FullReport:
    """A report of the roofline, which is fast to evaluate."""
    return _report(dataset)


@pytest.fixture(scope="module")
def folder(report: FullReport, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the report."""
    folder = tmp_path_factory.mktemp("evaluation") / "out"
    write_report(folder, report)
    return folder


def test_the_document_is_there_and_every_figure_has_a_table(folder: Path, report: FullReport) -> None:
    """The folder has the JSON document, and a table for every figure."""
    assert json.loads((folder / "evaluation.json").read_text()) == json.loads(json.dumps(report.to_dict()))
    assert {path.stem for path in folder.glob("*.svg")} == FIGURES
    assert {path.stem for path in folder.glob("*.csv")} == {*FIGURES - {"predictions"}, "models", "predictors"}
    assert all(_rows(path) for path in folder.glob("*.csv"))


def test_figures_say_whose_they_are(folder: Path) -> None:
    """The title of each figure names predictor and system."""
    for path in folder.glob("*.svg"):
        assert any("roofline on made.up" in text for text in _words(path)), path


def test_the_same_report_is_the_same_folder(folder: Path, report: FullReport, tmp_path: Path) -> None:
    """Equal reports give byte-identical folders, so that a diff shows real changes only."""
    write_report(tmp_path, report)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {
        path.name: path.read_bytes() for path in folder.iterdir()
    }


def test_families_stand_with_what_even_measured_layers_miss(folder: Path) -> None:
    """Families are sorted by error, with their number of models and the error of summed measured layers."""
    rows = _rows(folder / "families.csv")
    assert {row["family"] for row in rows} == set(LINEAGES)
    errors = [float(row["unseen"]) for row in rows]
    assert errors == sorted(errors, reverse=True)
    assert all(float(row["sum"]) <= 0.031 for row in rows)  # by construction of the synthetic latencies
    assert f"{rows[0]['family']} ({rows[0]['models']})" in _words(folder / "families.svg")


def test_the_figure_of_many_families_shows_the_largest_errors(report: FullReport, tmp_path: Path) -> None:
    """The figure names how many there are; the table has all of them."""
    evaluation = report.evaluation
    result = evaluation.predictors[evaluation.champion]
    models = tuple(
        ModelResult(f"m{i}", f"f{i}", latency_us=100, unseen_us=100 + i, predicted_us=100, sum_us=100, known_share=0)
        for i in range(60)
    )
    predictors = {**evaluation.predictors, evaluation.champion: replace(result, models=models)}
    write_report(tmp_path, replace(report, evaluation=replace(evaluation, predictors=predictors)))
    words = _words(tmp_path / "families.svg")
    assert any("the 50 largest of 60" in text for text in words)
    assert "f59 (1)" in words
    assert "f9 (1)" not in words
    assert len(_rows(tmp_path / "families.csv")) == 60


def test_family_errors_are_means_over_their_models() -> None:
    """The error of a family is the mean absolute error of its models."""
    models = [
        ModelResult("a1", "a", latency_us=100, unseen_us=120, predicted_us=90, sum_us=100, known_share=0),
        ModelResult("a2", "a", latency_us=100, unseen_us=90, predicted_us=100, sum_us=102, known_share=0),
        ModelResult("b1", "b", latency_us=10, unseen_us=15, predicted_us=10, sum_us=10, known_share=0),
    ]
    b, a = family_errors(models)
    assert b == FamilyErrors("b", models=1, unseen=0.5, predicted=0, sum=0)
    assert (a.family, a.models) == ("a", 2)
    assert (a.unseen, a.predicted, a.sum) == pytest.approx((0.15, 0.05, 0.01))


def test_the_farthest_off_are_named(folder: Path, report: FullReport) -> None:
    """The worst models are labelled in the figure, except where labels would overlap; the very worst always is."""
    models = report.evaluation.predictors["roofline"].models
    worst = max(models, key=lambda model: abs(np.log(model.unseen_us / model.latency_us)))
    named = set(_words(folder / "predictions.svg")) & set(MEASURED)
    assert worst.model in named
    assert len(named) > 1


def test_layers_are_listed_by_operator_and_size(folder: Path) -> None:
    """Empty classes of operator and size are not drawn."""
    assert "Conv" in _words(folder / "operators.svg")
    drawn = {text for text in _words(folder / "sizes.svg") if re.match("under|over|.* to ", text)}
    sizes = _rows(folder / "sizes.csv")
    assert len(drawn) == sum(size["layers"] != "0" for size in sizes)


def test_wider_intervals_hold_more(dataset: Dataset) -> None:
    """Coverage does not decrease with the level, except by a model: higher levels pool more distances."""
    evaluation = evaluate(dataset, seeds=(0,), predictors=CHEAP)
    points = coverage_by_level(HeldOutWithDistances(evaluation.held_out["roofline"], evaluation.distances))
    assert [point.level for point in points] == list(LEVELS)
    for shares in zip(*((point.model, point.model_unseen, point.layer) for point in points), strict=True):
        assert all(higher >= lower - 1 / len(MEASURED) - 1e-9 for lower, higher in pairwise(shares))
        assert 0 <= shares[0] <= shares[-1] <= 1


def test_a_learning_curve_holds_out_the_same_for_every_share(dataset: Dataset) -> None:
    """Curves by families and by rows hold out the same families, and meet at the full data."""
    reported: list[int] = []
    points = learning_curve(
        dataset, CHEAP["roofline"], seeds=(0, 1), folds=2, progress=lambda done, total, what: reported.append(done)
    )
    assert len(points) == 2 * len(SHARES) * 2
    assert reported == list(range(len(points) + 1))
    families, rows = ([point for point in points if (point.of, point.seed) == (of, 0)] for of in REDUCTIONS)
    for own in (families, rows):
        assert [point.share for point in own] == list(SHARES)
        assert all(np.diff([point.rows for point in own]) >= 0)
    assert replace(families[-1], of="rows") == rows[-1]
    assert families[1].families < rows[1].families
    assert all(point.model_unseen is not None and point.model_unseen > 0 for point in points)


def test_a_learning_curve_never_trains_on_nothing(dataset: Dataset) -> None:
    """Where the families are so small that a tenth of them has no layer, more of them are trained on."""
    families = tuple(frozenset({f"family {row // 3}"}) for row in range(len(dataset)))
    small = replace(dataset, families=families, sampled=np.zeros(len(dataset), dtype=bool), models=())
    points = learning_curve(small, CHEAP["roofline"], seeds=(0,), folds=2, shares=(0.001,))
    assert all(20 <= point.rows < 24 and point.layer is not None for point in points)


def test_without_whole_models_layers_are_drawn(dataset: Dataset, tmp_path: Path) -> None:
    """Without whole models, the figures show layers only."""
    write_report(tmp_path, _report(replace(dataset, models=())))
    assert {path.stem for path in tmp_path.glob("*.svg")} == {"distances", "learning_curve", "operators", "sizes"}
    assert "mean error of layers" in _words(tmp_path / "learning_curve.svg")
