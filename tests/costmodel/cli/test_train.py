"""`costmodel train` and `costmodel evaluate`: documents and tables."""

import json
import re
import sys
from pathlib import Path

import pytest

from costmodel.paths import Home
from costmodel.training.artefact import champion_of
from tests.shell import Run
from tests.synthetic import MEASURED, MLFLOW_DEPRECATION, SYSTEM

pytestmark = pytest.mark.filterwarnings(f"ignore:{MLFLOW_DEPRECATION}:DeprecationWarning")
NAMED = ("--system", SYSTEM.name, "--seeds", "1")


def test_train_puts_a_regressor_in_charge(run: Run, own: Home) -> None:
    """The document has the new champion's version, its evaluation and its run."""
    before = champion_of(own.bundles, SYSTEM.name)
    done = run(own, "train", *NAMED, "--json")
    document = done.document
    after = champion_of(own.bundles, SYSTEM.name)
    assert after is not None
    assert after != before
    assert document["predictor"] == {"name": document["evaluation"]["champion"], "version": after.name}
    assert document["run_id"]
    assert f"mlflow ui --backend-store-uri sqlite:///{own.tracking / 'mlflow.db'}" in done.err
    assert document["evaluation"]["seeds"] == [0]
    predicted = run(own, "predict", "light_resnet50", "--system", SYSTEM.name, "--json").document
    assert predicted["predictor"]["version"] == after.name


def test_train_without_a_record(run: Run, own: Home) -> None:
    """`--no-tracking` does not use MLflow; the output has evaluation and champion."""
    done = run(own, "train", *NAMED, "--no-tracking")
    assert done.code == 0
    assert re.search(r"made\.up: \S+ answers now, trained on \d+ sequences\.$", done.said)
    assert "mlflow" not in done.err
    assert not (own.tracking / "artifacts").exists()


def test_some_predictors_are_trained_alone(run: Run, own: Home) -> None:
    """`--predictors` trains the learners among them and evaluates the baselines; one of the former must be there."""
    done = run(own, "train", *NAMED, "--no-tracking", "--predictors", "log_linear,flops", "--json").document
    assert set(done["evaluation"]["predictors"]) == {"log_linear", "flops"}
    assert done["predictor"]["name"] == "log_linear"
    champion = champion_of(own.bundles, SYSTEM.name)
    assert champion is not None
    assert champion.name.endswith("log_linear")
    for wrong, said in ((("flops",), "add one of lightgbm"), (("log_linear", "--search", "2"), "about lightgbm")):
        refused = run(own, "train", *NAMED, "--no-tracking", "--predictors", *wrong)
        assert refused.code == 2
        assert said in refused.err
    assert champion_of(own.bundles, SYSTEM.name) == champion


def test_train_says_what_a_search_found(run: Run, own: Home) -> None:
    """A search of one trial tries the defaults and adopts nothing else."""
    done = run(own, "train", *NAMED, "--no-tracking", "--search", "1")
    assert re.search(
        r"search: 1 trials, 0 pruned; on \d+ lineages that took no part, the error of a layer "
        r".* the defaults are used",
        done.said,
    )
    assert "no better on lineages" in done.err


def test_evaluate_is_the_documented_document(run: Run, ready: Home) -> None:
    """The document has the documented top-level keys, and the champion is among the predictors."""
    document = run(ready, "evaluate", *NAMED, "--json").document
    assert {"system", "split", "seeds", "noise_floor_mape", "predictors", "champion"} <= set(document)
    assert document["system"] == SYSTEM.name
    assert document["predictors"][document["champion"]]["model"]["mape"] < 0.1


@pytest.mark.parametrize("columns", [80, 120])
def test_evaluate_is_a_table_that_fits(run: Run, ready: Home, monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    """Each predictor and each held-out model has a line that is neither wrapped nor truncated."""
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = run(ready, "evaluate", *NAMED).out.splitlines()
    assert max(map(len, lines)) <= columns
    assert "…" not in "".join(lines)
    assert lines[1].split("  ")[0] == "predictor"
    first_words = [line.split()[0] for line in lines if line]
    assert {"lightgbm", "roofline", "flops", "nearest", "operator_count", "forest_per_operator", *MEASURED} <= set(
        first_words
    )


def test_some_predictors_are_evaluated_alone(run: Run, ready: Home) -> None:
    """`--predictors` leaves out the others, and an unknown one is refused with those that there are."""
    document = run(ready, "evaluate", *NAMED, "--folds", "2", "--predictors", "roofline, flops", "--json").document
    assert set(document["predictors"]) == {"roofline", "flops"}
    refused = run(ready, "evaluate", *NAMED, "--predictors", "roofline,oracle")
    assert refused.code == 2
    assert "no predictor 'oracle'" in refused.err
    together = run(ready, "evaluate", "--systems", "a,b", "--predictors", "roofline")
    assert together.code == 2
    assert "--predictors" in together.err


@pytest.mark.parametrize("command", ["train", "evaluate"])
def test_without_data_there_is_a_sentence(run: Run, ready: Home, command: str) -> None:
    """Without data, one sentence says how to get some."""
    assert "run `costmodel bench --system c5.xlarge`" in run(ready, command, "--system", "c5.xlarge").sentence


def test_evaluate_is_one_table_where_there_is_room(run: Run, ready: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """From 120 columns on, errors with no measured layer are in the same table, otherwise in a second one."""
    for columns, tables in ((120, 1), (119, 2)):
        monkeypatch.setenv("COLUMNS", str(columns))
        lines = run(ready, "evaluate", *NAMED, "--folds", "2").out.splitlines()
        assert max(map(len, lines)) <= columns
        assert "leave-lineages-out, 2 folds" in lines[0]
        assert sum(line.startswith("predictor ") for line in lines) == tables
        (unseen,) = [line for line in lines if " unseen " in line and line.startswith("predictor")]
        assert re.search(r"unseen +in 5% +in 10% +macro +p95$", unseen)


def test_evaluate_fills_a_folder(run: Run, ready: Home, tmp_path: Path) -> None:
    """The folder has the printed document with coverage and learning curve, tables and figures."""
    document = run(ready, "evaluate", *NAMED, "--folds", "2", "--out", tmp_path / "out", "--json").document
    assert json.loads((tmp_path / "out" / "evaluation.json").read_text()) == document
    assert {point["level"] for point in document["coverage"]} >= {0.5, 0.9, 0.99}
    assert {point["share"] for point in document["learning_curve"]["points"]} == {0.1, 0.25, 0.5, 1.0}
    kinds = {path.stem: path.suffix for path in sorted((tmp_path / "out").glob("*.svg"))}
    assert set(kinds) == {"coverage", "distances", "families", "learning_curve", "operators", "predictions", "sizes"}


def test_what_draws_is_missed_before_anything_is_trained(
    run: Run, ready: Home, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A missing plotting library is reported before training starts."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    done = run(ready, "evaluate", *NAMED, "--out", tmp_path / "out")
    assert "--editable '.[plots]'" in done.sentence
    assert not (tmp_path / "out").exists()
