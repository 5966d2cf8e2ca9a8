"""`costmodel serve`, `token` and `drift`, and requests to a service from the command line."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import onnx
import psutil
import pytest
from onnx import ModelProto

from costmodel.client import Client
from costmodel.paths import Home
from tests.shell import Run
from tests.synthetic import SYSTEM


class _Service:
    """A running `costmodel serve` process."""

    def __init__(self, home: Home, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "costmodel", "serve", "--port", "0", "--json", *arguments],
            env=os.environ | {"COSTMODEL_HOME": str(home.root)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        output = ""
        for line in self.process.stdout:
            output += line
            if line == "}\n":
                break
        self.url = json.loads(output)["url"]

    def stop(self) -> str:
        """Stop the process with the operator's signal and return its log."""
        self.process.send_signal(signal.SIGTERM)
        _, log = self.process.communicate(timeout=60)
        return log


@pytest.fixture
def token(run: Run, own: Home) -> str:
    """A token made by `costmodel token`."""
    asked = ("token", "test", "--tokens", own.root / "tokens", "--scopes", "predict,observe,metrics", "--json")
    made = run(own, *asked).document
    assert made["name"] == "test"
    found: str = made["token"]
    return found


@pytest.fixture
def service(own: Home, token: str) -> Iterator[_Service]:
    """A service with two workers and tokens."""
    started = _Service(own, "--workers", "2", "--tokens", str(own.root / "tokens"))
    yield started
    if started.process.poll() is None:
        started.stop()


def test_a_service_is_asked_from_the_command_line(
    run: Run, own: Home, service: _Service, token: str, light_models: Mapping[str, Path], tmp_path: Path
) -> None:
    """The service's answers equal local ones, as table and document, and weights are not sent.

    Memory and start differ slightly: they depend on the lengths of names, which are not sent either.
    """
    local = run(own, "predict", light_models["resnet50"], "--system", SYSTEM.name, "--json").document
    asked = ("predict", light_models["resnet50"], "--system", SYSTEM.name, "--server", service.url, "--token", token)
    remote = run(tmp_path / "empty", *asked, "--json").document
    assert remote.pop("digest").startswith("sha256:")
    for name in ("peak_memory_bytes", "peak_memory_interval_bytes", "load_time_us", "load_time_interval_us"):
        assert remote.pop(name) == pytest.approx(local.pop(name), rel=0.05)
    assert remote == local
    assert "light_resnet50 on made.up" in run(tmp_path / "empty", *asked).out
    several = run(tmp_path / "empty", *asked, light_models["vgg19"], "--json").document
    assert [model["model"] for model in several["models"]] == ["light_resnet50", "light_vgg19"]
    refused = run(tmp_path / "empty", *asked[:-1], "cm_wrong")
    assert "send a token that the operator of this service gave you" in refused.sentence
    with Client(service.url, token=token) as client:
        client.observe(remote_digest := client.predict(light_models["vgg19"]).digest, 5e5, system=SYSTEM.name)
        assert remote_digest.startswith("sha256:")
    (drift,) = run(own, "drift", "--json").document["systems"]
    assert (drift["system"], drift["observations"]) == (SYSTEM.name, 1)
    shown = run(own, "drift").out
    assert "observed over predicted" in shown
    assert f"{drift['ratio']:.3f}" in shown
    log = [json.loads(line) for line in service.stop().splitlines() if line.startswith("{")]
    assert service.process.returncode == 0
    requests = [line for line in log if line["message"] == "request"]
    assert {line["status"] for line in requests} == {200, 201, 401, 404}
    assert {line.get("token") for line in requests if line["status"] < 300} == {"test"}


