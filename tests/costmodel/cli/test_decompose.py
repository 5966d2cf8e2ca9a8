"""`costmodel decompose`: what repeats, and a suite that travels."""

import json
import re
from pathlib import Path

import pytest

from costmodel.bricks import is_brick_folder, private_file, read_bricks
from costmodel.home import Home
from costmodel.store import Store
from tests.shell import Run


def test_statistics_as_a_document(run: Run, ready: Home) -> None:
    """Per model and over the corpus; how alike any two are."""
    document = run(ready, "decompose", "light", "--json").document
    assert document["granularity"] == 1
    assert len(document["models"]) == len(document["jaccard"]) == 9
    assert document["total"] == sum(model["sequences"] for model in document["models"])
    assert document["unique"] <= sum(model["unique"] for model in document["models"])
    assert document["unique_share"] == pytest.approx(document["unique"] / document["total"])
    assert all(row[position] == 1 for position, row in enumerate(document["jaccard"]))
    assert document["bricks"] is None


@pytest.mark.parametrize(("columns", "granularity"), [(80, 1), (80, 5), (120, 5)])
def test_statistics_as_a_table(
    run: Run, ready: Home, monkeypatch: pytest.MonkeyPatch, columns: int, granularity: int
) -> None:
    """A line for each model and for the most repeated kinds, long names of kinds included."""
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = run(ready, "decompose", "light", "-G", granularity).out.splitlines()
    assert max(map(len, lines)) <= columns
    assert sum(line.startswith("light_") for line in lines) == 9
    assert any(line.startswith("all ") for line in lines)
    assert any(line.startswith("most repeated") for line in lines)


def test_a_suite_is_written_with_decoys(run: Run, ready: Home, tmp_path: Path) -> None:
    """Each unique sequence once and the decoys among them; what is whose stays in a file of its own."""
    folder = tmp_path / "bricks"
    document = run(ready, "decompose", "light_squeezenet", "--out", folder, "--decoys", 5, "--json").document
    assert document["bricks"] == {"folder": str(folder), "written": document["unique"] + 5, "decoys": 5}
    assert is_brick_folder(folder)
    assert len(read_bricks(folder)) == document["unique"] + 5
    assert set(json.loads(private_file(folder).read_text())["models"]) == {"light_squeezenet"}
    assert "is not empty" in run(ready, "decompose", "light_squeezenet", "--out", folder).err.splitlines()[-1]


def test_people_are_told_what_to_keep(run: Run, ready: Home, tmp_path: Path) -> None:
    """The private file is named."""
    said = run(ready, "decompose", "light_squeezenet", "--out", tmp_path / "bricks").said
    assert re.search(r"\d+ bricks in .*bricks, 0 of them decoys", said)
    assert f"Keep {private_file(tmp_path / 'bricks')} to yourself" in said


def test_a_suite_leaves_its_models_with_their_owner(run: Run, tmp_path: Path) -> None:
    """So that results from elsewhere find their models and families here, and decoys are held out with their origin."""
    run(tmp_path, "decompose", "light_squeezenet", "--out", tmp_path / "bricks", "--decoys", "3")
    store = Store(f"sqlite:///{tmp_path / 'data' / 'costmodel.db'}")
    assert [(model.name, model.family) for model in store.models()] == [("light_squeezenet", "squeezenet")]
    assert len(store.samples()) == 3
    store.close()
