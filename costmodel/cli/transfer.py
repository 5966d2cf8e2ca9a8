"""`costmodel export` and `costmodel import`."""

from pathlib import Path
from typing import Annotated

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
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Write a system's measurements to a Parquet file.

    For another machine, or for a data set.
    """
    from costmodel.transfer import export_measurements

    context = Context(store, reads=True)
    name = context.system_name(system, threads)
    count = export_measurements(context.store, name, path)
    if json:
        print_json({"system": name, "path": str(path), "measurements": count})
    else:
        say(f"{count} measurements of {name} in {path}")


@app.command("import")
def import_results(
    path: Annotated[Path, typer.Argument(help="A Parquet file that `costmodel export` wrote.")],
    system: Annotated[
        str | None, typer.Option("--system", metavar="NAME", help="Store them under this name instead.")
    ] = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Add measurements from a Parquet file to the store."""
    from costmodel.transfer import import_measurements

    name, added, known = import_measurements(Context(store).store, path, system)
    if json:
        print_json({"system": name, "added": added, "known": known})
    else:
        say(f"{name}: {added} measurements added, {known} were here already")