def test_weights_and_names_stay_here(
    run: Run, own: Home, service: _Service, token: str, parse: Callable[..., ModelProto], tmp_path: Path
) -> None:
    """The service receives and keeps only the structure of a model."""
    model = parse("(float[n, 512] pixels) => (float[n, 512] y) { y = MatMul(pixels, w) }", weights={"w": (512, 512)})
    (tmp_path / "mine.onnx").write_bytes(model.SerializeToString())
    asked = ("predict", tmp_path / "mine.onnx", "--server", service.url, "--token", token)
    document = run(tmp_path / "empty", *asked, "--shape", "pixels=1,512", "--json").document
    assert (document["model"], [layer["name"] for layer in document["layers"]]) == ("mine", ["y"])
    (kept,) = (own.data / "uploads").rglob("*.onnx")
    assert kept.stat().st_size < 1000 < (tmp_path / "mine.onnx").stat().st_size
    assert b"pixels" not in kept.read_bytes()
    unknown = run(tmp_path / "empty", *asked, "--shape", "pixels=1,512,3")
    assert "input pixels has 2 dimensions" in unknown.sentence


def test_values_of_inputs_reach_the_service(
    run: Run, own: Home, service: _Service, token: str, branches: ModelProto, tmp_path: Path
) -> None:
    """A value is sent for the number that stands for the input's name, and the answer is that of this machine."""
    onnx.save(branches, tmp_path / "merged.onnx")
    asked = ("predict", tmp_path / "merged.onnx", "--predict-all", "--partial", "--json", "--system", SYSTEM.name)
    for flag in (0, 1):
        local = run(own, *asked, "--value", f"cached={flag}").document
        remote = run(own, *asked, "--value", f"cached={flag}", "--server", service.url, "--token", token).document
        assert remote["latency_us"] == local["latency_us"]
    refused = run(own, *asked, "--value", "cached=2", "--server", service.url, "--token", token)
    assert "input cached has elements of bool, which cannot be 2" in refused.sentence


def test_metrics_are_those_of_all_workers(service: _Service, token: str) -> None:
    """Every worker returns the metrics of all workers."""
    with httpx.Client(base_url=service.url, headers={"authorization": f"Bearer {token}"}, timeout=60) as client:
        for _ in range(20):
            assert client.get("/v1/systems", headers={"connection": "close"}).status_code == 200
        counted = [line for line in client.get("/metrics").text.splitlines() if 'path="/v1/systems"' in line]
    assert any(line.startswith("costmodel_http_requests_total") and line.endswith(" 20.0") for line in counted)


def test_a_web_server_that_does_not_start_leaves_the_others_answering(service: _Service) -> None:
    """A worker that fails to start is restarted until it succeeds, while the others serve."""
    process = psutil.Process(service.process.pid)

    def web_servers() -> list[psutil.Process]:
        found = []
        for child in process.children():
            with suppress(psutil.NoSuchProcess):  # also of a zombie
                found += [child] if "spawn_main" in " ".join(child.cmdline()) else []
        return found

    def ready() -> bool:
        with httpx.Client(base_url=service.url, timeout=10) as client:
            return client.get("/readyz").status_code == 200

    assert ready()
    lost = web_servers()[0]
    lost.kill()
    refused = threading.Event()

    def watch_log() -> None:
        assert service.process.stderr is not None
        for line in service.process.stderr:
            if "a web server did not start" in line:
                refused.set()

    watching = threading.Thread(target=watch_log, daemon=True)
    watching.start()
    while not refused.is_set():  # no engine of the new web server becomes ready
        for new in web_servers():
            if new.create_time() > lost.create_time() + 1:
                with suppress(psutil.NoSuchProcess):
                    for engine in new.children():
                        engine.kill()
        time.sleep(0.02)
    assert ready()
    while len(web_servers()) < 2:
        time.sleep(0.1)
    assert ready()
    service.process.send_signal(signal.SIGTERM)
    assert service.process.wait(timeout=60) == 0
    watching.join()
    for stream in (service.process.stdout, service.process.stderr):
        assert stream is not None
        stream.close()


