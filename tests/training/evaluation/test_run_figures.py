"""The figure of a training run, which shows every held-out model."""

import sys
from typing import Any

import pytest

from costmodel.training.evaluation.run_figures import figures_of_run

MODELS = [
    {"model": "alexnet", "latency_us": 100.0, "predicted_us": 104.0, "unseen_us": 120.0},
    {"model": "vgg", "latency_us": 200.0, "predicted_us": 190.0, "unseen_us": 150.0},
]


def _report(models: list[dict[str, Any]]) -> dict[str, Any]:
    return {"system": "made.up", "predictors": {"lightgbm": {"models": models}}}


def test_every_held_out_model_is_in_the_picture() -> None:
    """The figure shows each held-out model, the name of the predictor and the system."""
    ((name, picture),) = figures_of_run(_report(MODELS), "lightgbm").items()
    assert name == "held_out_models.svg"
    text = picture.decode()
    for word in ("alexnet", "vgg", "lightgbm on made.up, families left out"):
        assert word in text


def test_what_cannot_be_drawn_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without whole models or matplotlib, training continues without the figure."""
    assert figures_of_run(_report([]), "lightgbm") == {}
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert figures_of_run(_report(MODELS), "lightgbm") == {}
