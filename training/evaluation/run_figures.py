"""Draws the figure of a predictor's errors that is stored with a training run in MLflow."""

import tempfile
from pathlib import Path

from costmodel.errors import MissingExtraError
from costmodel.training.evaluation.figures import predictions
from costmodel.training.evaluation.results import EvaluationReport

__all__ = ["figures_of_run"]


def figures_of_run(report: EvaluationReport, name: str) -> dict[str, bytes]:
    """Draws the predicted against the measured latency of models whose family was held out, for one predictor.

    Args:
        report: Report of an evaluation.
        name: Name of the predictor.

    Returns:
        The figure as SVG, by its file name; empty if no model was measured whole, or if matplotlib (extra `plots`) is
        not installed.
    """
    models = report.predictors[name].models
    if not models:
        return {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "held_out_models.svg"
        try:
            predictions(path, f"{name} on {report.system}, lineages left out", models)
        except MissingExtraError:  # a run is recorded even without its figure
            return {}
        return {path.name: path.read_bytes()}
