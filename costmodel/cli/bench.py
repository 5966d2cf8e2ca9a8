"""`costmodel bench`."""

from typing import Annotated

import typer

from costmodel.cli import app
from costmodel.cli.options import (
    Context,
    GranularityOption,
    JsonOption,
    StoreOption,
    SystemOption,
    ThreadsOption,
)
from costmodel.cli.output import console, note, print_json, progress_bars


@app.command()
def bench(
    target: Annotated[
        str | None, typer.Argument(help="A folder of bricks or models, or one model; instead of --corpus.")
    ] = None,
    corpus: Annotated[str, typer.Option(help="Name of a corpus, or a folder of models.")] = "light",
    system: SystemOption = None,
    budget: Annotated[str | None, typer.Option(help="Stop measuring after this long: 90s, 10m, 1h.")] = None,
    granularity: GranularityOption = 1,
    samples: Annotated[
        int, typer.Option(min=0, help="Also measure this many sequences of no model, sampled around these.")
    ] = 0,
    threads: ThreadsOption = 1,
    level: Annotated[str, typer.Option(help="Optimisation level: none, basic, extended or all.")] = "all",
    assert_system: Annotated[
        bool,
        typer.Option("--assert-system", help="Vouch that this host is the named system; marks the records."),
    ] = False,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Decompose, deduplicate, measure what is missing, store. Run again to go on where it stopped."""
    from costmodel.jobs import bench_target
    from costmodel.runtimes import LEVELS
    from costmodel.units import parse_duration_s

    if level not in LEVELS:
        raise typer.BadParameter(f"{level!r} is no level: choose one of {', '.join(LEVELS)}", param_hint="--level")
    try:
        budget_s = None if budget is None else parse_duration_s(budget)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--budget") from error
    context = Context(store)
    runtime, here = context.here(system, threads, level=level, asserted=assert_system)
    with progress_bars() as stage:
        report = bench_target(
            context.store,
            here,
            runtime,
            target or corpus,
            context.home.cache,
            granularity=granularity,
            samples=samples,
            budget_s=budget_s,
            progress=stage,
        )
    for what, reason in report.failed.items():
        note(f"{what} was not measured: {reason}")
    if json:
        print_json(
            {
                "system": here.name,
                "measured": report.measured,
                "reused": report.reused,
                "unstable": report.unstable,
                "failed": report.failed,
                "left": report.left,
                "seconds": round(report.seconds, 3),
            }
        )
        return
    out = console()
    out.print(
        f"{here.name}: {report.measured} measured in {report.seconds:.0f} s, {report.reused} known before, "
        f"{report.unstable} unstable, {len(report.failed)} failed, {report.left} left"
    )
    if report.left:
        out.print("The budget is spent: run the same command again to go on.")
