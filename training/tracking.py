"""Tracking: the only file that knows MLflow."""

import logging
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from costmodel.errors import CostModelError, MissingExtraError

try:
    from mlflow import MlflowClient, MlflowException
    from mlflow.entities import Metric, Param
except ModuleNotFoundError as error:
    raise MissingExtraError("tracking", "train") from error

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

    Raises:
        CostModelError: The tracking store cannot be used.
    """
    for chatty in ("mlflow", "alembic"):  # a new store is worth no lines on the user's terminal
        logging.getLogger(chatty).setLevel(logging.WARNING)
    try:
        # A client of our own: MLflow's fluent functions remember one store for the whole process.
        client, experiment = _open(folder)
        run_id = str(client.create_run(experiment, run_name=run_name, tags=dict(tags)).info.run_id)
        status = "FAILED"
        try:
            at = int(time.time() * 1000)
            client.log_batch(
                run_id,
                metrics=[Metric(name, value, at, 0) for name, value in metrics.items()],
                params=[Param(name, str(value)) for name, value in parameters.items()],
            )
            client.log_artifacts(run_id, str(artefacts), "artefact")
            for name, document in documents.items():
                client.log_dict(run_id, dict(document), name)
            status = "FINISHED"
        finally:
            client.set_terminated(run_id, status)
    except (MlflowException, OSError) as error:
        raise CostModelError(
            f"the training run is not in MLflow ({error}): check MLFLOW_TRACKING_URI, or the folder {folder}"
        ) from error
    return run_id


def _open(folder: Path) -> tuple[MlflowClient, str]:
    """The tracking store and the id of our experiment in it, which is made if need be."""
    uri, artifacts = os.environ.get("MLFLOW_TRACKING_URI"), None
    if not uri:
        folder.mkdir(parents=True, exist_ok=True)
        uri = f"sqlite:///{(folder / 'mlflow.db').resolve()}"
        artifacts = (folder / "artifacts").resolve().as_uri()
    client = MlflowClient(tracking_uri=uri)
    found = client.get_experiment_by_name(EXPERIMENT)
    if found is None:
        try:
            return client, str(client.create_experiment(EXPERIMENT, artifact_location=artifacts))
        except MlflowException:
            found = client.get_experiment_by_name(EXPERIMENT)
            if found is None:  # else another process was faster
                raise
    return client, str(found.experiment_id)
