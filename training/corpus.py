"""Corpora: the models that feed training, each with its family."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx

from costmodel.errors import ModelReadError
from costmodel.home import find_home
from costmodel.training.corpora.registry import MADE, read_manifest, recipes_of

__all__ = ["CORPORA", "HELD_BACK", "CorpusModel", "corpus_models", "corpus_names", "known_models"]

# The topologies that the onnx package carries, with the family of each: an architecture lineage, never split
# across training and test.
_LIGHT = {
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

# The model of the first tour's closing prediction: the best-known one, and the only one of its family.
HELD_BACK = "light_resnet50"

CORPORA = {
    "light": tuple(_LIGHT),
    "starter": tuple(name for name in _LIGHT if name != HELD_BACK),
}

_NAMES = (*CORPORA, *MADE)

_LINEAGE = re.compile(r"^[A-Za-z]+")


@dataclass(frozen=True, slots=True)
class CorpusModel:
    """One model of a corpus.

    Attributes:
        name: Unique in the corpus.
        path: Its ONNX file.
        family: Architecture lineage; empty for what is no model of anybody's.
    """

    name: str
    path: Path
    family: str


def corpus_models(corpus: str | Path) -> list[CorpusModel]:
    """The models of a corpus, in order of name.

    Args:
        corpus: The name of a built-in corpus or of one that `costmodel corpus build` made, an ONNX file, or a folder
            with ONNX files at any depth. In a folder the family is the first letters of the file's name, which keeps
            resnet18 and resnet50 together, or the name of the subfolder that the file lies in; a file that came with
            costmodel or was built by it keeps its family.

    Raises:
        ModelReadError: There is no such corpus, it is not or only partly built, or no ONNX file is in it.
    """
    if str(corpus) in MADE:
        return _made(str(corpus))
    if str(corpus) in CORPORA:
        return [CorpusModel(name, _light_path(name), _LIGHT[name]) for name in CORPORA[str(corpus)]]
    if str(corpus) in _LIGHT:
        return [CorpusModel(str(corpus), _light_path(str(corpus)), _LIGHT[str(corpus)])]
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
    return _named(path, files)


def corpus_names(corpus: str) -> list[str]:
    """Names of the models of a corpus, in order; a corpus that can be made need not be built.

    Args:
        corpus: As in `corpus_models`.

    Raises:
        ModelReadError: There is no such corpus, or no ONNX file is in it.
    """
    if corpus in MADE:
        return sorted(recipe.name for recipe in recipes_of(corpus))
    return [model.name for model in corpus_models(corpus)]


def known_models() -> list[CorpusModel]:
    """The models that came with costmodel, and those of every corpus as far as it is built."""
    built = [
        CorpusModel(entry.name, folder / entry.file, entry.family)
        for folder in (find_home().corpora / corpus for corpus in MADE)
        for entry in read_manifest(folder)
    ]
    return [*(CorpusModel(name, _light_path(name), family) for name, family in _LIGHT.items()), *built]


def _made(corpus: str) -> list[CorpusModel]:
    folder = find_home().corpora / corpus
    entries = read_manifest(folder)
    names = {entry.name for entry in entries}
    missing = [recipe.name for recipe in recipes_of(corpus) if recipe.name not in names]
    if missing:
        state = f"lacks {len(missing)} of its models" if names else "is not built"
        raise ModelReadError(f"the corpus {corpus} {state} in {folder}: run `costmodel corpus build {corpus}`")
    return sorted((CorpusModel(e.name, folder / e.file, e.family) for e in entries), key=lambda model: model.name)


def _named(folder: Path, files: Sequence[Path]) -> list[CorpusModel]:
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
    return _LIGHT.get(stem) or (match[0].lower() if match else stem)


def _light_path(name: str) -> Path:
    return Path(onnx.__file__).parent / "backend" / "test" / "data" / "light" / f"{name}.onnx"
