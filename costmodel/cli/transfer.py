"""Implements `costmodel export` and `costmodel import`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from costmodel.cli import app
from costmodel.cli.options import Context, JsonOption, StoreOption, SystemOption, ThreadsOption
from costmodel.cli.output import print_json, progress_bars, say

if TYPE_CHECKING:
    from costmodel.store.results import ImportSummary, Results

__all__ = ["export_results", "import_results"]


@app.command("export")
def export_results(
    path: Annotated[Path, typer.Argument(help="The Parquet file to write.")],
    system: SystemOption = None,
    threads: ThreadsOption = 1,
    with_models: Annotated[
        bool, typer.Option("--with-models", help="Also write names, families, layers and latencies of the models.")
    ] = False,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Write a system's measurements to a Parquet file.

    The file is for another machine, or for a data set. Without --with-models it does not reveal the models that the
    measured layers come from; with --with-models it has all that `train`, `evaluate` and `reproduce --no-measure` need
    elsewhere.
    """
    from costmodel.store import parquet

    context = Context(store, reads=True)
    name = context.system_name(system, threads)
    results = parquet.export_results(context.store, name, path, with_models=with_models)
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
    path: Annotated[Path, typer.Argument(help="A file of `costmodel export`, or a .csv of model,latency_us[,runs].")],
    system: Annotated[
        str | None,
        typer.Option("--system", metavar="NAME", help="Store under this name; a .csv by default under this host's."),
    ] = None,
    models: Annotated[
        str | None,
        typer.Option("--models", metavar="DIR_OR_CORPUS", help="Models of a .csv, if the store lacks them."),
    ] = None,
    like: Annotated[
        str | None,
        typer.Option("--like", metavar="SYSTEM", help="A known system of the same hardware, for a .csv of a new one."),
    ] = None,
    assert_system: Annotated[
        bool, typer.Option("--assert-system", help="Assert that the new system of a .csv is this host.")
    ] = False,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Add measurements from a Parquet file or a .csv to the store.

    Models in a Parquet file are added, too. Either everything is added or nothing; records that the store has already
    are not added again. A .csv has observed latencies of whole models, from production for example: `train` uses them
    if there are at least 10.
    """
    from costmodel.store import parquet

    context = Context(store)
    if path.suffix.lower() == ".csv":
        results, added = _import_csv(context, path, system, models, like, asserted=assert_system)
    else:
        for value, option in ((models, "--models"), (like, "--like"), (assert_system, "--assert-system")):
            if value:
                raise typer.BadParameter("a Parquet file contains that itself; this is for a .csv", param_hint=option)
        results, added = parquet.import_results(context.store, path, system)
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


def _import_csv(
    context: Context, path: Path, system: str | None, models: str | None, like: str | None, *, asserted: bool
) -> "tuple[Results, ImportSummary]":
    from costmodel.jobs.latency_import import import_latencies, system_observed
    from costmodel.runtimes.base import get_runtime

    if like is not None and (asserted or system is None):
        raise typer.BadParameter("names what another system is like: give its own with --system", param_hint="--like")
    is_this_host = asserted or system is None
    here = context.here(system, 1, asserted=asserted)[1] if is_this_host else None
    known = system_observed(context.store, system or (here.name if here else ""), like=like, here=here)
    with progress_bars() as stage:
        return import_latencies(
            context.store,
            known,
            get_runtime(known.runtime),
            path,
            context.home.cache,
            models=models,
            progress=stage("lowering models"),
        )
