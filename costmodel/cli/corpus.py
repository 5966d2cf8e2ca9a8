"""Implements `costmodel corpus build` and `costmodel corpus list`, which make and list the models of corpora."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from costmodel.cli import app
from costmodel.cli.context import Context
from costmodel.cli.options import JsonOption
from costmodel.cli.output import note, print_json, print_table, progress_bars, say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from costmodel.progress import Progress
    from costmodel.training.corpora.registry import Entry

__all__ = ["build", "corpora", "list_corpora"]

corpora = typer.Typer(no_args_is_help=True)
app.add_typer(corpora, name="corpus", help="Build the models of a corpus; list the corpora.")


@corpora.command()
def build(
    name: Annotated[str, typer.Argument(help="The corpus: `costmodel corpus list` names them.")],
    out: Annotated[Path | None, typer.Option(help="Folder for the files; by default one in the data folder.")] = None,
    only: Annotated[
        str, typer.Option(metavar="PATTERN", help="Only models whose name matches a shell pattern: 'resnet*'.")
    ] = "*",
    json: JsonOption = False,
) -> None:
    """Build the models of a corpus that are not built yet.

    If it is stopped, the same command goes on where it stopped. Prints for each model how many layers the runtime
    executes, and how many the model's source (a paper or a library) states.
    """
    from costmodel.training.corpora.build import build_corpus

    context = Context()
    folder = out or context.home.corpora / name
    with progress_bars() as stage:
        report = build_corpus(name, folder, only=only, progress=stage("making models"))
        layers = _layers(report.entries, folder, context, stage("counting layers"))
    if json:
        print_json(
            {
                "corpus": name,
                "folder": str(folder),
                "made": list(report.made),
                "reused": list(report.reused),
                "models": [
                    {
                        "model": entry.name,
                        "title": entry.title,
                        "family": entry.family,
                        "file": str(folder / entry.file),
                        "layers": layers.get(entry.name),
                        "published_layers": entry.published_layers or None,
                    }
                    for entry in report.entries
                ],
            }
        )
        return
    rows = [
        (entry.name, entry.family or "-", str(layers.get(entry.name, "-")), str(entry.published_layers or "-"))
        for entry in report.entries
    ]
    print_table(("model", "family", "layers", "published"), rows, left=2)
    say(f"{len(report.made)} made, {len(report.reused)} there before, in {folder}.")


def _layers(entries: "Sequence[Entry]", folder: Path, context: Context, progress: "Progress") -> dict[str, int]:
    """Returns the number of layers that the runtime executes, by model; notes and omits unusable models."""
    from costmodel.errors import ModelError
    from costmodel.onnx_io.model import read_model
    from costmodel.progress import reported
    from costmodel.runtimes.base import get_runtime
    from costmodel.runtimes.lowering_cache import lower_cached

    runtime, cache = get_runtime(), context.home.cache
    counts: dict[str, int] = {}
    for entry in reported(entries, lambda entry: entry.name, progress):
        try:
            # No model is kept after its turn: together they may be larger than memory.
            graph = lower_cached(runtime, read_model(folder / entry.file, name=entry.name), "all", cache)
        except ModelError as error:
            note(str(error))
        else:
            counts[entry.name] = len(graph.layers)
    return counts


@corpora.command("list")
def list_corpora(
    name: Annotated[str | None, typer.Argument(help="A corpus that can be built, to list its models.")] = None,
    json: JsonOption = False,
) -> None:
    """List the corpora, or the models of one corpus.

    Shows how many models of each corpus are built or, for one corpus, which.
    """
    if name is None:
        _list_all(json=json)
        return
    from costmodel.training.corpora.registry import read_manifest, recipes_of

    recipes = recipes_of(name)
    folder = Context().home.corpora / name
    built = {entry.name for entry in read_manifest(folder)}
    if json:
        models = [
            {
                "model": recipe.name,
                "title": recipe.title,
                "family": recipe.family,
                "published_layers": recipe.published_layers or None,
                "built": recipe.name in built,
            }
            for recipe in recipes
        ]
        print_json({"corpus": name, "folder": str(folder), "models": models})
        return
    rows = [(r.name, r.family or "-", r.title, "yes" if r.name in built else "no") for r in recipes]
    print_table(("model", "family", "title", "built"), rows, left=3)


def _list_all(*, json: bool) -> None:
    from costmodel.training.corpora.registry import RECIPE_MODULES, read_manifest, recipes_of
    from costmodel.training.corpus import CORPORA

    found: list[dict[str, Any]] = [
        {"corpus": name, "models": len(models), "built": len(models)} for name, models in CORPORA.items()
    ]
    home = Context().home
    for name in RECIPE_MODULES:
        built = len(read_manifest(home.corpora / name))
        found.append({"corpus": name, "models": len(recipes_of(name)), "built": built})
    if json:
        print_json({"corpora": found})
        return
    print_table(("corpus", "models", "built"), [tuple(str(cell) for cell in corpus.values()) for corpus in found])
