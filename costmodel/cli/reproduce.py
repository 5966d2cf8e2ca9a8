"""`costmodel reproduce`."""

import multiprocessing
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from costmodel.cli import app
from costmodel.cli.options import Context, JsonOption, StoreOption
from costmodel.cli.output import note, plain, print_json, print_table, progress_bars, say

if TYPE_CHECKING:
    from costmodel.reproduction.report import CorpusResult

__all__ = ["reproduce"]

_PAPERS = ("dlbricks",)


@app.command()
def reproduce(
    paper: Annotated[str, typer.Argument(help="Whose figures: dlbricks.")],
    corpus: Annotated[
        list[str] | None, typer.Option(help="Corpora to take; by default dlbricks and modern.", show_default=False)
    ] = None,
    threads: Annotated[str, typer.Option(help="Threads of the systems, such as 1,2.")] = "1,2",
    level: Annotated[str, typer.Option(help="Optimisation levels of the systems, such as all,none.")] = "all",
    granularity: Annotated[str, typer.Option("--granularity", "-G", help="Granularities, such as 1-10 or 1,2,4.")] = (
        "1-10"
    ),
    out: Annotated[Path, typer.Option(help="Folder for figures, tables and summary.json.")] = Path("results"),
    measure: Annotated[
        bool, typer.Option("--measure/--no-measure", help="Measure what is missing, or report on what is there.")
    ] = True,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Draw a paper's figures, measured here; print its numbers.

    Its models are measured end to end and in layers, in the same passes. Run it again to go on where it stopped.
    """
    from costmodel.reproduction.collect import collect
    from costmodel.reproduction.figures import check_installed
    from costmodel.reproduction.report import summary_document, write_report
    from costmodel.runtimes import LEVELS, lowering_key
    from costmodel.training.corpus import corpus_models
    from costmodel.units import parse_numbers

    if paper not in _PAPERS:
        raise typer.BadParameter(f"{paper!r} is not one of {', '.join(_PAPERS)}")
    try:
        granularities = parse_numbers(granularity)
        systems = [(number, name) for name in level.split(",") for number in parse_numbers(threads)]
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    if unknown := {name for _, name in systems} - set(LEVELS):
        raise typer.BadParameter(f"{', '.join(unknown)} is not one of {', '.join(LEVELS)}", param_hint="--level")
    check_installed()
    corpora = {name: corpus_models(name) for name in corpus or ("dlbricks", "modern")}
    results: list[CorpusResult] = []
    for number, optimisation in systems:
        for name in corpora:
            if measure:
                _in_a_process_of_its_own(store, name, number, optimisation, granularities)
            context = Context(store, reads=not measure)
            runtime, here = context.here(None, number, level=optimisation)
            families = {model.name: model.family for model in corpora[name]}
            found = collect(context.store, here.name, lowering_key(runtime, optimisation), name, families)
            if found is None:
                note(f"{here.name} has no model of {name} that is measured whole and in layers: leave out --no-measure")
                continue
            results.append(found)
            write_report(out, results)
    if json:
        print_json(summary_document(results))
        return
    if results:
        _print(results)
        say(f"Figures, tables and summary.json are in {out}.")


def _in_a_process_of_its_own(
    store: str | None, corpus: str, threads: int, level: str, granularities: Sequence[int]
) -> None:
    """A process of onnxruntime has one number of threads."""
    child = multiprocessing.get_context("spawn").Process(
        target=_measure, args=(store, corpus, threads, level, granularities)
    )
    child.start()
    try:
        child.join()
    except BaseException:
        child.terminate()
        child.join()
        raise
    if child.exitcode:
        raise typer.Exit(1 if child.exitcode < 0 else child.exitcode)


def _measure(store: str | None, corpus: str, threads: int, level: str, granularities: Sequence[int]) -> None:
    from costmodel.cli.bench import bench_line, note_failures
    from costmodel.errors import CostModelError
    from costmodel.jobs import bench_target

    context = Context(store)
    try:
        runtime, here = context.here(None, threads, level=level)
        with progress_bars() as stage:
            report = bench_target(
                context.store, here, runtime, corpus, context.home.cache, granularities=granularities, progress=stage
            )
    except CostModelError as error:
        sys.stderr.write(f"costmodel: {plain(str(error))}\n")
        raise SystemExit(1) from None
    note_failures(report)
    note(f"{here.name}, {corpus}: {bench_line(report)}")


def _print(results: "Sequence[CorpusResult]") -> None:
    from costmodel.reproduction import paper

    rows: list[tuple[Any, ...]] = [
        ("DLBricks (2019), MXNet", "dlbricks", "1", "50", f"{paper.GEOMETRIC_MEAN:.3f}",
         f"{paper.RANGE[0]:.3f} - {paper.RANGE[1]:.3f}", "", "", f"{paper.UNIQUE_LAYERS / paper.LAYERS:.0%}",
         f"{paper.SPEEDUP:.1f}x")
    ]  # fmt: skip
    rows.extend(
        (
            result.system, result.corpus, str(s.granularity), str(s.models), f"{s.geometric_mean:.3f}",
            f"{s.lowest:.3f} - {s.highest:.3f}", f"{s.within_5pct:.0%}", f"{s.within_10pct:.0%}",
            f"{s.unique_share:.0%}", f"{s.speedup:.1f}x",
        )
        for result in results
        for s in result.summaries.values()
    )  # fmt: skip
    print_table(
        ("system", "corpus", "G", "models", "geomean", "range", "in 5%", "in 10%", "unique", "speedup"),
        rows,
        left=2,
    )
