"""`costmodel decompose`: statistics of repeated layers, and writing a benchmark suite."""

import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from costmodel.partition.suite import is_suite, private_file, read_suite
from costmodel.paths import Home
from costmodel.store.store import Store
from tests.shell import Run


def test_statistics_as_a_document(run: Run, ready: Home) -> None:
    """The document has statistics for each model and the corpus, and the similarity of each pair."""
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
    """The table has a line for each model and for the most repeated kinds, also with long names."""
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = run(ready, "decompose", "light", "-G", granularity).out.splitlines()
    assert max(map(len, lines)) <= columns
    assert sum(line.startswith("light_") for line in lines) == 9
    assert any(line.startswith("all ") for line in lines)
    assert any(line.startswith("most repeated") for line in lines)


def test_a_broken_model_of_a_folder_is_left_out(
    run: Run, ready: Home, light_models: Mapping[str, Path], tmp_path: Path
) -> None:
    """The others are cut, and the broken one is named."""
    shutil.copy(light_models["squeezenet"], tmp_path / "good.onnx")
    (tmp_path / "bad.onnx").write_bytes(b"bad")
    done = run(ready, "decompose", tmp_path, "--json")
    assert [model["model"] for model in done.document["models"]] == ["good"]
    assert "bad is left out: " in " ".join(done.err.split())


def test_a_suite_is_written_with_decoys(run: Run, ready: Home, tmp_path: Path) -> None:
    """A suite has each unique sequence once and the decoys; a separate private file says which is which."""
    folder = tmp_path / "suite"
    document = run(ready, "decompose", "light_squeezenet", "--out", folder, "--decoys", 5, "--json").document
    assert document["bricks"] == {"folder": str(folder), "written": document["unique"] + 5, "decoys": 5}
    assert is_suite(folder)
    assert len(read_suite(folder)) == document["unique"] + 5
    assert set(json.loads(private_file(folder).read_text())["models"]) == {"light_squeezenet"}
    assert "is not empty" in run(ready, "decompose", "light_squeezenet", "--out", folder).err.splitlines()[-1]


def test_the_output_names_the_private_file(run: Run, ready: Home, tmp_path: Path) -> None:
    """The output names the private file."""
    said = run(ready, "decompose", "light_squeezenet", "--out", tmp_path / "suite").said
    assert re.search(r"\d+ networks in .*suite, 0 of them decoys", said)
    assert f"Keep {private_file(tmp_path / 'suite')} to yourself" in said


def test_a_suite_leaves_its_models_with_their_owner(run: Run, tmp_path: Path) -> None:
    """Imported results of a suite find their models and families; decoys keep their origin."""
    run(tmp_path, "decompose", "light_squeezenet", "--out", tmp_path / "suite", "--decoys", "3")
    store = Store(f"sqlite:///{tmp_path / 'data' / 'costmodel.db'}")
    assert [(model.name, model.family) for model in store.models()] == [("light_squeezenet", "squeezenet")]
    assert len(store.samples()) == 3
    store.close()
