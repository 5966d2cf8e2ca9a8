"""Training runs in MLflow: where they are recorded, and what is in them."""

import os
from pathlib import Path

import pytest
from mlflow import MlflowClient

from costmodel.errors import CostModelError
from costmodel.training.tracking import EXPERIMENT, track
from tests.synthetic import MLFLOW_DEPRECATION, put_tracking_store

pytestmark = pytest.mark.filterwarnings(f"ignore:{MLFLOW_DEPRECATION}:DeprecationWarning")


@pytest.fixture
def folder(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an empty tracking store, which nothing but its name points to."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return put_tracking_store(tmp_path_factory.getbasetemp(), tmp_path / "mlruns")


def _client(folder: Path) -> MlflowClient:
    return MlflowClient(tracking_uri=f"sqlite:///{folder / 'mlflow.db'}")


def _track(folder: Path, name: str = "lightgbm made.up") -> str:
    artefacts = folder.parent / "bundle"
    artefacts.mkdir(exist_ok=True)
    (artefacts / "card.json").write_text("{}")
    return track(
        folder,
        run_name=name,
        parameters={"learning_rate": 0.05, "objective": "regression_l1"},
        metrics={"lightgbm.model.mape": 0.04},
        tags={"system": "made.up"},
        artefacts=artefacts,
        documents={"evaluation.json": {"champion": "lightgbm"}},
    )


def test_a_run_is_recorded_in_the_folder(folder: Path) -> None:
    """Parameters, metrics, tags, the artefact and the evaluation, all inside `mlruns/`."""
    run = _client(folder).get_run(_track(folder))
    assert (run.info.run_name, run.info.status) == ("lightgbm made.up", "FINISHED")
    assert run.data.params == {"learning_rate": "0.05", "objective": "regression_l1"}
    assert run.data.metrics == {"lightgbm.model.mape": 0.04}
    assert run.data.tags["system"] == "made.up"
    root = folder / "artifacts" / run.info.run_id / "artifacts"
    assert run.info.artifact_uri == root.as_uri()
    assert (root / "artefact" / "card.json").read_text() == "{}"
    assert '"champion"' in (root / "evaluation.json").read_text()


def test_runs_of_one_folder_are_one_experiment(folder: Path) -> None:
    """So that they can be compared."""
    ids = {_track(folder, name) for name in ("first", "second")}
    experiment = _client(folder).get_experiment_by_name(EXPERIMENT)
    assert experiment is not None
    assert {run.info.run_id for run in _client(folder).search_runs([experiment.experiment_id])} == ids


def test_another_folder_is_another_store_in_the_same_process(
    folder: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Recording a run leaves nothing behind in the process: no variable, no active run, no remembered store."""
    before = dict(os.environ)
    _track(folder)
    other = put_tracking_store(tmp_path_factory.getbasetemp(), tmp_path / "elsewhere" / "mlruns")
    assert _client(other).get_run(_track(other)).info.artifact_uri.startswith(other.as_uri())
    assert dict(os.environ) == before


def test_the_users_tracking_store_is_respected(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With MLFLOW_TRACKING_URI set, the run goes there and our own folder is not even made."""
    monkeypatch.chdir(tmp_path)  # MLflow puts artefacts of a plain database into the working folder
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{folder / 'mlflow.db'}")
    (tmp_path / "home").mkdir()
    ours = tmp_path / "home" / "mlruns"
    run_id = _track(ours)
    assert _client(folder).get_run(run_id).info.status == "FINISHED"
    assert not ours.exists()


def test_a_store_that_cannot_be_used_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says what to check."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    (tmp_path / "mlruns").touch()
    with pytest.raises(CostModelError, match=r"is not in MLflow .*: check MLFLOW_TRACKING_URI, or the folder"):
        _track(tmp_path / "mlruns")
