"""`costmodel bench`."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from costmodel.cli import app
from costmodel.cli.options import (
    Context,
    GranularityOption,
    JsonOption,
    LevelOption,
    StoreOption,
    SystemOption,
    ThreadsOption,
    parse_budget_s,
)
from costmodel.cli.output import note, print_json, progress_bars, say

if TYPE_CHECKING:
    from costmodel.bench import BenchReport

__all__ = ["bench", "bench_document", "bench_line", "note_failures"]


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
    level: LevelOption = "all",
    assert_system: Annotated[
        bool,
        typer.Option("--assert-system", help="Vouch that this host is the named system; marks the records."),
    ] = False,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Decompose, deduplicate, measure what is missing, store.

    Run it again to go on where it stopped.
    """
    from costmodel.jobs import bench_target

    budget_s = parse_budget_s(budget)
    context = Context(store)
    runtime, here = context.here(system, threads, level=level, asserted=assert_system)
    with progress_bars() as stage:
        report = bench_target(
            context.store,
            here,
            runtime,
            target or corpus,
            context.home.cache,
            granularities=[granularity],
            samples=samples,
            budget_s=budget_s,
            progress=stage,
        )
    note_failures(report)
    if json:
        print_json({"system": here.name, **bench_document(report)})
        return
    say(f"{here.name}: {bench_line(report)}")
    if report.left:
        say("The budget is spent: run the same command again to go on.")


def note_failures(report: "BenchReport") -> None:
    """What was not measured, and why."""
    for what, reason in report.failed.items():
        note(f"{what} was not measured: {reason}")


def bench_line(report: "BenchReport") -> str:
    """A run of the benchmark in one line."""
    return (
        f"{report.measured} measured in {report.seconds:.0f} s, {report.reused} known before, "
        f"{report.unstable} unstable, {len(report.failed)} failed, {report.left} left"
        + (f", {report.dropped} samples dropped" if report.dropped else "")
        + (f", {report.repeated} measured twice" if report.repeated else "")
    )


def bench_document(report: "BenchReport") -> dict[str, Any]:
    """A run of the benchmark as JSON."""
    return {
        "measured": report.measured,
        "reused": report.reused,
        "unstable": report.unstable,
        "failed": report.failed,
        "left": report.left,
        "dropped": report.dropped,
        "repeated": report.repeated,
        "seconds": round(report.seconds, 3),
    }
