"""`costmodel systems`: measured systems, catalogued systems, this host, and the states of one system."""

from dataclasses import replace
from pathlib import Path

import pytest

from costmodel.paths import Home
from costmodel.store.results import Results
from costmodel.store.store import Store
from tests.shell import Run
from tests.synthetic import SYSTEM


def test_systems_as_a_document(run: Run, ready: Home) -> None:
    """The document has capabilities and champions, catalogue prices, and this host."""
    document = run(ready, "systems", "--json").document
    (measured,) = document["systems"]
    assert measured["name"] == SYSTEM.name
    assert measured["measurements"] > 200
    assert measured["capabilities"] == SYSTEM.capabilities
    assert measured["champion"] in {path.name for path in (ready.bundles / SYSTEM.name).iterdir()}
    assert {"c5.xlarge", "c4.2xlarge"} <= {entry["name"] for entry in document["catalogue"]}
    assert document["here"]["host"]["vendor"]


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_systems_as_a_table(run: Run, ready: Home, monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    """The table has a line for each system and then says which one this host is."""
    monkeypatch.setenv("COLUMNS", str(columns))
    here = run(ready, "systems", "--json").document["here"]["name"]
    done = run(ready, "systems")
    assert f"This host is {here} It is not measured yet: `costmodel bench`" in done.said
    lines = done.out.splitlines()
    table = lines[lines.index(next(line for line in lines if line.startswith("system "))) :]
    assert table[1].split()[0] == SYSTEM.name
    assert max(map(len, table)) <= columns
    assert "Platinum 8124M: c5.large, c5.xlarge, c5.2xlarge" in done.said


def test_a_new_home_knows_the_catalogue(run: Run, tmp_path: Path) -> None:
    """In a new home the catalogue is listed, with how to begin."""
    done = run(tmp_path / "new", "systems")
    assert done.code == 0
    assert "not measured yet: `costmodel bench`" in done.out
    assert "c5.xlarge" in done.out


def test_states_of_a_shared_machine(run: Run, ready: Home, tmp_path: Path) -> None:
    """Shares of the states, slowdowns of models and operators, and the quantiles that follow."""
    home, store = tmp_path / "home", Store(ready.store_url, create=False)
    elsewhere = replace(SYSTEM, name="elsewhere")
    states = {"states_us": {"quiet": 800.0, "memory": 200.0}}
    measured = [
        replace(one, environment=states | {"disturbed_us": {"memory": [3, 2 * one.timing.call_us]}})
        for one in store.measurements(SYSTEM.name, repeats=False)
    ]
    url = f"sqlite:///{tmp_path / 'states.db'}"
    sequences = store.sequences(one.signature for one in measured)
    Store(url).put_results(Results(elsewhere, tuple(measured), sequences))
    document = run(home, "systems", "elsewhere", "--store", url, "--json").document
    assert document["shares"] == {"quiet": 0.8, "memory": 0.2}
    assert document["slowdowns"]["memory"]["Conv"] == pytest.approx(2.0)
    assert document["jitter"]["p99"] >= 2.0 > document["jitter"]["p50"]
    said = run(home, "systems", "elsewhere", "--store", url)
    assert "memory" in said.out
    assert "20%" in said.out
    assert "Users observe, times the latency: p50" in said.said


def test_states_that_were_not_recorded(run: Run, ready: Home) -> None:
    """A system whose measurements have no states says so, and an unknown one is refused."""
    assert "not recorded" in run(ready, "systems", SYSTEM.name).said
    refused = run(ready, "systems", "nowhere")
    assert refused.code == 1
    assert "nowhere" in refused.err
