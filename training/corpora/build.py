"""Making a corpus: follows the recipes whose files are not there yet."""

import fnmatch
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from costmodel.errors import CostModelError, MissingExtraError, ModelReadError
from costmodel.training.corpora.recipe import Recipe
from costmodel.training.corpora.registry import MANIFEST, MANIFEST_FORMAT, Entry, recipes_of

__all__ = ["BuildReport", "build_corpus"]


@dataclass(frozen=True, slots=True)
class BuildReport:
    """What came of it.

    Attributes:
        entries: The models that were asked for, in the order of the recipes.
        made: Names of those whose files were made now.
        reused: Names of those whose files were there.
    """

    entries: tuple[Entry, ...]
    made: tuple[str, ...]
    reused: tuple[str, ...]


def build_corpus(
    corpus: str,
    folder: Path,
    *,
    only: str = "*",
    progress: Callable[[int, int, str], None] | None = None,
) -> BuildReport:
    """Make the files of a corpus that are missing, and the manifest of all that are there.

    Killed at any moment, it leaves no half-written file under a model's name, and goes on from there the next time. A
    file that is there is taken as it is: delete it to have it made again.

    Args:
        corpus: Its name.
        folder: Where the files go; made if need be.
        only: Pattern of the names to make, as in a shell; what they need is made too.
        progress: Told before each model.

    Raises:
        ModelReadError: There is no such corpus, or no name in it is like `only`.
        MissingExtraError: What writes the files is not installed.
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
    """Those asked for and those that they need, each after what it needs."""
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
    except MissingExtraError as error:  # of the one recipe; what the whole corpus needs is more
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
