"""The command line, run in this process as a shell would run it, in a home of its own."""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import pytest

from costmodel.bench import Bench
from costmodel.cli import main
from costmodel.home import Home
from tests.fakes import QUICK, FakeRuntime
from tests.shell import Done, Run
from tests.synthetic import copied, put_tracking_store, trained_home

os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"


@pytest.fixture(scope="session")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A home with a filled store, a champion and a tracking store; commands that only read may share it."""
    trained = trained_home(tmp_path_factory.getbasetemp() / "trained-home")
    home = copied(trained, tmp_path_factory.mktemp("cli") / "home")
    put_tracking_store(tmp_path_factory.getbasetemp(), home.tracking)
    return home


@pytest.fixture
def own(ready: Home, tmp_path: Path) -> Home:
    """A copy of it, for a command that writes."""
    return copied(ready, tmp_path / "home")


@pytest.fixture
def imagined_time(monkeypatch: pytest.MonkeyPatch) -> FakeRuntime:
    """Commands use an imaginary runtime, and their benches live in its time; the host is what is probed."""
    runtime = FakeRuntime()
    bench = partial(
        Bench, protocol=QUICK, lock=nullcontext, clock_ns=runtime.clock,
        sleep=lambda seconds: runtime.clock.pass_us(seconds * 1e6),
    )  # fmt: skip
    for module in ("costmodel.budget", "costmodel.jobs"):
        monkeypatch.setattr(f"{module}.Bench", bench)
    # `runtimes` last: a module that is first imported for being patched must find the real one there, to go back to.
    for module in ("costmodel.api", "costmodel.runtimes"):
        monkeypatch.setattr(f"{module}.get_runtime", lambda *_: runtime)
    return runtime


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Iterator[Run]:
    """Runs a command in a home, which may be a folder that is not there yet; the arguments follow.

    The lock of the host is a file in the folder of temporary files: these commands have one of their own, so that
    they neither wait for a benchmark of the user's nor disturb it more than they must.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(tmp_path))
        patch.delenv("COSTMODEL_STORE", raising=False)
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        patch.setenv("COLUMNS", "80")

        def run(home: Home | Path, *arguments: object) -> Done:
            patch.setenv("COSTMODEL_HOME", str(home.root if isinstance(home, Home) else home))
            patch.setattr(sys, "argv", ["costmodel", *map(str, arguments)])
            capfd.readouterr()
            with pytest.raises(SystemExit) as stopped:
                main()
            code = stopped.value.code
            return Done(code if isinstance(code, int) else 0, *capfd.readouterr())

        yield run
