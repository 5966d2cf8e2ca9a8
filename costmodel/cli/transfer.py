"""`costmodel export` and `costmodel import`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from costmodel.cli import app
from costmodel.cli.options import Context, JsonOption, StoreOption, SystemOption, ThreadsOption
from costmodel.cli.output import print_json, say

__all__ = ["export_results", "import_results"]


@app.command("export")
def export_results(
    path: Annotated[Path, typer.Argument(help="The Parquet file to write.")],
    system: SystemOption = None,
    threads: ThreadsOption = 1,
    with_models: Annotated[
        bool, typer.Option("--with-models", help="Names, families, layers and latencies of the models too.")
    ] = False,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Write a system's measurements to a Parquet file.

    For another machine, or for a data set. Without --with-models the file says nothing of the models that the measured
    layers are of; with it, it has all that train, evaluate and reproduce --no-measure need elsewhere.
    """
    from costmodel import transfer

    context = Context(store, reads=True)
    name = context.system_name(system, threads)
    results = transfer.export_results(context.store, name, path, with_models=with_models)
    count = len(results.measurements)
    document: dict[str, Any] = {"system": name, "path": str(path), "measurements": count}
    line = f"{count} measurements of {name}"
    if with_models:
        document["models"] = len({model.name for model in results.models})
        line += f" and {document['models']} models"
    if json:
        print_json(document)
    else:
        say(f"{line} in {path}")


@app.command("import")
def import_results(
    path: Annotated[Path, typer.Argument(help="A Parquet file that `costmodel export` wrote.")],
    system: Annotated[
        str | None, typer.Option("--system", metavar="NAME", help="Store them under this name instead.")
    ] = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Add measurements from a Parquet file to the store.

    And models, where they are in it. All of it or nothing; what is here already is not added again.
    """
    from costmodel import transfer

    results, added = transfer.import_results(Context(store).store, path, system)
    name = results.system.name
    document: dict[str, Any] = {"system": name, "added": added.measurements, "known": added.known}
    line = f"{name}: {added.measurements} measurements added, {added.known} were here already"
    if results.models:
        here = {model.name for model in results.models} - added.models
        document["models"] = {"added": len(added.models), "known": len(here)}
        line += f"; {len(added.models)} models added, {len(here)} were here already"
    if json:
        print_json(document)
    else:
        say(line)
