"""Implements `costmodel export` and `costmodel import`, which carry measurements from store to store in files."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from costmodel.cli import app
from costmodel.cli.context import Context
from costmodel.cli.options import JsonOption, StoreOption, SystemOption, ThreadsOption, one_of
from costmodel.cli.output import note, print_json, progress_bars, say

if TYPE_CHECKING:
    from costmodel.jobs.latency_import import LatencyImport
    from costmodel.store.results import ImportSummary, Results

__all__ = ["export_results", "import_results"]


def _is_a_level(level: str | None) -> str | None:
    from costmodel.runtimes.base import LEVELS

    return None if level is None else one_of(lambda: LEVELS)(level)


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

    The file can be imported on another machine, or be part of a data set. Without --with-models, it does not reveal the
    models that the measured layers come from; with --with-models, it has all that `train`, `evaluate` and `reproduce
    --no-measure` need on another machine.
    """
    from costmodel.store import parquet

    if path.suffix.lower() == ".csv":
        raise typer.BadParameter("the file is written as Parquet: give it the ending .parquet", param_hint="path")
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
    command: typer.Context,
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", help="Files of `costmodel export`, or one .csv of model,latency_us[,runs]."),
    ],
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
        typer.Option("--like", metavar="SYSTEM", help="A system of the same hardware, here or in data/, for a .csv."),
    ] = None,
    assert_system: Annotated[
        bool, typer.Option("--assert-system", help="Assert that the new system of a .csv is this host.")
    ] = False,
    level: Annotated[
        str | None,
        typer.Option(
            "--level",
            callback=_is_a_level,
            show_default=False,
            help="Optimisation level behind a .csv of a new system; by default the one that predicts its rows best.",
        ),
    ] = None,
    runtime_version: Annotated[
        str | None,
        typer.Option("--runtime-version", metavar="VERSION", help="Version of the runtime behind a .csv, if known."),
    ] = None,
    models_only: Annotated[
        bool,
        typer.Option(
            "--models-only", help="Of a Parquet file, add the latencies of whole models only: a later session's truth."
        ),
    ] = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="Remove what earlier .csv files brought to the system.")
    ] = False,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Add measurements from Parquet files or a .csv file.

    Models in a Parquet file are added, too. Either everything in a file is added or nothing; records that the store has
    already are not added again. A .csv has observed latencies of whole models, for example from production; `train`
    uses them if there are at least 10. Latencies that the hardware cannot have are refused, with their line.
    """
    from costmodel.store import parquet

    context = Context(store, tools=command.obj)
    imports: list[dict[str, Any]] = []
    if any(path.suffix.lower() == ".csv" for path in paths):
        if len(paths) > 1:
            raise typer.BadParameter("import a .csv by itself, not with other files", param_hint="FILE...")
        if models_only:
            raise typer.BadParameter("a .csv has whole models anyway: leave it out", param_hint="--models-only")
        done = _import_csv(
            context, paths[0], system, models, like, level, runtime_version, asserted=assert_system, replaces=replace
        )
        for warning in done.warnings:
            note(warning)
        details = {"level": done.results.system.settings.level, "warnings": list(done.warnings)}
        imports.append(_report(paths[0], done.results, done.added, quiet=json) | details)
    else:
        for value, option in (
            (models, "--models"), (like, "--like"), (assert_system, "--assert-system"), (level, "--level"),
            (runtime_version, "--runtime-version"), (replace, "--replace"),
        ):  # fmt: skip
            if value:
                raise typer.BadParameter("a Parquet file contains that itself; this is for a .csv", param_hint=option)
        for path in paths:
            results, added = parquet.import_results(context.store, path, system, models_only=models_only)
            imports.append(_report(path, results, added, quiet=json))
    if json:
        print_json({"files": imports})


def _report(path: Path, results: "Results", added: "ImportSummary", *, quiet: bool) -> dict[str, Any]:
    """Returns what was added from a file as a JSON object, and prints it as a line unless `quiet` is true."""
    name = results.system.name
    document: dict[str, Any] = {
        "file": str(path), "system": name, "added": added.measurements, "known": added.known,
    }  # fmt: skip
    line = f"{name}: {added.measurements} measurements added, {added.known} were here already"
    if results.models:
        here = {model.name for model in results.models} - added.models
        document["models"] = {"added": len(added.models), "known": len(here)}
        line += f"; {len(added.models)} models added, {len(here)} were here already"
    if added.removed:
        document["replaced"] = added.removed
        line += f"; {added.removed} imported earlier were removed"
    if not quiet:
        say(line)
    return document


def _import_csv(
    context: Context,
    path: Path,
    system: str | None,
    models: str | None,
    like: str | None,
    level: str | None,
    runtime_version: str | None,
    *,
    asserted: bool,
    replaces: bool,
) -> "LatencyImport":
    from costmodel.jobs.latency_import import has_only_observed, import_latencies, system_observed
    from costmodel.runtimes.base import LEVELS, get_runtime

    if like is not None and (asserted or system is None):
        raise typer.BadParameter("names what another system is like: give its own with --system", param_hint="--like")
    if like is not None:
        context.import_if_shipped(like)
    is_this_host = asserted or system is None
    here = context.here(system, 1, level=level or "all", asserted=asserted)[1] if is_this_host else None
    name = system or (here.name if here else "")
    is_new = name not in context.store.systems() or (replaces and has_only_observed(context.store, name))
    found = system_observed(
        context.store, name, like=like, here=here, level=level, runtime_version=runtime_version, replaces=replaces
    )
    # The level is unknown if nobody gave it; the default name of this host says it.
    open_level = level is None and is_new and system is not None
    levels = sorted(LEVELS, key=lambda one: one != found.settings.level) if open_level else ()
    with progress_bars() as stage:
        return import_latencies(
            context.store,
            found,
            context.tools.runtime or get_runtime(found.runtime),
            path,
            context.home.cache,
            models=models,
            levels=levels,
            replaces=replaces,
            progress=stage("lowering models"),
            bench=context.bench,
        )
