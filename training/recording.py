"""What is recorded of a trained bundle: parameters, fingerprints, metrics, figures, and the search that led to it."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from costmodel.features.schema import SCHEMA
from costmodel.training.dataset import Dataset
from costmodel.training.run_figures import run_figures

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
    report: Mapping[str, Any],
    found: "Search | None" = None,
) -> str:
    """Record a bundle, and beneath it the trials of a search, and return the run's id.

    Args:
        folder: Where the default store lives.
        name: Of the predictor.
        version: Of the bundle.
        bundle: Its folder.
        settings: What the predictor was told.
        dataset: It was trained on.
        report: The document of `costmodel evaluate`.
        found: The search for its hyperparameters, if there was one.

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
            "split": report["split"],
            "predictor": name,
            "version": version,
        },
        artefacts=bundle,
        documents={"evaluation.json": report, **({"search.json": found.to_dict()} if found else {})},
        figures=run_figures(report, name),
        champion=name == report["champion"],
    )
    if found is not None:
        track_trials(folder, run_id, system, found.trials)
    return run_id


def _flat_metrics(report: Mapping[str, Any]) -> dict[str, float]:
    flat = {
        f"{name}.{part}.{key}": float(value)
        for name, result in report["predictors"].items()
        for part in ("layer", "model", "model_unseen")
        for key, value in result[part].items()
        if value is not None and np.isfinite(value)
    }
    if report["noise_floor_mape"] is not None:
        flat["noise_floor_mape"] = report["noise_floor_mape"]
    return flat
