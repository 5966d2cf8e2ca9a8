"""Training runs on a real tracking server on this host."""

import io
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
from mlflow import MlflowClient

from costmodel.errors import CostModelError
from costmodel.store.store import Store
from costmodel.training.regressors.registry import LEARNERS
from costmodel.training.tracking import CHAMPION, EXPERIMENT, model_name, track
from costmodel.training.train import TrainReport, train_system
from tests.synthetic import SYSTEM, put_tracking_store


def _free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


def _wait_for(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(600):
        assert process.poll() is None, log.read_text()
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    raise AssertionError(log.read_text())


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of an `mlflow server` with its own database and artefact folder; always stopped at the end."""
    root = tmp_path_factory.mktemp("server")
    database = put_tracking_store(tmp_path_factory.getbasetemp(), root / "store") / "mlflow.db"
    port, log = _free_port(), root / "log"
    url = f"http://127.0.0.1:{port}"
    command = [
        sys.executable, "-m", "mlflow", "server", "--backend-store-uri", f"sqlite:///{database}", "--serve-artifacts",
        "--artifacts-destination", str(root / "artifacts"), "--port", str(port), "--workers", "1",
    ]  # fmt: skip
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=root, stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
            env={**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"},
        )  # fmt: skip
        try:
            _wait_for(url, process, log)
            yield url
        finally:
            os.killpg(process.pid, signal.SIGKILL)  # its workers are in its process group
            process.wait()


@pytest.fixture(scope="module")
def client(server: str) -> MlflowClient:
    """MLflow client of the server."""
    return MlflowClient(tracking_uri=server)


@pytest.fixture(scope="module")
def report(server: str, store: Store, tmp_path_factory: pytest.TempPathFactory) -> TrainReport:
    """Report of a training run that is recorded on the server."""
    home, printed = tmp_path_factory.mktemp("trained-with-server"), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(printed), redirect_stderr(printed):
        patch.setenv("MLFLOW_TRACKING_URI", server)
        two = {name: LEARNERS[name] for name in ("lightgbm", "log_linear")}
        report = train_system(
            store, SYSTEM.name, home / "regressors", tracking=home / "mlruns", seeds=(1,), learners=two
        )
    # MLflow's own output would corrupt the document of `costmodel train --json`.
    assert printed.getvalue() == ""
    assert not (home / "mlruns").exists()
    return report


def test_every_regressor_is_recorded_on_the_server(client: MlflowClient, report: TrainReport) -> None:
    """Each regressor is a complete run of one experiment, with parameters, metrics and tags."""
    assert len(report.others) == 1
    for one in (report.champion, *report.others):
        run = client.get_run(one.run_id)
        assert run.info.status == "FINISHED"
        assert (run.data.tags["predictor"], run.data.tags["version"]) == (one.name, one.version)
        assert run.data.tags["split"] == "leave-one-lineage-out"
        assert run.data.metrics[f"{one.name}.model_unseen.mape"] > 0
        assert client.get_experiment(run.info.experiment_id).name == EXPERIMENT
        assert ("objective" in run.data.params) == (one.name == "lightgbm")


def test_the_artefact_comes_back_as_it_was(client: MlflowClient, report: TrainReport, tmp_path: Path) -> None:
    """Every file of the bundle is downloaded byte for byte."""
    got = Path(client.download_artifacts(report.run_id, "artefact", str(tmp_path)))
    assert {path.name: path.read_bytes() for path in got.iterdir()} == {
        path.name: path.read_bytes() for path in report.path.iterdir()
    }


def test_the_alias_names_the_version_that_answers(client: MlflowClient, report: TrainReport) -> None:
    """Every regressor is a version of the system's model, and the promoted one has the champion alias."""
    name = model_name(SYSTEM.name)
    versions = client.search_model_versions(f"name='{name}'")
    assert {version.run_id for version in versions} == {one.run_id for one in (report.champion, *report.others)}
    champion = client.get_model_version_by_alias(name, CHAMPION)
    assert (champion.run_id, champion.status) == (report.run_id, "READY")
    assert champion.tags["version"] == report.version
    assert champion.source == f"{client.get_run(champion.run_id).info.artifact_uri}/artefact"


def test_a_server_that_is_down_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """An unreachable server fails within seconds with what to check, without the password."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://me:secret@127.0.0.1:{_free_port()}")
    with pytest.raises(CostModelError, match=r"not completely recorded .*: check MLFLOW_TRACKING_URI") as raised:
        track(
            tmp_path / "mlruns",
            system=SYSTEM.name,
            run_name="lost",
            parameters={},
            metrics={},
            tags={},
            artefacts=tmp_path,
            documents={},
            champion=True,
        )
    assert "secret" not in str(raised.value)
    assert capfd.readouterr() == ("", "")
