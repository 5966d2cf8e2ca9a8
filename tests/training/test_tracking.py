"""Training runs in MLflow: where they are recorded, and with which content."""

import os
import shlex
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from costmodel.errors import CostModelError
from costmodel.training.regressors.lightgbm_regressor import DEFAULTS
from costmodel.training.search import Trial
from costmodel.training.tracking import CHAMPION, EXPERIMENT, model_name, track, track_trials, where_to_look
from tests.synthetic import MLFLOW_DEPRECATION, put_tracking_store

pytestmark = pytest.mark.filterwarnings(f"ignore:{MLFLOW_DEPRECATION}:DeprecationWarning")


@pytest.fixture
def folder(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an empty tracking store, selected by its path alone."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return put_tracking_store(tmp_path_factory.getbasetemp(), tmp_path / "mlruns")


def _client(folder: Path) -> MlflowClient:
    return MlflowClient(tracking_uri=f"sqlite:///{folder / 'mlflow.db'}")


def _track(folder: Path, name: str = "lightgbm made.up", **given: Any) -> str:
    artefacts = folder.parent / "bundle"
    artefacts.mkdir(exist_ok=True)
    (artefacts / "card.json").write_text("{}")
    return track(
        folder,
        run_name=name,
        parameters={"learning_rate": 0.05, "objective": "fair"},
        metrics={"lightgbm.model.mape": 0.04},
        tags={"data_fingerprint": "abc"},
        artefacts=artefacts,
        documents={"evaluation.json": {"champion": "lightgbm"}},
        **{"system": "made.up", "champion": True, **given},
    )


def test_a_run_is_recorded_in_the_folder(folder: Path) -> None:
    """Parameters, metrics, tags, artefact and evaluation are all recorded in `mlruns/`."""
    run = _client(folder).get_run(_track(folder))
    assert (run.info.run_name, run.info.status) == ("lightgbm made.up", "FINISHED")
    assert run.data.params == {"learning_rate": "0.05", "objective": "fair"}
    assert run.data.metrics == {"lightgbm.model.mape": 0.04}
    assert (run.data.tags["system"], run.data.tags["data_fingerprint"]) == ("made.up", "abc")
    root = folder / "artifacts" / run.info.run_id / "artifacts"
    assert run.info.artifact_uri == root.as_uri()
    assert (root / "artefact" / "card.json").read_text() == "{}"
    assert '"champion"' in (root / "evaluation.json").read_text()


def test_runs_of_one_folder_are_one_experiment(folder: Path) -> None:
    """Runs of one folder are one experiment, so that they can be compared."""
    ids = {_track(folder, name) for name in ("first", "second")}
    experiment = _client(folder).get_experiment_by_name(EXPERIMENT)
    assert experiment is not None
    assert {run.info.run_id for run in _client(folder).search_runs([experiment.experiment_id])} == ids


def test_another_folder_is_another_store_in_the_same_process(
    folder: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Recording leaves no environment variable, active run or cached store in the process."""
    before = dict(os.environ)
    _track(folder)
    other = put_tracking_store(tmp_path_factory.getbasetemp(), tmp_path / "elsewhere" / "mlruns")
    assert _client(other).get_run(_track(other)).info.artifact_uri.startswith(other.as_uri())
    assert dict(os.environ) == before


def test_the_users_tracking_store_is_respected(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With MLFLOW_TRACKING_URI set, the run is recorded there and the default folder is not created."""
    monkeypatch.chdir(tmp_path)  # MLflow writes artefacts of a plain database store into the working folder
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{folder / 'mlflow.db'}")
    (tmp_path / "home").mkdir()
    ours = tmp_path / "home" / "mlruns"
    run_id = _track(ours)
    assert _client(folder).get_run(run_id).info.status == "FINISHED"
    assert not ours.exists()


def test_a_store_that_cannot_be_used_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unusable tracking store is one sentence that says what to check."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    (tmp_path / "mlruns").touch()
    with pytest.raises(CostModelError, match=r"not completely recorded .*: check MLFLOW_TRACKING_URI, or the folder"):
        _track(tmp_path / "mlruns")


def test_figures_are_stored_by_name(folder: Path) -> None:
    """Figures are stored under their names, byte for byte."""
    figures = {"errors.svg": b"<svg/>", "scatter.svg": "<svg>\n\u00b5s</svg>\n".encode()}
    run_id = _track(folder, figures=figures)
    stored = folder / "artifacts" / run_id / "artifacts" / "figures"
    assert {path.name: path.read_bytes() for path in stored.iterdir()} == figures


def test_every_bundle_is_a_version_and_one_is_the_champion(folder: Path) -> None:
    """Every bundle is a model version; the champion alias moves only on promotion."""
    client, name = _client(folder), model_name("made.up")
    for run_name, champion, expected in (("first", True, 1), ("loser", False, 1), ("better", True, 3)):
        _track(folder, run_name, champion=champion)
        assert int(client.get_model_version_by_alias(name, CHAMPION).version) == expected
    assert len(client.search_model_versions(f"name='{name}'")) == 3


def test_a_version_says_where_its_bundle_is(folder: Path) -> None:
    """A version refers to the bundle's folder in the run, without pickle or MLflow model format, and has its tags."""
    run_id = _track(folder)
    version = _client(folder).get_model_version_by_alias(model_name("made.up"), CHAMPION)
    assert (version.run_id, version.status) == (run_id, "READY")
    assert version.source == (folder / "artifacts" / run_id / "artifacts" / "artefact").as_uri()
    assert version.tags["data_fingerprint"] == "abc"


def test_systems_have_models_of_their_own(folder: Path) -> None:
    """Each system has its own registered model, and every valid system name is valid in MLflow."""
    client = _client(folder)
    for system in ("made.up", "C5.xlarge_2", "a" * 64):
        _track(folder, system, system=system)
        assert int(client.get_model_version_by_alias(model_name(system), CHAMPION).version) == 1


def test_trials_are_nested_runs(folder: Path) -> None:
    """Each trial is a child run of the bundle's run with its hyperparameters, error per fold and time."""
    run_id = _track(folder)
    began = datetime(2026, 11, 21, 12, tzinfo=UTC)
    trials = [
        Trial(number, DEFAULTS, errors, pruned, began, began + timedelta(seconds=7))
        for number, errors, pruned in ((0, (0.3, 0.2), False), (1, (0.4,), True))
    ]
    track_trials(folder, run_id, "made.up", trials)
    client = _client(folder)
    experiment = client.get_experiment_by_name(EXPERIMENT)
    assert experiment is not None
    nested = f"tags.`mlflow.parentRunId` = '{run_id}'"
    first, second = client.search_runs([experiment.experiment_id], nested, order_by=["attributes.run_name"])
    assert [run.info.run_name for run in (first, second)] == ["trial 0", "trial 1"]
    assert [run.info.status for run in (first, second)] == ["FINISHED", "KILLED"]
    assert first.data.params == {name: str(value) for name, value in DEFAULTS.to_dict().items()}
    assert first.info.end_time - first.info.start_time == 7000
    history = client.get_metric_history(first.info.run_id, "search_error")
    assert [(metric.step, metric.value) for metric in history] == [(0, 0.3), (1, 0.2)]


def test_where_to_look_is_one_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The printed command can be pasted into a shell, and shows a server's address without its password."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    folder = tmp_path / "my runs"
    words = shlex.split(where_to_look(folder).partition(": ")[2])
    assert words == ["mlflow", "ui", "--backend-store-uri", f"sqlite:///{folder / 'mlflow.db'}"]
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "https://me:secret@mlflow.example.org")
    assert where_to_look(folder) == "the run is in MLflow at https://***@mlflow.example.org"
