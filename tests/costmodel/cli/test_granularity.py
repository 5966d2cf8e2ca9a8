"""`--granularity auto`, in simulated time."""

from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from onnx import ModelProto

from tests.shell import Run

CHAIN = "(float[2,3] x) => (float[2,3] y) { a = Relu(x) \n b = Tanh(a) \n c = Relu(b) \n d = Tanh(c) \n y = Exp(d) }"
NAMED = ("--system", "fake-1")


@pytest.fixture
def chain(tmp_path: Path, parse: Callable[..., ModelProto]) -> Path:
    """A model of five layers."""
    onnx.save(parse(CHAIN), tmp_path / "chain.onnx")
    return tmp_path / "chain.onnx"


def test_what_the_budget_allows_is_measured_and_predicted_from(simulated_run: Run, chain: Path, tmp_path: Path) -> None:
    """A table shows the plan with expected errors; what it measured is then used for predictions."""
    home = tmp_path / "home"
    done = simulated_run(home, "bench", chain, *NAMED, "-G", "auto", "--budget", "60s")
    head, row, line = done.out.splitlines()
    assert head.split() == ["model", "granularity", "expected", "error", "seconds"]
    assert row.split()[:2] == ["chain", "whole"]
    assert row.split()[2].endswith("%")
    assert line.startswith("fake-1: 1 measured in ")
    document = simulated_run(home, "predict", chain, *NAMED, "-G", "auto", "--json").document
    assert (document["granularity"], len(document["layers"]), document["coverage"]["measured"]) == (5, 1, 1.0)
    (warning,) = document["warnings"]
    assert warning.startswith("the model was taken as one sequence, which is measured")
    again = simulated_run(home, "bench", chain, *NAMED, "-G", "auto", "--budget", "0s", "--json").document
    assert again["plan"] == [
        {
            "model": "chain",
            "granularity": 5,
            "whole": True,
            "expected_error": pytest.approx(0.02, rel=0.5),
            "seconds": 0,
        }
    ]
    assert again["measured"] == 0


def test_without_time_nothing_is_measured_and_that_is_said(simulated_run: Run, chain: Path, tmp_path: Path) -> None:
    """Without budget nothing is measured, and the needed time is stated."""
    home = tmp_path / "home"
    done = simulated_run(home, "bench", chain, *NAMED, "-G", "auto", "--budget", "0s")
    assert done.out.splitlines()[1].split() == ["chain", "none", "no", "estimate", "0.0"]
    assert "nothing of chain will be measured: it takes 0." in done.err
    document = simulated_run(home, "bench", chain, *NAMED, "-G", "auto", "--budget", "0s", "--json").document
    assert document["plan"] == [
        {"model": "chain", "granularity": None, "whole": False, "expected_error": None, "seconds": 0.0}
    ]
    assert "layers without a cost" in simulated_run(home, "predict", chain, *NAMED, "-G", "auto").sentence


def test_predictions_take_the_coarsest_that_is_measured(simulated_run: Run, chain: Path, tmp_path: Path) -> None:
    """The coarsest measured granularity is used, here the whole model; other rules use single layers."""
    home = tmp_path / "home"
    assert simulated_run(home, "bench", chain, *NAMED, "-G", "2").code == 0
    document = simulated_run(home, "predict", chain, *NAMED, "-G", "auto", "--json").document
    assert document["granularity"] == 5
    parallel = simulated_run(
        home, "predict", chain, *NAMED, "-G", "auto", "--compose", "parallel", "--partial", "--json"
    ).document
    assert parallel["granularity"] == 1
    assert any("the rule is one for single layers" in warning for warning in parallel["warnings"])


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["bench", "-G", "auto"], "--budget"),
        (["bench", "-G", "auto", "--budget", "5s", "--samples", "3"], "samples are taken around single layers"),
        (["decompose", "light", "-G", "auto"], "give a number"),
        (["predict", "light", "-G", "coarse"], "neither a number from 1 on nor auto"),
        (["bench", "-G", "0"], "neither a number from 1 on nor auto"),
    ],
)
def test_where_it_makes_no_sense_a_sentence_says_why(
    simulated_run: Run, tmp_path: Path, arguments: list[str], hint: str
) -> None:
    """Unsupported combinations are wrong usage with exit code 2, and do nothing."""
    done = simulated_run(tmp_path / "home", *arguments)
    assert (done.code, done.out) == (2, "")
    assert hint in " ".join(done.err.replace("│", " ").split())
    assert not (tmp_path / "home" / "data" / "costmodel.db").exists()
