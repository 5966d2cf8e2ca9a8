"""Builds a corpus: writes the ONNX files of its recipes that do not exist yet."""

import fnmatch
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from costmodel.errors import CostModelError, MissingExtraError, ModelReadError
from costmodel.progress import Progress
from costmodel.training.corpora.recipe import Recipe
from costmodel.training.corpora.registry import MANIFEST, MANIFEST_FORMAT, Entry, recipes_of

__all__ = ["BuildReport", "build_corpus"]


@dataclass(frozen=True, slots=True)
class BuildReport:
    """The result of building a corpus.

    Attributes:
        entries: Manifest entries of the requested models, in the order of the recipes.
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
    """Write the missing files of a corpus, and a manifest of all its files that exist.

    An interrupted build leaves no partial file under a model's name, and the next build continues from there. An
    existing
    file is reused without a check: delete it to have it written again.

    Args:
        corpus: Name of the corpus.
        folder: Folder for the files; created if it does not exist.
        only: Shell-style pattern of the model names to build; the models that they need are built too.
        progress: Called before each model with the number done, the total and the model's name.

    Raises:
        ModelReadError: No corpus has that name, or none of its models matches `only`.
        MissingExtraError: A package that writes the files is not installed.
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
        for done, recipe in enumerate(wanted):
            if progress is not None:
                progress(done, len(wanted), recipe.name)
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
    if progress is not None:
        progress(len(wanted), len(wanted), "")
    return BuildReport(tuple(_entry(recipe) for recipe in wanted), tuple(made), tuple(reused))


def _wanted(recipes: Sequence[Recipe], only: str) -> list[Recipe]:
    """Returns the recipes that match `only` and those that they need, each after the one it needs."""
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
    partial = path.with_name(f"{recipe.name}.{os.getpid()}.partial")
    partial.unlink(missing_ok=True)
    try:
        recipe.write(partial)
        os.replace(partial, path)
    except MissingExtraError as error:  # names the extra of one recipe; the whole corpus needs more
        raise MissingExtraError("building a corpus", "corpus") from error
    finally:
        partial.unlink(missing_ok=True)


def _entry(recipe: Recipe) -> Entry:
    return Entry(recipe.name, f"{recipe.name}.onnx", recipe.family, recipe.title, recipe.published_layers)


def _write_manifest(corpus: str, folder: Path, recipes: Sequence[Recipe]) -> None:
    there = [asdict(_entry(recipe)) for recipe in recipes if _file(folder, recipe).is_file()]
    document = {"format": MANIFEST_FORMAT, "corpus": corpus, "models": there}
    partial = folder / f"{MANIFEST}.{os.getpid()}.partial"
    partial.write_text(json.dumps(document, indent=1) + "\n")
    os.replace(partial, folder / MANIFEST)
