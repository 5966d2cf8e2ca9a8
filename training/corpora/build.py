"""Builds a corpus: writes the ONNX files of its recipes that do not exist yet."""

import fnmatch
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from costmodel.atomic_write import atomic_file
from costmodel.errors import CostModelError, MissingExtraError, ModelReadError
from costmodel.progress import Progress, reported
from costmodel.training.corpora.recipe import Recipe
from costmodel.training.corpora.registry import MANIFEST, MANIFEST_FORMAT, Entry, recipes_of

__all__ = ["BuildReport", "build_corpus"]


@dataclass(frozen=True, slots=True)
class BuildReport:
    """What the build of a corpus did.

    Attributes:
        entries: Manifest entries of the requested models and of those that they need, each after the one it needs.
        made: Names of the models whose files were written by this build.
        reused: Names of the models whose files already existed.
    """

    entries: tuple[Entry, ...]
    made: tuple[str, ...]
    reused: tuple[str, ...]


def build_corpus(
    corpus: str,
    folder: Path,
    *,
    only: str = "*",
    progress: Progress | None = None,
) -> BuildReport:
    """Writes the ONNX files of a corpus that are missing, and a manifest that lists all that exist.

    An interrupted build leaves no partial file under a model's name, and the next build continues from there. An
    existing file is reused without a check: delete it to have it written again.

    Args:
        corpus: Name of the corpus.
        folder: Folder for the files; created if it does not exist.
        only: Shell-style pattern of the model names to build; the models that they need are built too.
        progress: Called before each model with the number of models done, their total and the model's name, and at the
            end.

    Returns:
        The models that were built, and which of their files were new.

    Raises:
        ModelReadError: No corpus has that name, or none of its models matches `only`.
        MissingExtraError: A package that the recipes need is not installed.
        CostModelError: The folder cannot be written.
    """
    recipes = recipes_of(corpus)
    wanted = _wanted(recipes, only)
    if not wanted:
        raise ModelReadError(
            f"no model of {corpus} is called like {only!r}: `costmodel corpus list {corpus}` names them"
        )
    made, reused = [], []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for recipe in reported(wanted, lambda recipe: recipe.name, progress):
            path = _file(folder, recipe)
            if path.is_file():
                reused.append(recipe.name)
            else:
                _make(recipe, path)
                made.append(recipe.name)
        _write_manifest(corpus, folder, recipes)
    except OSError as error:
        raise CostModelError(
            f"the corpus cannot be written to {folder} ({error.strerror}): make room for it, or name another folder "
            "with --out"
        ) from error
    return BuildReport(tuple(_entry(recipe) for recipe in wanted), tuple(made), tuple(reused))


def _wanted(recipes: Sequence[Recipe], only: str) -> list[Recipe]:
    """Returns the recipes whose names match `only` and the recipes that these need, each after the one it needs."""
    by_name = {recipe.name: recipe for recipe in recipes}
    ordered: dict[str, Recipe] = {}

    def add(recipe: Recipe) -> None:
        if recipe.needs and recipe.needs not in ordered:
            add(by_name[recipe.needs])
        ordered[recipe.name] = recipe

    for recipe in recipes:
        if fnmatch.fnmatchcase(recipe.name, only):
            add(recipe)
    return list(ordered.values())


def _file(folder: Path, recipe: Recipe) -> Path:
    return folder / f"{recipe.name}.onnx"


def _make(recipe: Recipe, path: Path) -> None:
    try:
        with atomic_file(path) as partial:
            recipe.write(partial)
    except MissingExtraError as error:  # names the extra that this recipe needs; other recipes of the corpus need more
        raise MissingExtraError("building a corpus", "corpus") from error


def _entry(recipe: Recipe) -> Entry:
    return Entry(recipe.name, f"{recipe.name}.onnx", recipe.family, recipe.title, recipe.published_layers)


def _write_manifest(corpus: str, folder: Path, recipes: Sequence[Recipe]) -> None:
    there = [asdict(_entry(recipe)) for recipe in recipes if _file(folder, recipe).is_file()]
    document = {"format": MANIFEST_FORMAT, "corpus": corpus, "models": there}
    with atomic_file(folder / MANIFEST) as partial:
        partial.write_text(json.dumps(document, indent=1) + "\n")
