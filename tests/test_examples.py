"""The examples run with small settings."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from costmodel.paths import Home
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
