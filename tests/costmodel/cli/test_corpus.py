"""`costmodel corpus`."""

from pathlib import Path

from tests.shell import Run


def test_what_can_be_built_is_listed(run: Run, tmp_path: Path) -> None:
    """Corpora of files and corpora to be built are listed; listing builds nothing."""
    corpora = {c["corpus"]: c for c in run(tmp_path, "corpus", "list", "--json").document["corpora"]}
    assert corpora["light"] == {"corpus": "light", "models": 9, "built": 9}
    assert corpora["dlbricks"] == {"corpus": "dlbricks", "models": 50, "built": 0}
    assert "dlbricks" in run(tmp_path, "corpus", "list").out


def test_a_part_is_built_counted_and_listed(run: Run, tmp_path: Path) -> None:
    """A part of a corpus is built once and listed with our and the published number of layers."""
    (model,) = run(tmp_path, "corpus", "build", "dlbricks", "--only", "vdsr", "--json").document["models"]
    assert model["published_layers"] == 40
    assert 20 <= model["layers"] <= 40
    assert Path(model["file"]).is_file()
    again = run(tmp_path, "corpus", "build", "dlbricks", "--only", "vdsr")
    assert "0 made, 1 there before" in again.out
    assert ["vdsr", "vdsr", str(model["layers"]), "40"] in [line.split() for line in again.out.splitlines()]
    models = {m["model"]: m["built"] for m in run(tmp_path, "corpus", "list", "dlbricks", "--json").document["models"]}
    assert [name for name, built in models.items() if built] == ["vdsr"]
    assert "Very Deep Net" in run(tmp_path, "corpus", "list", "dlbricks").out
    assert "costmodel corpus build dlbricks" in run(tmp_path, "decompose", "dlbricks").sentence


def test_no_such_corpus(run: Run, tmp_path: Path) -> None:
    """An unknown corpus is one sentence with the known ones."""
    assert "dlbricks" in run(tmp_path, "corpus", "build", "bricks").sentence
    assert "dlbricks" in run(tmp_path, "corpus", "list", "bricks").sentence
