"""Records trained bundles in MLflow; no other module uses MLflow.

Every trained bundle is recorded as a run of one experiment and as a version of the registered model of its system; the
alias `champion` points to the version that is the champion. MLflow only keeps records: predictions read the bundles and
nothing from MLflow.
"""

import contextlib
import logging
import os
import re
import shlex
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from costmodel.errors import CostModelError, MissingExtraError
from costmodel.process_state import environment_variables, log_levels

try:
    from mlflow import MlflowClient, MlflowException
    from mlflow.entities import Metric, Param
except ModuleNotFoundError as error:
    raise MissingExtraError("tracking", "train") from error

if TYPE_CHECKING:
    from costmodel.training.search import Trial

__all__ = ["CHAMPION", "EXPERIMENT", "model_name", "track", "track_trials", "where_to_look"]

EXPERIMENT = "costmodel"
CHAMPION = "champion"
_BUNDLE, _FIGURES = "artefact", "figures"
# Tag by which MLflow nests a run beneath another.
_PARENT = "mlflow.parentRunId"
_SEARCH_ERROR = "search_error"

# Environment variables that are set while a run is recorded, unless the user has set them: by default MLflow retries a
# server that is down for four minutes, and prints addresses on standard output, which belongs to `--json`.
_ENVIRONMENT = MappingProxyType({
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
})  # fmt: skip
# Log levels while a run is recorded: new stores and retries are not reported to the user.
_LOG_LEVELS = MappingProxyType({"mlflow": logging.WARNING, "alembic": logging.WARNING, "urllib3": logging.ERROR})


def track(
    folder: Path,
    *,
    system: str,
    run_name: str,
    parameters: Mapping[str, Any],
    metrics: Mapping[str, float],
    tags: Mapping[str, str],
    artefacts: Path,
    documents: Mapping[str, Any],
    figures: Mapping[str, bytes] = MappingProxyType({}),
    champion: bool,
) -> str:
    """Records one trained bundle as an MLflow run and as a version of its system's registered model.

    Args:
        folder: Folder of the default store; ignored if MLFLOW_TRACKING_URI is set.
        system: Name of the system that the bundle was trained for.
        run_name: Name of the run, for people.
        parameters: Settings of the regressor.
        metrics: Metrics to compare runs by.
        tags: Tags of the run and of the model version, such as data fingerprint, schema fingerprint and split.
        artefacts: Folder of the bundle, which is copied into the run.
        documents: JSON documents to store with the run, by file name.
        figures: SVG figures to store with the run, by file name.
        champion: Whether the bundle is the new champion, so that the alias `champion` moves to its model version.

    Returns:
        Id of the run.

    Raises:
        CostModelError: The tracking store cannot be used.
    """
    tags = {"system": system, **tags}
    with _recording(folder) as (client, experiment):
        run = client.create_run(experiment, run_name=run_name, tags=tags)
        run_id, status = str(run.info.run_id), "FAILED"
        try:
            timestamp_ms = int(time.time() * 1000)
            client.log_batch(
                run_id,
                metrics=[Metric(name, value, timestamp_ms, 0) for name, value in metrics.items()],
                params=[Param(name, str(value)) for name, value in parameters.items()],
            )
            client.log_artifacts(run_id, str(artefacts), _BUNDLE)
            for name, document in documents.items():
                client.log_dict(run_id, dict(document), name)
            for name, figure in figures.items():
                client.log_text(run_id, figure.decode(), f"{_FIGURES}/{name}")
            _register(client, system, run_id, f"{run.info.artifact_uri}/{_BUNDLE}", tags, champion=champion)
            status = "FINISHED"
        finally:
            client.set_terminated(run_id, status)
    return run_id


