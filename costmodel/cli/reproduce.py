"""Implements `costmodel reproduce`, which reproduces the figures and numbers of a paper."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from costmodel.cli import app
from costmodel.cli.child_process import call_in_child_process
from costmodel.cli.context import Context
from costmodel.cli.options import JsonOption, StoreOption, parsed
from costmodel.cli.output import note, print_json, print_table, progress_bars, say

if TYPE_CHECKING:
    from costmodel.jobs.reproduction.report import CorpusResult

__all__ = ["reproduce"]

_PAPERS = ("dlbricks",)


@app.command()
def reproduce(
    paper: Annotated[str, typer.Argument(help="The paper: dlbricks.")],
    corpus: Annotated[
        list[str] | None, typer.Option(help="Corpora to use; by default dlbricks and modern.", show_default=False)
    ] = None,
    threads: Annotated[
        str | None,
        typer.Option(
            help="Threads of the systems, such as 1,2; by default 1,2, or any with --no-measure.", show_default=False
        ),
    ] = None,
    level: Annotated[
        str | None,
        typer.Option(
            help="Optimisation levels of the systems, such as all,none; by default all, or any with --no-measure.",
            show_default=False,
        ),
    ] = None,
    granularity: Annotated[str, typer.Option("--granularity", "-G", help="Granularities, such as 1-10 or 1,2,4.")] = (
        "1-10"
    ),
    out: Annotated[Path, typer.Option(help="Folder for figures, tables and summary.json.")] = Path("results"),
    measure: Annotated[
        bool, typer.Option("--measure/--no-measure", help="Measure here what is missing, or report on what is stored.")
    ] = True,
    system: Annotated[
        list[str] | None,
        typer.Option(
            "--system",
            metavar="NAME",
            show_default=False,
            help="With --no-measure, a stored system to report on, of any host; by default all.",
        ),
    ] = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Reproduce a paper's figures and numbers on this host.

    Measures each model both end to end and in layer sequences. If it is stopped, the same command goes on where it
    stopped. With --no-measure, it reports on the measurements that are in the store, whether made here or imported; no
    corpus has to be built for that.
    """
    from costmodel.jobs.reproduction.report import summary_document, write_report
    from costmodel.plotting import check_installed
    from costmodel.runtimes.base import LEVELS
    from costmodel.units import parse_numbers

    if paper not in _PAPERS:
        raise typer.BadParameter(f"{paper!r} is not one of {', '.join(_PAPERS)}")
    granularities = parsed(parse_numbers, granularity, "--granularity")
    numbers = None if threads is None else parsed(parse_numbers, threads, "--threads")
    levels = None if level is None else level.split(",")
    if unknown := {name for name in levels or () if name not in LEVELS}:
        raise typer.BadParameter(f"{', '.join(unknown)} is not one of {', '.join(LEVELS)}", param_hint="--level")
    if measure and system:
        raise typer.BadParameter("only this host can be measured: add --no-measure", param_hint="--system")
    check_installed()
    corpora = list(dict.fromkeys(corpus or ("dlbricks", "modern")))
    results: list[CorpusResult] = []
    for result in (
        _measured(store, corpora, numbers or [1, 2], levels or ["all"], granularities)
        if measure
        else _stored(store, corpora, system, numbers, levels)
    ):
        results.append(result)
        write_report(out, results)
    if json:
        print_json(summary_document(results))
        return
    if results:
        _print(results)
        say(f"Figures, tables and summary.json are in {out}.")


def _measured(
    store: str | None,
    corpora: Sequence[str],
    threads: Sequence[int],
    levels: Sequence[str],
    granularities: Sequence[int],
) -> "Iterator[CorpusResult]":
    """Measures each corpus on this host at each level and number of threads; yields each result when it is measured."""
    from costmodel.jobs.reproduction.collect import collect_corpus
    from costmodel.runtimes.base import lowering_key
    from costmodel.training.corpus import corpus_models

    # Looked up first: a misspelt corpus should fail before hours of measuring.
    names = {corpus: [model.name for model in corpus_models(corpus)] for corpus in corpora}
    for level in levels:
        for number in threads:
            for corpus in corpora:
                call_in_child_process(_measure, store, corpus, number, level, granularities)
                context = Context(store)
                runtime, here = context.here(None, number, level=level)
                found = collect_corpus(context.store, here.name, lowering_key(runtime, level), corpus, names[corpus])
                if found is None:
                    note(f"{here.name} has no model of {corpus} that could be measured whole and in layers")
                else:
                    yield found


def _stored(
    store: str | None,
    corpora: Sequence[str],
    named: Sequence[str] | None,
    threads: Sequence[int] | None,
    levels: Sequence[str] | None,
) -> "Iterator[CorpusResult]":
    """Yields the result of each corpus on each selected system of the store; it need not be this host."""
    from costmodel.jobs.reproduction.collect import collect_corpus
    from costmodel.training.corpus import corpus_names

    opened = Context(store, reads=True).store
    names = {corpus: corpus_names(corpus) for corpus in corpora}
    known = [opened.system(name) for name in dict.fromkeys(named)] if named else list(opened.systems().values())
    systems = [
        system
        for system in sorted(known, key=lambda s: (s.settings.level != "all", s.settings.threads, s.name))
        if (threads is None or system.settings.threads in threads)
        and (levels is None or system.settings.level in levels)
    ]
    without: dict[str, list[str]] = {corpus: [] for corpus in corpora}
    for system in systems:
        for corpus in corpora:
            found = collect_corpus(opened, system.name, None, corpus, names[corpus])
            if found is None:
                without[corpus].append(system.name)
            else:
                yield found
    for corpus, missing in without.items():
        if len(missing) == len(systems) or (named and missing):
            where = ", ".join(missing) if named else ""
            note(
                f"no model of {corpus} is measured whole and in layers on {where or 'any system here'}: leave out "
                "--no-measure, or import what `costmodel export --with-models` wrote elsewhere"
            )


def _measure(store: str | None, corpus: str, threads: int, level: str, granularities: Sequence[int]) -> None:
    """Measures a corpus on this host, and prints on standard error what was measured and what was not."""
    from costmodel.cli.bench_report import bench_line, note_failures
    from costmodel.jobs.bench import bench_target

    context = Context(store)
    runtime, here = context.here(None, threads, level=level)
    with progress_bars() as stage:
        report = bench_target(
            context.store, here, runtime, corpus, context.home.cache, granularities=granularities, progress=stage
        )
    note_failures(report)
    note(f"{here.name}, {corpus}: {bench_line(report)}")


def _print(results: "Sequence[CorpusResult]") -> None:
    from costmodel.jobs.reproduction import paper

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
