"""The figure that is stored with the record of a training run."""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from costmodel.errors import MissingExtraError
from costmodel.training.figures import predictions

__all__ = ["run_figures"]


def run_figures(report: Mapping[str, Any], name: str) -> dict[str, bytes]:
    """How far a predictor is off for each model of a family left out, as SVG by file name.

    Args:
        report: The document of `costmodel evaluate`.
        name: Of the predictor.

    Returns:
        Nothing where no model was measured whole, or matplotlib (extra `plots`) is not installed.
    """
    models = report["predictors"][name]["models"]
    if not models:
        return {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "held_out_models.svg"
        try:
            predictions(path, f"{name} on {report['system']}, families left out", models)
        except MissingExtraError:  # a record without a figure is a record
            return {}
        return {path.name: path.read_bytes()}
