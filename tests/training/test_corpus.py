"""Corpora: the models of a name, a file or a folder, and their families."""

import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from costmodel.errors import ModelReadError
from costmodel.training.corpus import CORPORA, HELD_BACK, corpus_models, corpus_names


def _touch(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    return folder


def _families(folder: Path) -> dict[str, str]:
    return {model.name: model.family for model in corpus_models(folder)}


def test_built_in_corpora_are_files() -> None:
    """Every model of a built-in corpus exists under a unique name."""
    for corpus in CORPORA:
        models = corpus_models(corpus)
        assert all(model.path.is_file() for model in models)
        assert len({model.name for model in models}) == len(models)
    assert len(corpus_models("light")) == 9


def test_the_model_held_back_is_of_a_family_of_its_own() -> None:
    """The model that the tour predicts last has a family without members in the starter corpus."""
    starter = corpus_models("starter")
    (held_back,) = corpus_models(HELD_BACK)
    assert held_back.family not in {model.family for model in starter}
    assert {*(model.name for model in starter), HELD_BACK} == {model.name for model in corpus_models("light")}


def test_a_file_is_a_corpus_of_one(tmp_path: Path) -> None:
    """A file is a corpus of one model, named after the file; its family is the leading letters of its name."""
    (model,) = corpus_models(_touch(tmp_path, "ResNet50-v1.onnx") / "ResNet50-v1.onnx")
    assert (model.name, model.family) == ("ResNet50-v1", "resnet")


def test_families_by_name(tmp_path: Path) -> None:
    """Names with the same leading letters are one family; a name without leading letters is its own family."""
    _touch(tmp_path, "resnet18.onnx", "resnet50_v2.onnx", "vgg19.onnx", "3dunet.onnx")
    assert _families(tmp_path) == {
        "3dunet": "3dunet",
        "resnet18": "resnet",
        "resnet50_v2": "resnet",
        "vgg19": "vgg",
    }


def test_subfolders_are_families(tmp_path: Path) -> None:
    """Files in a subfolder at any depth are of its family, and equal file names do not collide."""
    _touch(tmp_path, "bert/base/model.onnx", "bert/large/model.onnx", "vision/vgg.onnx", "alone.onnx")
    assert _families(tmp_path) == {
        "alone": "alone",
        "bert/base/model": "bert",
        "bert/large/model": "bert",
        "vision/vgg": "vision",
    }


def test_built_in_models_keep_their_family_in_a_folder(tmp_path: Path, light_models: Mapping[str, Path]) -> None:
    """`light_` is not a family: copies of the light models keep the families of the originals."""
    for path in light_models.values():
        shutil.copy(path, tmp_path)
    assert _families(tmp_path) == {model.name: model.family for model in corpus_models("light")}


def test_other_files_are_passed_over(tmp_path: Path) -> None:
    """Other files, and folders with names like models, are ignored."""
    _touch(tmp_path, "a.onnx", "a.onnx.data", "README.md", "b.onnx/inside.onnx")
    assert list(_families(tmp_path)) == ["a", "b.onnx/inside"]


@pytest.mark.parametrize(
    ("corpus", "sentence"), [("no-such", "neither a corpus"), ("", "no corpus is named"), ("  ", "no corpus is named")]
)
def test_an_unknown_name_is_refused(corpus: str, sentence: str) -> None:
    """An unknown corpus is refused with the known names."""
    with pytest.raises(ModelReadError, match=rf"{sentence}.*light, starter"):
        corpus_models(corpus)


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    """An empty folder is refused with its path and what to put there."""
    with pytest.raises(ModelReadError, match=rf"{tmp_path.name} has no \.onnx file in it: put the models there"):
        corpus_models(_touch(tmp_path, "notes.txt"))


def test_names_are_known_without_the_models(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The model names of a corpus that is not built yet are known; of others they come from the files."""
    monkeypatch.setenv("COSTMODEL_HOME", str(tmp_path))
    names = corpus_names("dlbricks")
    assert len(set(names)) == 50
    assert names == sorted(names)
    assert corpus_names("light") == [model.name for model in corpus_models("light")]
    with pytest.raises(ModelReadError, match="neither a corpus"):
        corpus_names("no-such")
