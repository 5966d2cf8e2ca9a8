"""`costmodel adapt` on this machine, for some seconds, and `costmodel bench --suggest`."""

import re
from collections.abc import Callable
from pathlib import Path

from mlflow import MlflowClient

from costmodel.cli.context import Tools
from costmodel.paths import Home
from costmodel.store.parquet import export_results
from costmodel.store.store import Store
from tests.fakes import FakeRuntime, fake_sessions
from tests.shell import Run
from tests.synthetic import SYSTEM

HERE = ("--system", "this.one")


def test_seconds_of_measuring_give_a_system(run: Run, own: Home) -> None:
    """The document has the error curve, and models can then be predicted on the new system."""
    done = run(own, "adapt", *HERE, "--from", SYSTEM.name, "--budget", "3s", "--json")
    document = done.document
    assert list(document) == [
        "system", "bases", "curve", "ended", "measured", "failed", "predictor", "path", "evaluation",
        "run_id", "warnings",
    ]  # fmt: skip
    assert (document["system"], document["bases"], document["failed"]) == ("this.one", [SYSTEM.name], {})
    first, *_, last = document["curve"]
    assert (first["measured"], first["expected_error"]) == (0, None)
    assert 0 < last["measured"] <= document["measured"]  # the document also counts whole models
    assert last["expected_error"] > 0
    predicted = run(own, "predict", "light_resnet50", *HERE, "--json").document
    assert predicted["predictor"]["version"] == document["predictor"]["version"]
    recorded = MlflowClient(f"sqlite:///{own.tracking / 'mlflow.db'}").get_run(document["run_id"])
    assert recorded.data.params["bases"] == str([SYSTEM.name])
    shown = run(own, "adapt", *HERE, "--from", SYSTEM.name, "--budget", "0.1s", "--no-tracking")
    assert re.match(r" +0\.0 min +\d+ measured, \d+% of latency +expected error ", shown.out)
    assert shown.out.splitlines()[-1].endswith(" answers now.")


def test_suggestions_are_a_table_or_a_document(run: Run, ready: Home) -> None:
    """Suggestions for an unmeasured system, by a measured base, are a table or a document."""
    document = run(ready, "bench", "--suggest", "3", *HERE, "--json").document
    assert document["system"] == "this.one"
    assert len(document["suggestions"]) == 3
    assert set(document["suggestions"][0]) == {
        "signature", "kind", "uncertainty", "models", "share", "latency_us", "seconds",
    }  # fmt: skip
    shown = run(ready, "bench", "--suggest", "3", *HERE)
    assert document["suggestions"][0]["signature"][:12] in shown.out


def test_nothing_is_suggested_where_everything_is_known(run: Run, ready: Home) -> None:
    """Nothing is suggested for a system on which everything is measured."""
    assert run(ready, "bench", "--suggest", "3", "--system", SYSTEM.name, "--json").document["suggestions"] == []


def test_an_unknown_base_is_an_error(run: Run, ready: Home) -> None:
    """An unknown base is one sentence with the known systems."""
    assert SYSTEM.name in run(ready, "adapt", *HERE, "--from", "nobody").sentence


def test_a_shipped_base_is_imported_when_it_is_named(
    run_with: Callable[[Tools], Run], ready: Home, tmp_path: Path
) -> None:
    """A base that only the shipped data have is imported, and the command says so."""
    (tmp_path / "shipped").mkdir()
    export_results(Store(ready.store_url), SYSTEM.name, tmp_path / "shipped" / f"{SYSTEM.name}.parquet")
    runtime = FakeRuntime()
    run = run_with(Tools(runtime, fake_sessions(runtime), tmp_path / "shipped"))
    done = run(tmp_path / "new", "adapt", *HERE, "--from", SYSTEM.name, "--budget", "1s", "--no-tracking")
    assert f"note: {SYSTEM.name} was imported from the data that is shipped with costmodel" in done.err
    assert SYSTEM.name in Store(Home(tmp_path / "new").store_url).systems()
