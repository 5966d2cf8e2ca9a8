"""The figure of a training run, which shows every held-out model."""

import sys
from dataclasses import replace

import pytest

from costmodel.training.dataset import Dataset
from costmodel.training.evaluation.evaluation import evaluate
from costmodel.training.evaluation.results import EvaluationReport
from costmodel.training.evaluation.run_figures import figures_of_run
from costmodel.training.regressors.baselines import RooflineRegressor
from tests.synthetic import MEASURED


def _report(dataset: Dataset) -> EvaluationReport:
    return evaluate(dataset, seeds=(0,), predictors={"roofline": lambda seed: RooflineRegressor()}).report


def test_every_held_out_model_is_in_the_picture(dataset: Dataset) -> None:
    """The figure shows a dot for each held-out model, names some, and says which predictor and system it shows."""
    ((name, picture),) = figures_of_run(_report(dataset), "roofline").items()
    assert name == "held_out_models.svg"
    text = picture.decode()
    assert "roofline on made.up, lineages left out" in text
    assert f" of {len(MEASURED)} models within 10%" in text
    assert any(model in text for model in MEASURED)


def test_what_cannot_be_drawn_is_left_out(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without whole models or matplotlib, training continues without the figure."""
    assert figures_of_run(_report(replace(dataset, models=())), "roofline") == {}
    report = _report(dataset)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert figures_of_run(report, "roofline") == {}
