"""Tracking: the only file that knows MLflow."""

import logging
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import mlflow

__all__ = ["EXPERIMENT", "track"]

EXPERIMENT = "costmodel"


def track(
    folder: Path,
    *,
    run_name: str,
    parameters: Mapping[str, Any],
    metrics: Mapping[str, float],
    tags: Mapping[str, str],
    artefacts: Path,
    documents: Mapping[str, Any],
) -> str:
    """Record one training run.

    Args:
        folder: Where the default store lives; ignored when MLFLOW_TRACKING_URI says otherwise.
        run_name: For people.
        parameters: What the regressor was told.
        metrics: Numbers to compare runs by.
        tags: System, data fingerprint, schema fingerprint.
        artefacts: Folder to copy into the run.
        documents: JSON documents to store with the run, by file name.

    Returns:
        The run's id.
    """
    for chatty in ("mlflow", "alembic"):  # a new store is worth no lines on the user's terminal
        logging.getLogger(chatty).setLevel(logging.WARNING)
    if not os.environ.get("MLFLOW_TRACKING_URI"):
        folder.mkdir(parents=True, exist_ok=True)
        mlflow.set_tracking_uri(f"sqlite:///{(folder / 'mlflow.db').resolve()}")
        if mlflow.get_experiment_by_name(EXPERIMENT) is None:
            with suppress(mlflow.MlflowException):  # another process was faster
                mlflow.create_experiment(EXPERIMENT, artifact_location=(folder / "artifacts").resolve().as_uri())
    mlflow.set_experiment(EXPERIMENT)
    with mlflow.start_run(run_name=run_name) as run:
        mlflow.log_params(dict(parameters))
        mlflow.log_metrics(dict(metrics))
        mlflow.set_tags(dict(tags))
        mlflow.log_artifacts(str(artefacts), "artefact")
        for name, document in documents.items():
            mlflow.log_dict(document, name)
    return str(run.info.run_id)
