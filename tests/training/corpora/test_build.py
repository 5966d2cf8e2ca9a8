"""Building a corpus: which files are made, which are reused, and what an interrupted build leaves behind."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from costmodel.errors import CostModelError, ModelReadError
from costmodel.paths import find_home
from costmodel.training.corpora import registry
from costmodel.training.corpora.build import build_corpus
from costmodel.training.corpora.recipe import Recipe
from costmodel.training.corpora.registry import MANIFEST, read_manifest, recipes_of
from costmodel.training.corpus import corpus_models

Made = list[str]


def _write(made: Made, name: str, path: Path) -> None:
    made.append(name)
    path.write_text(f"model {name}")


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Made:
    """Names of the models written so far from a corpus `toy` of three models, of which the first needs the last."""
    made: Made = []
    recipes = tuple(
        Recipe(name, "toy", name.title(), partial(_write, made, name), needs, layers)
        for name, needs, layers in (("copy", "third", 3), ("second", "", 0), ("third", "", 3))
    )
    monkeypatch.setitem(registry.RECIPE_MODULES, "toy", "toy_recipes")
    monkeypatch.setitem(sys.modules, "toy_recipes", SimpleNamespace(RECIPES=recipes))
    return made


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home whose data folder contains the toy corpus."""
    monkeypatch.setenv("COSTMODEL_HOME", str(tmp_path))
    return find_home().corpora / "toy"


def test_what_is_needed_comes_first(made: Made, tmp_path: Path) -> None:
    """A model is built after the one it needs, and the manifest keeps the order of the recipes."""
    report = build_corpus("toy", tmp_path)
    assert made == ["third", "copy", "second"]
    assert report.made == tuple(made)
    assert [entry.name for entry in read_manifest(tmp_path)] == ["copy", "second", "third"]


def test_a_second_build_makes_nothing(made: Made, tmp_path: Path) -> None:
    """Existing files are reused unchanged."""
    build_corpus("toy", tmp_path)
    again = build_corpus("toy", tmp_path)
    assert (again.made, set(again.reused)) == ((), set(made))
    assert len(made) == 3


def test_only_some(made: Made, tmp_path: Path) -> None:
    """`only` builds the matching models and those they need; later builds extend the manifest."""
    build_corpus("toy", tmp_path, only="sec*")
    assert made == ["second"]
    build_corpus("toy", tmp_path, only="copy")
    assert made == ["second", "third", "copy"]
    assert len(read_manifest(tmp_path)) == 3


def test_a_killed_build_goes_on(made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Finished files survive an interrupted build, and a partial file is never taken for a model."""
    whole = _recipe("second").write

    def killed(path: Path) -> None:
        path.write_text("half a mo")
        raise KeyboardInterrupt

    _replace(monkeypatch, "second", killed)
    with pytest.raises(KeyboardInterrupt):
        build_corpus("toy", tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"third.onnx", "copy.onnx"}
    _replace(monkeypatch, "second", whole)
    assert build_corpus("toy", tmp_path).made == ("second",)
    assert made == ["third", "copy", "second"]
    assert (tmp_path / "second.onnx").read_text() == "model second"


def _recipe(name: str) -> Recipe:
    return next(recipe for recipe in recipes_of("toy") if recipe.name == name)


def _replace(monkeypatch: pytest.MonkeyPatch, name: str, write: Callable[[Path], None]) -> None:
    recipes = tuple(
        Recipe(r.name, r.family, r.title, write if r.name == name else r.write, r.needs) for r in recipes_of("toy")
    )
    monkeypatch.setitem(sys.modules, "toy_recipes", SimpleNamespace(RECIPES=recipes))


@pytest.mark.usefixtures("made")
def test_a_built_corpus_is_found_by_its_name(home: Path) -> None:
    """A corpus in the data folder is found by its name, with the families of its recipes."""
    build_corpus("toy", home)
    models = corpus_models("toy")
    assert [(model.name, model.family) for model in models] == [("copy", "toy"), ("second", "toy"), ("third", "toy")]
    assert all(model.path == home / f"{model.name}.onnx" for model in models)


@pytest.mark.usefixtures("made")
def test_a_built_corpus_elsewhere_keeps_its_families(tmp_path: Path) -> None:
    """Given as a folder or file by file, models keep the families of their recipes, whatever their names."""
    build_corpus("toy", tmp_path)
    assert {model.family for model in corpus_models(tmp_path)} == {"toy"}
    assert corpus_models(tmp_path / "second.onnx")[0].family == "toy"


@pytest.mark.usefixtures("made")
def test_a_corpus_that_is_not_built_says_how(home: Path) -> None:
    """A corpus that was never built or lacks a model is refused with the command that builds it."""
    with pytest.raises(ModelReadError, match=r"toy is not built .*: run `costmodel corpus build toy`"):
        corpus_models("toy")
    build_corpus("toy", home, only="second")
    with pytest.raises(ModelReadError, match=r"toy lacks 2 of its models .*: run `costmodel corpus build toy`"):
        corpus_models("toy")
    build_corpus("toy", home)
    (home / "copy.onnx").unlink()
    with pytest.raises(ModelReadError, match="lacks 1 of its models"):
        corpus_models("toy")


@pytest.mark.usefixtures("made")
@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"format": 1, "models": [{"nom": 1}]}', '{"format": 99, "models": []}']
)
def test_a_damaged_manifest(tmp_path: Path, content: str) -> None:
    """A damaged manifest is refused with its path and what to do."""
    (tmp_path / MANIFEST).write_text(content)
    with pytest.raises(ModelReadError, match=MANIFEST):
        read_manifest(tmp_path)


@pytest.mark.usefixtures("made")
def test_the_manifest_is_for_others_to_read(tmp_path: Path) -> None:
    """The manifest is one JSON document of a known format."""
    build_corpus("toy", tmp_path)
    document = json.loads((tmp_path / MANIFEST).read_text())
    assert (document["format"], document["corpus"]) == (1, "toy")
    assert document["models"][0] == {
        "name": "copy", "file": "copy.onnx", "family": "toy", "title": "Copy", "published_layers": 3,
    }  # fmt: skip


@pytest.mark.usefixtures("made")
def test_mistakes_are_sentences(tmp_path: Path) -> None:
    """An unknown corpus, an unknown model and a folder that cannot be written are each one sentence."""
    with pytest.raises(ModelReadError, match="'unknown' is no corpus that can be built"):
        build_corpus("unknown", tmp_path)
    with pytest.raises(ModelReadError, match="no model of toy is called like 'x'"):
        build_corpus("toy", tmp_path, only="x")
    (tmp_path / "file").touch()
    with pytest.raises(CostModelError, match="cannot be written to"):
        build_corpus("toy", tmp_path / "file" / "folder")


def test_without_torch_the_install_line_is_given(tmp_path: Path) -> None:
    """Without torch, recipes are listed, and building says what to install."""
    code = (
        "import sys; from pathlib import Path\n"
        "sys.modules['torch'] = None\n"
        "from costmodel.training.corpora.build import build_corpus\n"
        "build_corpus('dlbricks', Path(sys.argv[1]), only='vdsr')"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
    assert re.search(r"MissingExtraError: .*--editable '.\[corpus\]'", done.stderr)
    assert list(tmp_path.iterdir()) == []
