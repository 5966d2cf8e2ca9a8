"""`costmodel export` and `costmodel import`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from costmodel.cli import app
from costmodel.cli.options import Context, JsonOption, StoreOption, SystemOption, ThreadsOption
from costmodel.cli.output import print_json, progress_bars, say

if TYPE_CHECKING:
    from costmodel.results import Added, Results

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
    path: Annotated[Path, typer.Argument(help="What `costmodel export` wrote, or a .csv of model,latency_us[,runs].")],
    system: Annotated[
        str | None,
        typer.Option("--system", metavar="NAME", help="Store them under this name; a .csv is of this host by default."),
    ] = None,
    models: Annotated[
        str | None,
        typer.Option("--models", metavar="DIR_OR_CORPUS", help="Where the models of a .csv are, if not known already."),
    ] = None,
    like: Annotated[
        str | None,
        typer.Option("--like", metavar="SYSTEM", help="A known system of the same hardware, for a .csv of a new one."),
    ] = None,
    assert_system: Annotated[
        bool, typer.Option("--assert-system", help="Vouch that the new system of a .csv is this host.")
    ] = False,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Add measurements from a Parquet file or a .csv to the store.

    And models, where they are in it. All of it or nothing; what is here already is not added again. A .csv has the
    latencies of whole models that you have from production: `train` learns from 10 of them on.
    """
    from costmodel import transfer

    context = Context(store)
    if path.suffix.lower() == ".csv":
        results, added = _import_csv(context, path, system, models, like, asserted=assert_system)
    else:
        for value, option in ((models, "--models"), (like, "--like"), (assert_system, "--assert-system")):
            if value:
                raise typer.BadParameter("a Parquet file says that itself; this is for a .csv", param_hint=option)
        results, added = transfer.import_results(context.store, path, system)
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
) -> "tuple[Results, Added]":
    from costmodel.latencies import import_latencies, system_observed
    from costmodel.runtimes import get_runtime

    if like is not None and (asserted or system is None):
        raise typer.BadParameter("names what another system is like: give its own with --system", param_hint="--like")
    vouched = asserted or system is None
    here = context.here(system, 1, asserted=asserted)[1] if vouched else None
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
