"""Implements `costmodel compare-runtimes`, which finds changes between two releases of a runtime."""

from typing import TYPE_CHECKING, Annotated

import typer

from costmodel.cli import app
from costmodel.cli.context import Context
from costmodel.cli.options import JsonOption, StoreOption, ThreadsOption, parse_budget_s
from costmodel.cli.output import note, print_json, print_table, progress_bars, say

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from costmodel.jobs.runtime_comparison.changes import Change, LayerOccurrence
    from costmodel.jobs.runtime_comparison.comparison import RuntimeComparison
    from costmodel.jobs.runtime_comparison.release import Release

__all__ = ["compare_runtimes"]

# With eight rounds, the interval of a ratio reaches about twice as far as the noise of one pair of turns.
_ROUNDS = 8
# Number of layers that are listed for each release as executed by it only.
_MOST_LISTED = 20
_HEADINGS = {"model": "model, end to end", "sum": "model, sum of layers", "operator": "operator", "layer": "layer"}


@app.command("compare-runtimes")
def compare_runtimes(
    command: typer.Context,
    target: Annotated[
        str, typer.Argument(metavar="MODELS", help="A model, a folder of models, or the name of a corpus.")
    ],
    old: Annotated[str, typer.Option("--from", metavar="RELEASE", help="The old release, such as onnxruntime==1.30.")],
    new: Annotated[str, typer.Option("--to", metavar="RELEASE", help="The new release, such as 1.31.")],
    threads: ThreadsOption = 1,
    rounds: Annotated[
        int, typer.Option("--rounds", min=3, help="Rounds in all: with more of them, smaller changes are found.")
    ] = _ROUNDS,
    budget: Annotated[str | None, typer.Option(help="Stop measuring after this long: 90s, 10m, 1h.")] = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Find what a new release of a runtime slows down.

    Installs each release into an environment of its own, once, and measures the layers of the models and the whole
    models with both in turn. Prints how many times as long models and operators take with the new release, with
    intervals, and marks what is beyond noise. The measurements are stored as those of two systems. If the command is
    stopped, the same command goes on where it stopped; with more --rounds, it measures more.
    """
    from costmodel.jobs.runtime_comparison.comparison import compare_runtimes as compare
    from costmodel.measure.lock import measuring_lock
    from costmodel.runtimes.base import RuntimeSettings

    budget_s = parse_budget_s(budget)
    context = Context(store, tools=command.obj)
    starts = _starts(context, old, new)
    with progress_bars() as stage:
        report = compare(
            context.store,
            starts,
            target,
            context.home.cache,
            settings=RuntimeSettings(threads),
            rounds=rounds,
            budget_s=budget_s,
            progress=stage,
            lock=context.tools.lock or measuring_lock,
        )
    for what, reason in report.failed.items():
        note(f"{what} was not measured: {reason}")
    if json:
        print_json(report.to_dict())
        return
    _print(report)


def _starts(context: Context, old: str, new: str) -> "tuple[Callable[[], Release], Callable[[], Release]]":
    """Returns functions that start the two releases, whose environments are made if necessary."""
    from costmodel.jobs.runtime_comparison.comparison import installed_release
    from costmodel.jobs.runtime_comparison.environments import parse_release

    first = parse_release(old)
    second = parse_release(new, first.runtime)
    if context.tools.release is not None:
        return context.tools.release(str(first)), context.tools.release(str(second))
    folder = context.home.environments
    return installed_release(first, folder, note), installed_release(second, folder, note)


def _print(report: "RuntimeComparison") -> None:
    old, new = report.systems
    say(f"from {old.runtime} {old.runtime_version} ({old.name})")
    say(f"to   {new.runtime} {new.runtime_version} ({new.name})")
    for kind in ("model", "sum", "operator"):
        _print_changes(kind, [change for change in report.changes if change.kind == kind])
    layers = [change for change in report.changes if change.kind == "layer"]
    _print_changes("layer", [change for change in layers if change.changed])
    _print_only(f"only {old.runtime_version} executes", report.only_from)
    _print_only(f"only {new.runtime_version} executes", report.only_to)
    say()
    counted = [change for change in report.changes if change.changed]
    slower = sum(change.ratio > 1 for change in counted)
    unchanged = sum(not change.changed for change in layers)
    say(
        f"{slower} slower, {len(counted) - slower} faster; of {len(layers)} layers that both execute, {unchanged} did "
        "not change beyond noise."
    )
    if report.left:
        say("The budget is spent: run the same command again to go on.")


def _print_changes(kind: str, changes: "Sequence[Change]") -> None:
    """Prints a table of changes, the largest first; nothing if there are none."""
    from costmodel.units import format_us

    if not changes:
        return
    rows = []
    for change in sorted(changes, key=lambda change: -change.ratio):
        interval = "-" if change.interval is None else "{:.3f} to {:.3f}".format(*change.interval)
        mark = ("slower" if change.ratio > 1 else "faster") if change.changed else ""
        rows.append(
            (change.name, mark, format_us(change.from_us), format_us(change.to_us), f"{change.ratio:.3f}", interval)
        )
    say()
    print_table((_HEADINGS[kind], "change", "from", "to", "ratio", "interval"), rows, left=2)


def _print_only(heading: str, layers: "Sequence[LayerOccurrence]") -> None:
    """Prints the first layers that only one release executes; nothing if there are none."""
    if not layers:
        return
    say()
    rows = [(f"{one.model}: {one.layer}", one.operator, str(one.count)) for one in layers[:_MOST_LISTED]]
    print_table((heading, "operator", "times"), rows, left=2)
    if len(layers) > _MOST_LISTED:
        say(f"and {len(layers) - _MOST_LISTED} more, which --json lists")
