"""`costmodel extender` as a process."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.shell import Run

POD = {"metadata": {"name": "p", "annotations": {"costmodel.dev/model": "sha256:" + "0" * 64}}}
NODE = {"metadata": {"name": "a", "labels": {"costmodel.dev/system": "lake"}}}


def test_the_scheduler_is_answered_without_a_service(tmp_path: Path) -> None:
    """The process starts and answers although nothing runs at the address of the service, and ends on SIGTERM."""
    process = subprocess.Popen(
        [sys.executable, "-m", "costmodel", "extender", "--port", "0", "--json", "--server",
         "http://127.0.0.1:9"],
        env=os.environ | {"COSTMODEL_HOME": str(tmp_path)},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    output = ""
    for line in process.stdout:
        output += line
        if line == "}\n":
            break
    url = json.loads(output)["url"]
    answer = httpx.post(f"{url}/filter", json={"Pod": POD, "Nodes": {"items": [NODE]}}).json()
    assert answer == {
        "Nodes": {"items": [NODE]}, "NodeNames": None, "FailedNodes": {}, "FailedAndUnresolvableNodes": {}, "Error": "",
    }  # fmt: skip
    process.send_signal(signal.SIGTERM)
    _, log = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "run the same command again" not in log
    lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    (warning,) = (line for line in lines if line["message"] == "no predictions")
    assert warning["pod"] == "/p"
    assert "does not answer" in warning["error"]


@pytest.mark.parametrize(
    "options", [("--unknown", "drop"), ("--on-error", "retry"), ("--score", "speed"), ("--price", "lake")]
)
def test_wrong_usage(run: Run, tmp_path: Path, options: tuple[str, str]) -> None:
    """A value that an option does not have ends with status 2 before anything starts."""
    assert run(tmp_path, "extender", *options).code == 2


def test_the_server_is_a_url(run: Run, tmp_path: Path) -> None:
    """An address without a scheme is an error in one sentence."""
    done = run(tmp_path, "extender", "--server", "costmodel:8000")
    assert done.code == 1
    assert "is not the URL of a service" in done.err
