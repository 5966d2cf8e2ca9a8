"""Fixtures that run the command line in the test process, in a separate home."""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import pytest

from costmodel.cli import main
from costmodel.jobs.benchmark_session import BenchmarkSession
from costmodel.paths import Home
from tests.fakes import QUICK, FakeRuntime
from tests.shell import Done, Run
from tests.synthetic import copied, put_tracking_store, trained_home

os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"


@pytest.fixture(scope="session")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A home with a filled store, a champion and a tracking store, shared by read-only commands."""
    trained = trained_home(tmp_path_factory.getbasetemp() / "trained-home")
    home = copied(trained, tmp_path_factory.mktemp("cli") / "home")
    put_tracking_store(tmp_path_factory.getbasetemp(), home.tracking)
    return home


@pytest.fixture
def own(ready: Home, tmp_path: Path) -> Home:
    """A copy of that home, for commands that write."""
    return copied(ready, tmp_path / "home")


@pytest.fixture
def imagined_time(monkeypatch: pytest.MonkeyPatch) -> FakeRuntime:
    """Makes commands use the fake runtime and benches its simulated time; the host is the probed one."""
    runtime = FakeRuntime()
    bench = partial(
        BenchmarkSession, protocol=QUICK, lock=nullcontext, clock_ns=runtime.clock,
        sleep=lambda seconds: runtime.clock.pass_us(seconds * 1e6),
    )  # fmt: skip
    for module in ("costmodel.jobs.budget", "costmodel.jobs.bench"):
        monkeypatch.setattr(f"{module}.BenchmarkSession", bench)
    # `runtimes` last: modules that are first imported here must bind the real function, which is restored afterwards.
    for module in ("costmodel.api", "costmodel.runtimes.base"):
        monkeypatch.setattr(f"{module}.get_runtime", lambda *_: runtime)
    return runtime


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Iterator[Run]:
    """Function that runs a command in a home, which need not exist; the arguments follow.

    The lock of the host is a file in the temporary folder: these commands get a separate one, so that they neither wait
    for
    a user's benchmark nor disturb it more than they must.
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
