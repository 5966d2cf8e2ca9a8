"""`costmodel survey`: the standard set of a small folder of shipped data, in simulated time and once really."""

from collections.abc import Callable
from pathlib import Path

import pytest
from onnx import ModelProto

from costmodel.cli.context import Tools
from costmodel.onnx_io.model import read_model
from costmodel.store.parquet import read_results
from costmodel.systems.host import usable_cpus
from tests.fakes import FakeRuntime, fake_sessions
from tests.reproduced import TEXTS
from tests.shell import Run
from tests.shipped import put_shipped_data


@pytest.fixture
def shipped(tmp_path: Path, parse: Callable[..., ModelProto]) -> Path:
    """A folder of shipped data with a standard set."""
    put_shipped_data(
        tmp_path / "shipped",
        {name: FakeRuntime().lower(read_model(parse(text)), "all") for name, text in TEXTS.items()},
    )
    return tmp_path / "shipped"


@pytest.fixture
def run(run_with: Callable[[Tools], Run], shipped: Path) -> Run:
    """Function that runs a command with the fake runtime and these shipped data."""
    runtime = FakeRuntime()
    return run_with(Tools(runtime, fake_sessions(runtime), shipped))


def test_each_number_of_threads_is_a_system_with_a_file(run: Run, tmp_path: Path) -> None:
    """The set is measured for each number of threads, and the files contain it; a second run measures nothing."""
    out = tmp_path / "survey"
    arguments = ("survey", "--threads", "1,2", "--out", out)
    document = run(tmp_path / "home", *arguments, "--json").document
    assert [(s["threads"], s["measured"], s["left"]) for s in document["systems"]] == [(1, 4, 0), (2, 4, 0)]
    for of_system in document["systems"]:
        results = read_results(Path(of_system["path"]))
        assert results.system.name == of_system["system"]
        assert results.system.settings.threads == of_system["threads"]
        assert {model.name for model in results.models} == {"deep", "wide"}
        assert len(results.measurements) == 4
    assert len(list(out.iterdir())) == 2
    again = run(tmp_path / "home", *arguments)
    assert again.code == 0
    assert "The standard set has 2 models and 2 layers" in again.said
    assert "0 measured in " in again.err
    assert "Put the files into data/ of a clone of costmodel" in again.said


def test_a_spent_budget_says_to_go_on(run: Run, tmp_path: Path) -> None:
    """When the budget is spent, the rest is counted, and the file is written nevertheless."""
    done = run(tmp_path / "home", "survey", "--budget", "0s", "--threads", "1", "--out", tmp_path / "survey")
    assert done.code == 0
    assert "The budget is spent: run the same command again to go on." in done.said
    assert "4 left" in done.err
    assert len(list((tmp_path / "survey").glob("*.parquet"))) == 1


def test_wrong_usage_is_refused_before_anything_is_measured(run: Run, tmp_path: Path) -> None:
    """Threads that are no numbers, and a folder that cannot be made, are errors."""
    assert run(tmp_path / "home", "survey", "--threads", "many").code == 2
    (tmp_path / "file").touch()
    assert "cannot be made" in run(tmp_path / "home", "survey", "--out", tmp_path / "file" / "survey").sentence


def test_the_set_is_really_measured_in_a_process_of_its_own(
    run_with: Callable[[Tools], Run], shipped: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Without a runtime of the caller, child processes measure with ONNX Runtime, each with its number of threads."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # the measuring process has its lock there
    threads = "1,2" if usable_cpus() > 1 else "1"
    run = run_with(Tools(shipped_data=shipped))
    done = run(tmp_path / "home", "survey", "--threads", threads, "--out", tmp_path / "survey", "--json")
    assert [(s["measured"], s["failed"]) for s in done.document["systems"]] == [(4, {})] * len(threads.split(","))
