"""Draws the figure that is stored in MLflow with a training run."""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from costmodel.errors import MissingExtraError
from costmodel.training.evaluation.figures import predictions

__all__ = ["figures_of_run"]


def figures_of_run(report: Mapping[str, Any], name: str) -> dict[str, bytes]:
    """Draws the errors of a predictor for each model of the held-out families.

    Args:
        report: The document of `costmodel evaluate`.
        name: Name of the predictor.

    Returns:
        SVG figures by file name; empty if no model was measured whole, or if matplotlib (extra `plots`) is not
        installed.
    """
    models = report["predictors"][name]["models"]
    if not models:
        return {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "held_out_models.svg"
        try:
            predictions(path, f"{name} on {report['system']}, families left out", models)
        except MissingExtraError:  # a run is recorded even without its figure
            return {}
        return {path.name: path.read_bytes()}