def track_trials(folder: Path, run_id: str, system: str, trials: Iterable["Trial"]) -> None:
    """Records the trials of a hyperparameter search as MLflow runs that are nested in the run of a bundle.

    Args:
        folder: Folder of the default store; ignored if MLFLOW_TRACKING_URI is set.
        run_id: Id of the bundle's run, as `track` returned it.
        system: Name of the system that the bundle was trained for.
        trials: Trials, each of which becomes a run; the run of a pruned trial has the status of a killed run.

    Raises:
        CostModelError: The tracking store cannot be used.
    """
    with _recording(folder) as (client, experiment):
        for trial in trials:
            began, ended = (int(moment.timestamp() * 1000) for moment in (trial.began, trial.ended))
            tags = {"system": system, _PARENT: run_id, "pruned": str(trial.pruned).lower()}
            run = client.create_run(experiment, start_time=began, run_name=f"trial {trial.number}", tags=tags)
            client.log_batch(
                run.info.run_id,
                metrics=[Metric(_SEARCH_ERROR, error, ended, fold) for fold, error in enumerate(trial.errors)],
                params=[Param(name, str(value)) for name, value in trial.hyperparameters.to_dict().items()],
            )
            client.set_terminated(run.info.run_id, "KILLED" if trial.pruned else "FINISHED", end_time=ended)


def model_name(system: str) -> str:
    """Returns the name of a system's registered model in MLflow.

    Names of systems contain no character that MLflow rejects.
    """
    return f"costmodel-{system}"


def where_to_look(folder: Path) -> str:
    """Returns a sentence for people that says how to see the runs that `track` records in MLflow."""
    uri = os.environ.get("MLFLOW_TRACKING_URI")
    if uri:
        return f"the run is in MLflow at {_without_password(uri)}"
    return f"to see the run: mlflow ui --backend-store-uri {shlex.quote(_default_uri(folder))}"


def _default_uri(folder: Path) -> str:
    return f"sqlite:///{(folder / 'mlflow.db').resolve()}"


def _open(folder: Path) -> tuple[MlflowClient, str]:
    """Opens the tracking store, and returns a client of it and the id of costmodel's experiment.

    The experiment is created if it does not exist.
    """
    uri, artifacts = os.environ.get("MLFLOW_TRACKING_URI"), None
    if not uri:
        folder.mkdir(parents=True, exist_ok=True)
        uri = _default_uri(folder)
        artifacts = (folder / "artifacts").resolve().as_uri()
    client = MlflowClient(tracking_uri=uri)
    experiment = client.get_experiment_by_name(EXPERIMENT)
    if experiment is None:
        try:
            return client, str(client.create_experiment(EXPERIMENT, artifact_location=artifacts))
        except MlflowException:
            experiment = client.get_experiment_by_name(EXPERIMENT)
            if experiment is None:  # otherwise another process has created it in the meantime
                raise
    return client, str(experiment.experiment_id)


@contextlib.contextmanager
def _recording(folder: Path) -> Iterator[tuple[MlflowClient, str]]:
    """Opens the tracking store for writing, and yields a client of it and the id of costmodel's experiment.

    Raises:
        CostModelError: The tracking store cannot be used.
    """
    try:
        # A client instead of MLflow's fluent functions, which keep one store for the whole process.
        unset = {name: value for name, value in _ENVIRONMENT.items() if name not in os.environ}
        with environment_variables(unset), log_levels(_LOG_LEVELS):
            yield _open(folder)
    except Exception as error:  # a store may be a plug-in, a driver or a cloud client, each with its own error classes
        raise CostModelError(
            f"the training run was not completely recorded in MLflow ({_without_password(str(error))}): "
            f"check MLFLOW_TRACKING_URI, or the folder {folder}"
        ) from error


def _register(
    client: MlflowClient, system: str, run_id: str, source: str, tags: Mapping[str, str], *, champion: bool
) -> None:
    """Makes the bundle of a run a version of the registered model of its system.

    The source of the version is the folder that was logged with the run: MLflow's own model formats would add a pickle,
    or a second copy. The alias `champion` moves to the version if the bundle is the champion.
    """
    name = model_name(system)
    try:
        client.create_registered_model(name)
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise
    version = client.create_model_version(name, source, run_id, tags=dict(tags), await_creation_for=0)
    if champion:
        client.set_registered_model_alias(name, CHAMPION, version.version)


def _without_password(text: str) -> str:
    return re.sub(r"(?<=//)[^/@\s]+(?=@)", "***", text)
