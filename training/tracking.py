"""Tracking: the only file that knows MLflow.

Every trained bundle is a run of one experiment, and a version of its system's registered model; the alias `champion`
is on the version that answers. MLflow keeps the record, the bundles decide: nothing here is read to predict.
"""

import contextlib
import logging
import os
import re
import shlex
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from costmodel.errors import CostModelError, MissingExtraError

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
# What makes MLflow show a run beneath another.
_PARENT = "mlflow.parentRunId"
_SEARCH_ERROR = "search_error"

# While a run is recorded, where the user has not said otherwise: MLflow's own patience with a server that is down is
# four minutes, and it prints addresses on standard output, which belongs to `--json`.
_MANNERS = MappingProxyType({
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
})  # fmt: skip
# A new store, or a second attempt, is worth no lines on the user's terminal.
_CHATTY = MappingProxyType({"mlflow": logging.WARNING, "alembic": logging.WARNING, "urllib3": logging.ERROR})


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
    figures: Mapping[str, Path | bytes] = MappingProxyType({}),
    champion: bool,
) -> str:
    """Record one trained bundle: a run, and a version of its system's model.

    Args:
        folder: Where the default store lives; ignored when MLFLOW_TRACKING_URI says otherwise.
        system: That it was trained for.
        run_name: For people.
        parameters: What the regressor was told.
        metrics: Numbers to compare runs by.
        tags: Data fingerprint, schema fingerprint, split: of the run and of the version.
        artefacts: The bundle's folder, copied into the run.
        documents: JSON documents to store with the run, by file name.
        figures: Pictures to store with the run, by file name.
        champion: Whether it answers now, so that the alias moves to it.

    Returns:
        The run's id.

    Raises:
        CostModelError: The tracking store cannot be used.
    """
    tags = {"system": system, **tags}
    with _recording(folder) as (client, experiment):
        run = client.create_run(experiment, run_name=run_name, tags=tags)
        run_id, status = str(run.info.run_id), "FAILED"
        try:
            at = int(time.time() * 1000)
            client.log_batch(
                run_id,
                metrics=[Metric(name, value, at, 0) for name, value in metrics.items()],
                params=[Param(name, str(value)) for name, value in parameters.items()],
            )
            client.log_artifacts(run_id, str(artefacts), _BUNDLE)
            for name, document in documents.items():
                client.log_dict(run_id, dict(document), name)
            _log_figures(client, run_id, figures)
            _register(client, system, run_id, f"{run.info.artifact_uri}/{_BUNDLE}", tags, champion=champion)
            status = "FINISHED"
        finally:
            client.set_terminated(run_id, status)
    return run_id


def track_trials(folder: Path, run_id: str, system: str, trials: Iterable["Trial"]) -> None:
    """Record the trials of a search as runs nested in that of the bundle which they led to.

    Args:
        folder: As in `track`.
        run_id: Of the bundle's run, as `track` returned it.
        system: That it was trained for.
        trials: Each becomes a run; one that was given up is a killed run.

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
    """What a system's registered model is called; a system's name has no character that MLflow refuses."""
    return f"costmodel-{system}"


def where_to_look(folder: Path) -> str:
    """A sentence for people: how to see the runs that `track` records."""
    uri = os.environ.get("MLFLOW_TRACKING_URI")
    if uri:
        return f"the run is in MLflow at {_without_password(uri)}"
    return f"to see the run: mlflow ui --backend-store-uri {shlex.quote(_default_uri(folder))}"


def _default_uri(folder: Path) -> str:
    return f"sqlite:///{(folder / 'mlflow.db').resolve()}"


def _open(folder: Path) -> tuple[MlflowClient, str]:
    """The tracking store and the id of our experiment in it, which is made if need be."""
    uri, artifacts = os.environ.get("MLFLOW_TRACKING_URI"), None
    if not uri:
        folder.mkdir(parents=True, exist_ok=True)
        uri = _default_uri(folder)
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


@contextlib.contextmanager
def _recording(folder: Path) -> Iterator[tuple[MlflowClient, str]]:
    """The tracking store and our experiment in it, to be written to.

    Raises:
        CostModelError: It cannot be used.
    """
    try:
        # A client of our own: MLflow's fluent functions remember one store for the whole process.
        with _manners():
            yield _open(folder)
    except Exception as error:  # a store may be a plug-in, a driver or a cloud's own client, with errors of its own
        raise CostModelError(
            f"the training run is not in MLflow as a whole ({_without_password(str(error))}): "
            f"check MLFLOW_TRACKING_URI, or the folder {folder}"
        ) from error


def _log_figures(client: MlflowClient, run_id: str, figures: Mapping[str, Path | bytes]) -> None:
    if not figures:
        return
    with tempfile.TemporaryDirectory() as folder:
        for name, figure in figures.items():
            (Path(folder) / name).write_bytes(figure.read_bytes() if isinstance(figure, Path) else figure)
        client.log_artifacts(run_id, folder, _FIGURES)


def _register(
    client: MlflowClient, system: str, run_id: str, source: str, tags: Mapping[str, str], *, champion: bool
) -> None:
    """Make the run's bundle a version of the system's model.

    Its source is the folder as it was logged: MLflow's own model formats would add a pickle, or a second copy.
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


@contextlib.contextmanager
def _manners() -> Iterator[None]:
    """What MLflow is told through the environment and by log levels; both are then as they were."""
    ours = [name for name in _MANNERS if name not in os.environ]
    levels = {name: logging.getLogger(name).level for name in _CHATTY}
    os.environ.update({name: _MANNERS[name] for name in ours})
    for name, level in _CHATTY.items():
        logging.getLogger(name).setLevel(level)
    try:
        yield
    finally:
        for name in ours:
            os.environ.pop(name, None)
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)


def _without_password(text: str) -> str:
    return re.sub(r"(?<=//)[^/@\s]+(?=@)", "***", text)
