"""`costmodel systems`: measured systems, catalogued systems and this host."""

from pathlib import Path

import pytest

from costmodel.paths import Home
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
    assert "c5.xlarge" in {line.split()[0] for line in table}
    assert max(map(len, table)) <= columns


def test_a_new_home_knows_the_catalogue(run: Run, tmp_path: Path) -> None:
    """In a new home the catalogue is listed, with how to begin."""
    done = run(tmp_path / "new", "systems")
    assert done.code == 0
    assert "not measured yet: `costmodel bench`" in done.out
    assert "c5.xlarge" in done.out
