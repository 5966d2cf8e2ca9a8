"""Implements `costmodel survey`, which measures the standard set on this host."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from costmodel.cli import app
from costmodel.cli.bench_report import bench_document, bench_line, note_failures
from costmodel.cli.child_process import call_in_child_process
from costmodel.cli.context import Context, Tools
from costmodel.cli.options import JsonOption, RuntimeOption, parse_budget_s
from costmodel.cli.output import note, print_json, print_table, progress_bars, say

if TYPE_CHECKING:
    from costmodel.jobs.bench_report import BenchReport

__all__ = ["survey"]

_THREADS = (1, 2)


@app.command()
def survey(
    command: typer.Context,
    threads: Annotated[
        str | None,
        typer.Option(
            help="Numbers of threads, each of which is a system; by default 1,2, or 1 on a host with one CPU.",
            show_default=False,
        ),
    ] = None,
    budget: Annotated[
        str, typer.Option(help="Stop measuring after this long, which the numbers of threads share: 10m, 1h.")
    ] = "40m",
    passes: Annotated[
        int, typer.Option(min=1, help="How often each model is to be measured; a second pass is best on another day.")
    ] = 1,
    runtime: RuntimeOption = "onnxruntime",
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder for the Parquet files.")] = Path("survey"),
    json: JsonOption = False,
) -> None:
    """Measure the standard set on this new machine.

    The standard set of a runtime is 150 models and about 3,000 layers that every new machine measures; no model files
    are needed. The results are exported as Parquet files for data/, which have nothing else that was measured on this
    host. If it is stopped, the same command goes on where it stopped.
    """
    from costmodel.errors import DataFileError
    from costmodel.jobs.survey import load_standard_set
    from costmodel.store.parquet import export_results
    from costmodel.store.store import Store

    budget_s = parse_budget_s(budget)
    assert budget_s is not None
    numbers = _thread_counts(threads)
    context = Context(tools=command.obj, runtime_name=runtime)
    standard = load_standard_set(context.tools.shipped_data, context.runtime.name)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataFileError(f"{out} cannot be made ({error.strerror}): give a folder that can be written") from error
    if not json:
        say(
            f"The standard set has {len(standard.models)} models and {standard.layers} layers: about "
            f"{standard.seconds / 60:.0f} minutes with one thread on {standard.base}."
        )
    deadline_s = time.monotonic() + budget_s
    measured: list[tuple[int, str, BenchReport, Path]] = []
    for position, number in enumerate(numbers):
        share_s = max(0.0, deadline_s - time.monotonic()) / (len(numbers) - position)
        if context.tools.runtime is None:
            name, report = call_in_child_process(_measure, number, share_s, passes, context.tools.shipped_data, runtime)
        else:  # a runtime that the caller has made cannot be sent to another process
            name, report = _measure(number, share_s, passes, context.tools.shipped_data, runtime, context.tools)
        note_failures(report)
        path = out / f"{name}.parquet"
        store = Store(context.home.survey_store_url)
        export_results(store, name, path, with_models=True)
        store.close()
        note(f"{name}: {bench_line(report)}")
        measured.append((number, name, report, path))
    if json:
        print_json({"systems": [_document(*of_system) for of_system in measured]})
        return
    print_table(
        ("system", "measured", "stored before", "failed", "left", "seconds"),
        [
            (name, *map(str, (r.measured + r.repeated, r.reused, len(r.failed), r.left, round(r.seconds))))
            for _, name, r, _ in measured
        ],
    )
    if any(report.left for _, _, report, _ in measured):
        say("The budget is spent: run the same command again to go on.")
    for *_, path in measured:
        say(f"{path}")
    say(
        "Put the files into data/ of a clone of costmodel, and describe the machine in data/README.md. To predict with "
        "them on this host, import each: `costmodel import FILE`."
    )


def _thread_counts(text: str | None) -> list[int]:
    """Parses the value of `--threads`; None gives one thread and, if the host has two CPUs, two threads.

    Raises:
        typer.BadParameter: `text` is not a list of numbers.
    """
    from costmodel.systems.host import usable_cpus
    from costmodel.units import parse_numbers

    if text is None:
        return [number for number in _THREADS if number <= max(1, usable_cpus())]
    try:
        return parse_numbers(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--threads") from error


def _measure(
    threads: int, budget_s: float, passes: int, folder: Path | None, runtime_name: str, tools: Tools | None = None
) -> "tuple[str, BenchReport]":
    """Measures the standard set with a number of threads; returns the name of the system, and the report."""
    from costmodel.jobs.survey import load_standard_set
    from costmodel.jobs.survey import survey as run_survey
    from costmodel.paths import find_home

    begin_s = time.monotonic()
    context = Context(find_home().survey_store_url, tools=tools or Tools(), runtime_name=runtime_name)
    runtime, here = context.here(None, threads)
    standard = load_standard_set(folder, runtime.name)
    with progress_bars() as stage:
        report = run_survey(
            context.store,
            here,
            runtime,
            standard,
            folder=folder,
            passes=passes,
            budget_s=max(0.0, budget_s - (time.monotonic() - begin_s)),
            progress=stage,
            bench=context.bench,
        )
    context.store.close()
    return here.name, report


def _document(threads: int, name: str, report: "BenchReport", path: Path) -> dict[str, Any]:
    return {"system": name, "threads": threads, "path": str(path), **bench_document(report)}
