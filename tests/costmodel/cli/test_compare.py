"""`costmodel compare`: its document, its table and its conclusion."""

import pytest

from costmodel.paths import Home
from tests.shell import Run
from tests.synthetic import SYSTEM

NAMED = ("--system", SYSTEM.name, "--splits", "3")


def test_two_predictors_are_one_document(run: Run, ready: Home) -> None:
    """The document says which predictor is better, with which probability, and lists the runs."""
    document = run(ready, "compare", "operator_count", "roofline", *NAMED, "--json").document
    assert document["metric"] == "model_unseen.mape"
    assert list(document["predictors"]) == ["operator_count", "roofline"]
    assert document["seeds"] == [0, 1, 2]
    low, high = document["probability_interval"]
    assert 0 <= low <= document["probability_better"] <= high <= 1
    assert document["winner"] in {None, "operator_count", "roofline"}
    assert document["conclusion"]


@pytest.mark.parametrize("metric", ["layer.mape", "layer.kendall_tau"])
def test_people_read_both_and_a_sentence(run: Run, ready: Home, monkeypatch: pytest.MonkeyPatch, metric: str) -> None:
    """The table has a line for each predictor and the difference, and ends with the conclusion."""
    monkeypatch.setenv("COLUMNS", "200")
    done = run(ready, "compare", "flops", "roofline", *NAMED, "--metric", metric)
    assert done.code == 0
    first, header, one, other, difference, conclusion = done.out.splitlines()
    assert first.startswith(f"made.up, {metric}, 3 runs, ")
    assert header.split() == ["predictor", "mean", "lowest", "highest"]
    assert [line.split()[0] for line in (one, other, difference)] == ["flops", "roofline", "difference"]
    assert conclusion.endswith(".")


def test_without_data_there_is_a_sentence(run: Run, ready: Home) -> None:
    """Without data, one sentence says how to get some."""
    done = run(ready, "compare", "flops", "roofline", "--system", "c5.xlarge")
    assert "run `costmodel bench --system c5.xlarge`" in done.sentence
