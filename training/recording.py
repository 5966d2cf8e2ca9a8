"""Records a trained bundle in MLflow: settings, fingerprints, metrics, figures, and its hyperparameter search."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from costmodel.features.schema import SCHEMA
from costmodel.training.dataset import Dataset
from costmodel.training.evaluation.results import EvaluationReport
from costmodel.training.evaluation.run_figures import figures_of_run

if TYPE_CHECKING:
    from costmodel.training.search import Search

__all__ = ["record"]


def record(
    folder: Path,
    *,
    name: str,
    version: str,
    bundle: Path,
    settings: Mapping[str, object],
    dataset: Dataset,
    report: EvaluationReport,
    found: "Search | None" = None,
) -> str:
    """Records a bundle as an MLflow run, with the trials of a search as nested runs, and returns the id of the run.

    Args:
        folder: Folder of MLflow's default store.
        name: Name of the regressor.
        version: Version of the bundle.
        bundle: Folder of the bundle.
        settings: Settings of the regressor.
        dataset: Data set that the regressor was trained on.
        report: Report of the evaluation.
        found: Result of the hyperparameter search that chose the settings; None if there was none.

    Raises:
        CostModelError: The tracking store cannot be used.
    """
    from costmodel.training.tracking import track, track_trials  # MLflow takes seconds to import

    system = dataset.system.name
    run_id = track(
        folder,
        system=system,
        run_name=f"{name} {system} {version}",
        parameters=settings,
        metrics=_flat_metrics(report),
        tags={
            "data_fingerprint": dataset.fingerprint,
            "schema_fingerprint": SCHEMA.fingerprint,
            "split": report.split,
            "predictor": name,
            "version": version,
        },
        artefacts=bundle,
        documents={"evaluation.json": report.to_dict(), **({"search.json": found.to_dict()} if found else {})},
        figures=figures_of_run(report, name),
        champion=name == report.champion,
    )
    if found is not None:
        track_trials(folder, run_id, system, found.trials)
    return run_id


def _flat_metrics(report: EvaluationReport) -> dict[str, float]:
    """Returns the finite metrics of all predictors by names such as "lightgbm.model_unseen.mape"."""
    flat = {
        f"{name}.{part}.{metric}": float(value)
        for name, result in report.predictors.items()
        for part, metrics in result.parts.items()
        for metric, value in asdict(metrics).items()
        if value is not None and np.isfinite(value)
    }
    if report.noise_floor_mape is not None:
        flat["noise_floor_mape"] = report.noise_floor_mape
    return flat
