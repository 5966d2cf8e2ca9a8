"""Fixtures that run the command line in the test process, in a separate home."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import pytest

from costmodel.cli import main
from costmodel.cli.context import Tools
from costmodel.jobs.benchmark_session import BenchmarkSession
from costmodel.measure.lock import measuring_lock
from costmodel.paths import Home
from tests.fakes import FakeRuntime, fake_sessions
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
def run(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Iterator[Run]:
    """Function that runs a command in a home, which need not exist; the arguments follow.

    Benchmark sessions have a separate lock, so that they neither wait for a user's benchmark nor disturb it more than
    they must.
    """
    lock = partial(measuring_lock, tmp_path / "measuring.lock")
    yield from _running(capfd, Tools(bench=partial(BenchmarkSession, lock=lock)))


@pytest.fixture
def simulated_run(capfd: pytest.CaptureFixture[str]) -> Iterator[Run]:
    """Function like `run` whose commands use the fake runtime and its simulated time; the host is the probed one."""
    runtime = FakeRuntime()
    yield from _running(capfd, Tools(runtime, fake_sessions(runtime)))


@pytest.fixture
def run_with(capfd: pytest.CaptureFixture[str]) -> Iterator[Callable[[Tools], Run]]:
    """Function that returns a function like `run` whose commands use the given tools."""
    with ExitStack() as stack:
        yield lambda tools: stack.enter_context(contextmanager(_running)(capfd, tools))


def _running(capfd: pytest.CaptureFixture[str], tools: Tools) -> Iterator[Run]:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("COSTMODEL_STORE", raising=False)
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        patch.setenv("COLUMNS", "80")

        def run(home: Home | Path, *arguments: object) -> Done:
            patch.setenv("COSTMODEL_HOME", str(home.root if isinstance(home, Home) else home))
            capfd.readouterr()
            with pytest.raises(SystemExit) as stopped:
                main([str(argument) for argument in arguments], tools=tools)
            code = stopped.value.code
            return Done(code if isinstance(code, int) else 0, *capfd.readouterr())

        yield run
