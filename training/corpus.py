"""Corpora: the models that feed training, each with its family."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx

from costmodel.errors import ModelReadError
from costmodel.paths import find_home
from costmodel.training.corpora.registry import RECIPE_MODULES, read_manifest, recipes_of

__all__ = ["CORPORA", "HELD_BACK", "CorpusModel", "corpus_models", "corpus_names", "known_models"]

# Models that the onnx package contains, each with its family: an architecture lineage that is never split across
# training and test.
_LIGHT_FAMILIES = {
    "light_bvlc_alexnet": "alexnet",
    "light_densenet121": "densenet",
    "light_inception_v1": "inception",
    "light_inception_v2": "inception",
    "light_resnet50": "resnet",
    "light_shufflenet": "shufflenet",
    "light_squeezenet": "squeezenet",
    "light_vgg19": "vgg",
    "light_zfnet512": "alexnet",
}

# Model that the introductory tour predicts at its end: the best-known one, and the only one of its family.
HELD_BACK = "light_resnet50"

CORPORA = {
    "light": tuple(_LIGHT_FAMILIES),
    "starter": tuple(name for name in _LIGHT_FAMILIES if name != HELD_BACK),
}

_NAMES = (*CORPORA, *RECIPE_MODULES)

_LINEAGE = re.compile(r"^[A-Za-z]+")


@dataclass(frozen=True, slots=True)
class CorpusModel:
    """One model of a corpus.

    Attributes:
        name: Name of the model, unique in the corpus.
        path: Path of the ONNX file.
        family: Architecture lineage; empty for models that no one deploys.
    """

    name: str
    path: Path
    family: str


def corpus_models(corpus: str | Path) -> list[CorpusModel]:
    """Returns the models of a corpus, in order of name.

    Args:
        corpus: Name of a built-in corpus or of one of its models, name of a corpus that `costmodel corpus build` made,
            path of an ONNX file, or path of a folder with ONNX files at any depth. The family of a file in a subfolder
            of that folder is the name of the subfolder. Outside subfolders, a file that came with costmodel or was
            built by it keeps its family, and the family of any other file is the letters that its name begins with,
            which keeps resnet18 and resnet50 together.

    Raises:
        ModelReadError: There is no such corpus, it is not completely built, or it contains no ONNX file.
    """
    if str(corpus) in RECIPE_MODULES:
        return _built_models(str(corpus))
    if str(corpus) in CORPORA:
        return [CorpusModel(name, _light_path(name), _LIGHT_FAMILIES[name]) for name in CORPORA[str(corpus)]]
    if str(corpus) in _LIGHT_FAMILIES:
        return [CorpusModel(str(corpus), _light_path(str(corpus)), _LIGHT_FAMILIES[str(corpus)])]
    path = Path(corpus)
    if not str(corpus).strip():
        raise ModelReadError(f"no corpus is named: give one of {', '.join(_NAMES)}, a file or a folder")
    if path.is_file():
        return [CorpusModel(path.stem, path, _built_families(path.parent).get(path.name, _lineage(path.stem)))]
    if not path.is_dir():
        raise ModelReadError(f"{corpus} is neither a corpus ({', '.join(_NAMES)}) nor a file or folder: check the name")
    files = sorted(file for file in path.rglob("*.onnx") if file.is_file())
    if not files:
        raise ModelReadError(f"the folder {path} has no .onnx file in it: put the models there")
    return _folder_models(path, files)


def corpus_names(corpus: str) -> list[str]:
    """Returns the sorted names of the models of a corpus.

    A corpus that `costmodel corpus build` makes need not have been built.

    Args:
        corpus: Corpus, as in `corpus_models`.

    Raises:
        ModelReadError: There is no such corpus, or it contains no ONNX file.
    """
    if corpus in RECIPE_MODULES:
        return sorted(recipe.name for recipe in recipes_of(corpus))
    return [model.name for model in corpus_models(corpus)]


def known_models() -> list[CorpusModel]:
    """Returns the models that came with costmodel, and those that `costmodel corpus build` has built."""
    built = [
        CorpusModel(entry.name, folder / entry.file, entry.family)
        for folder in (find_home().corpora / corpus for corpus in RECIPE_MODULES)
        for entry in read_manifest(folder)
    ]
    return [*(CorpusModel(name, _light_path(name), family) for name, family in _LIGHT_FAMILIES.items()), *built]


def _built_models(corpus: str) -> list[CorpusModel]:
    folder = find_home().corpora / corpus
    entries = read_manifest(folder)
    names = {entry.name for entry in entries}
    missing = [recipe.name for recipe in recipes_of(corpus) if recipe.name not in names]
    if missing:
        state = f"lacks {len(missing)} of its models" if names else "is not built"
        raise ModelReadError(f"the corpus {corpus} {state} in {folder}: run `costmodel corpus build {corpus}`")
    return sorted((CorpusModel(e.name, folder / e.file, e.family) for e in entries), key=lambda model: model.name)


def _folder_models(folder: Path, files: Sequence[Path]) -> list[CorpusModel]:
    models = []
    built = _built_families(folder)
    for file in files:
        relative = file.relative_to(folder)
        by_name = built.get(str(relative), _lineage(file.stem))
        family = relative.parts[0] if len(relative.parts) > 1 else by_name
        models.append(CorpusModel(str(relative.with_suffix("")), file, family))
    return models


def _built_families(folder: Path) -> dict[str, str]:
    return {entry.file: entry.family for entry in read_manifest(folder)}


def _lineage(stem: str) -> str:
    match = _LINEAGE.match(stem)
    return _LIGHT_FAMILIES.get(stem) or (match[0].lower() if match else stem)


def _light_path(name: str) -> Path:
    return Path(onnx.__file__).parent / "backend" / "test" / "data" / "light" / f"{name}.onnx"