def test_a_token_may_do_what_was_asked_for_it(run: Run, tmp_path: Path) -> None:
    """A token has the requested scopes until it expires; the list reveals no token."""
    tokens = ("--tokens", tmp_path / "tokens")
    made = run(tmp_path, "token", "ann", *tokens, "--expires", "90d", "--json").document
    until = datetime.fromisoformat(made["expires"])
    assert timedelta(days=89) < until - datetime.now(UTC) <= timedelta(days=90)
    assert made["scopes"] == ["predict", "observe"]
    day = f"{datetime.now(UTC).year + 1}-01-31"
    assert run(tmp_path, "token", "prom", *tokens, "--scopes", "metrics", "--expires", day).code == 0
    assert run(tmp_path, "token", "root", *tokens, "--scopes", "admin, predict").code == 0
    with (tmp_path / "tokens").open("a") as file:
        file.write(f"old {'0' * 64} expires=2020-01-31T00:00:00+00:00\n")
    listed = {one["name"]: one for one in run(tmp_path, "tokens", *tokens, "--json").document["tokens"]}
    assert listed == {
        "ann": {"name": "ann", "scopes": made["scopes"], "expires": made["expires"], "expired": False},
        "prom": {"name": "prom", "scopes": ["metrics"], "expires": f"{day}T00:00:00+00:00", "expired": False},
        "root": {"name": "root", "scopes": ["predict", "admin"], "expires": None, "expired": False},
        "old": {
            "name": "old", "scopes": ["predict", "observe"], "expires": "2020-01-31T00:00:00+00:00", "expired": True,
        },
    }  # fmt: skip
    shown = run(tmp_path, "tokens", *tokens).out
    assert "never" in shown
    assert "(expired)" in shown
    assert made["token"] not in shown
    assert not any(line.split()[1] in shown for line in (tmp_path / "tokens").read_text().splitlines())


@pytest.mark.parametrize("wrong", ["soon", "2020-01-31", "2027-02-31", "0", "999999999999d", "31-01-2030"])
def test_an_expiry_that_is_none_is_refused(run: Run, tmp_path: Path, wrong: str) -> None:
    """An invalid expiry is refused and no token is made."""
    done = run(tmp_path, "token", "ann", "--tokens", tmp_path / "tokens", "--expires", wrong)
    assert done.code == 2
    assert "--expires" in done.err
    assert not (tmp_path / "tokens").exists()


def test_a_scope_that_is_none_is_refused(run: Run, tmp_path: Path) -> None:
    """An unknown scope is refused with the known ones."""
    for wrong in ("everything", ",", "predict;observe"):
        done = run(tmp_path, "token", "ann", "--tokens", tmp_path / "tokens", "--scopes", wrong)
        assert "choose among predict, observe, metrics, admin" in done.sentence
    assert "make it with `costmodel token`" in run(tmp_path, "tokens", "--tokens", tmp_path / "tokens").sentence


def test_other_hosts_are_answered_only_with_tokens(run: Run, tmp_path: Path) -> None:
    """Without tokens, a public address is refused unless a flag confirms it."""
    done = run(tmp_path, "serve", "--host", "0.0.0.0", "--port", "0")
    assert done.code == 2
    assert "give --tokens FILE" in done.err
    done = run(tmp_path, "serve", "--tokens", tmp_path / "none")
    assert "cannot be read as tokens" in done.sentence


def test_a_service_that_is_not_there(run: Run, tmp_path: Path, light_models: Mapping[str, Path]) -> None:
    """An unreachable service, an invalid address and an unsupported option are each one sentence."""
    asked = ("predict", light_models["vgg19"], "--server")
    assert "does not answer" in run(tmp_path, *asked, "http://127.0.0.1:9").sentence
    for wrong in ("localhost", "http://host:port"):
        assert "is not the URL of a service" in run(tmp_path, *asked, wrong).sentence
    assert run(tmp_path, *asked, "http://127.0.0.1:9", "--measure").code == 2


def test_nothing_has_drifted_before_the_first_observation(run: Run, ready: Home) -> None:
    """Without observations there is no drift, and the answer says how to report."""
    assert "Nobody has reported a latency yet" in run(ready, "drift").out
    assert run(ready, "drift", "--json").document == {"systems": []}


@pytest.mark.parametrize("package", ["uvicorn", "aiolimiter", "prometheus_client"])
def test_without_a_package_the_service_says_what_to_install(package: str, tmp_path: Path) -> None:
    """Where some of the packages are there for another's sake, those that are missing still end in one sentence."""
    code = (
        f"import sys; sys.modules[{package!r}] = None; from costmodel.cli import main; "
        "import costmodel.cli.serve; main(['serve', '--port', '0'])"
    )
    environment = {**os.environ, "COSTMODEL_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment, timeout=60
    )
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert "--editable '.[serve]'" in line
