"""The examples run with small settings."""

import importlib
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

import pytest

from costmodel.paths import Home
from tests.served import InProcess, listening
from tests.synthetic import SYSTEM, copied, trained_home

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A home with a regressor of the synthetic system."""
    trained = trained_home(tmp_path_factory.getbasetemp() / "trained-home")
    return copied(trained, tmp_path_factory.mktemp("examples") / "home")


def _run(home: Home, program: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / program), "--system", SYSTEM.name, *arguments],
        env=os.environ | {"COSTMODEL_HOME": str(home.root), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def _ms(out: str, label: str) -> float:
    found = re.search(rf"{label} +([0-9.]+) ms", out)
    assert found, out
    return float(found[1])


@pytest.mark.parametrize(
    ("program", "arguments"),
    [
        ("evolutionary_search.py", ("--limit-ms", "12", "--generations", "4", "--population", "10")),
        ("differentiable_search.py", ("--steps", "2", "--batch", "2")),
    ],
)
def test_a_search_ends_with_its_network_predicted_and_run(home: Home, program: str, arguments: tuple[str, ...]) -> None:
    """The best network's price equals the estimate of its whole model, and the model was run."""
    pytest.importorskip("torch")
    out = _run(home, program, *arguments)
    parts = _ms(out, "predicted from (?:its parts|the table)")
    assert _ms(out, "predicted as a model") == pytest.approx(parts, rel=0.1)
    assert _ms(out, "measured here") > 0


def test_a_search_that_finds_nothing_says_so(home: Home) -> None:
    """A search without a feasible network says by how much the fastest one misses the objective."""
    pytest.importorskip("torch")
    with pytest.raises(AssertionError, match=r"no network is within 0\.001 ms"):
        _run(home, "evolutionary_search.py", "--limit-ms", "0.001", "--generations", "1", "--population", "4")


# The router

LATENCIES_US = {("small", "fast"): 10.0, ("small", "slow"): 15.0, ("large", "fast"): 100.0, ("large", "slow"): 400.0}


class _Clock:
    now_us = 0.0

    def __call__(self) -> float:
        return self.now_us


@pytest.fixture
def router(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module `examples/router.py`."""
    monkeypatch.syspath_prepend(EXAMPLES)
    return importlib.import_module("router")


def test_a_request_goes_where_it_ends_first(router: ModuleType) -> None:
    """A fast replica gets requests until a slow one, which has less work, ends them earlier."""
    router = router.Router({"a": "fast", "b": "slow"}, lambda *asked: LATENCIES_US[asked], _Clock())
    placements = [router.place("small") for _ in range(5)]
    assert [one.replica for one in placements] == ["a", "b", "a", "a", "b"]
    assert [one.finish_us for one in placements] == [10.0, 15.0, 20.0, 30.0, 30.0]
    assert router.place("large").replica == "a"


def test_work_that_is_done_does_not_count(router: ModuleType) -> None:
    """Time that has passed and requests that are finished reduce the work of a replica; late ones may end at once."""
    clock = _Clock()
    router = router.Router({"a": "fast", "b": "slow"}, lambda *asked: LATENCIES_US[asked], clock)
    first, second = router.place("large"), router.place("large")
    assert (first.replica, second.replica, second.finish_us) == ("a", "a", 200.0)
    clock.now_us = 95.0
    assert router.place("small").replica == "b"
    router.finish(first)  # earlier than predicted: 100 us remain
    assert router.place("large").finish_us == 200.0
    clock.now_us = 1000.0  # later than predicted
    assert router.place("small").finish_us == 15.0
    router.finish(second)
    assert router.place("large").replica == "a"


def test_requests_finish_in_any_order(router: ModuleType) -> None:
    """A request that fails while it waits leaves the queue; a replica without requests is idle."""
    clock = _Clock()
    router = router.Router({"a": "fast"}, lambda *asked: LATENCIES_US[asked], clock)
    first, second = router.place("large"), router.place("small")
    router.finish(second)
    assert router.place("small").finish_us == 110.0
    clock.now_us = 50.0
    router.finish(first)
    assert router.place("small").finish_us == 20.0


def test_a_burst_is_placed_by_the_predictions_of_a_service(
    home: Home, light_models: Mapping[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program asks a service, and replicas of one system take turns."""
    with listening(home, monkeypatch, make_engines=InProcess) as url:
        program = [sys.executable, str(EXAMPLES / "router.py"), str(light_models["squeezenet"]), "--server", url]
        replicas = [f"--replica={name}={SYSTEM.name}" for name in ("a", "b")]
        done = subprocess.run([*program, *replicas, "--requests", "4"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert re.findall(r"to (\w)", done.stdout) == ["a", "b", "a", "b"]
    first, _, third, _ = (float(ms) for ms in re.findall(r"([0-9.]+) ms", done.stdout))
    assert third > first
