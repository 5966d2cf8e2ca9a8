"""Implements `costmodel adapt`, and prints the suggestions of `costmodel bench --suggest`."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from costmodel.cli import app
from costmodel.cli.context import Context
from costmodel.cli.options import (
    InterThreadsOption,
    JsonOption,
    LevelOption,
    RuntimeOption,
    StoreOption,
    SystemOption,
    ThreadsOption,
    parse_budget_s,
)
from costmodel.cli.output import note, print_json, print_table, progress_bars, say

if TYPE_CHECKING:
    from costmodel.jobs.adaptation import Point
    from costmodel.jobs.suggestion import Suggestion

__all__ = ["adapt", "print_suggestions", "suggestion_document"]

_REASONS = {
    "budget": "the budget is spent",
    "complete": "all layers of the models are measured",
    "interrupted": "stopped by the user, what was measured is kept",
}


@app.command()
def adapt(
    command: typer.Context,
    system: SystemOption = None,
    base: Annotated[
        list[str] | None,
        typer.Option(
            "--from",
            metavar="BASE",
            help="Measured systems to start from, here or in data/; by default all that can be compared.",
            show_default=False,
        ),
    ] = None,
    budget: Annotated[str, typer.Option(help="Stop measuring after this long: 90s, 5m.")] = "5m",
    corpus: Annotated[
        str | None,
        typer.Option(
            help="Corpus or folder of the models to be accurate for; by default the models measured on the bases.",
            show_default=False,
        ),
    ] = None,
    threads: ThreadsOption = 1,
    runtime: RuntimeOption = "onnxruntime",
    inter_threads: InterThreadsOption = 1,
    level: LevelOption = "all",
    assert_system: Annotated[
        bool, typer.Option("--assert-system", help="Assert that this host is the named system; marks the records.")
    ] = False,
    tracking: Annotated[bool, typer.Option(help="Record the training in MLflow.")] = True,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Adapt the cost models of other systems to this one.

    Measures in rounds those layer sequences that improve the estimates of the models most, and prints the expected
    error after each round; Ctrl-C stops measuring, for example when the error is small enough. Then a regressor is
    trained, and becomes the champion of this system.
    """
    from costmodel.jobs.adaptation import adapt as adapt_system

    context = Context(store, tools=command.obj, runtime_name=runtime)
    budget_s = parse_budget_s(budget)
    assert budget_s is not None
    adapter, here = context.here(system, threads, level=level, inter_threads=inter_threads, asserted=assert_system)
    if here.name in (base or ()):
        raise typer.BadParameter("a system is not adapted from itself: name another one", param_hint="--from")
    for name in base or ():
        context.import_if_shipped(name)
    if not base:
        base = context.bases(here)
    with progress_bars() as stage:
        report = adapt_system(
            context.store,
            here,
            adapter,
            base,
            context.bundles,
            budget_s=budget_s,
            tracking=context.home.tracking if tracking else None,
            target=corpus,
            cache=context.home.cache,
            on_point=lambda point: None if json else say(_line(point)),
            progress=stage if json else None,  # on a terminal, bars would overwrite the lines of the curve
            bench=context.bench,
        )
    for what, reason in report.bench.failed.items():
        note(f"{what} was not measured: {reason}")
    for warning in report.warnings:
        note(warning)
    if report.run_id is not None:
        from costmodel.training.tracking import where_to_look

        note(where_to_look(context.home.tracking))
    if json:
        print_json(report.to_dict())
        return
    say(f"{_REASONS[report.reason].capitalize()}: {report.curve[-1].measured} sequences are measured.")
    say(f"{report.system}: {report.version} answers now.")


def _line(point: "Point") -> str:
    if point.expected_error is None or point.expected_within_10pct is None:
        expected = "error unknown yet"
    else:
        expected = f"expected error {point.expected_error:.1%}, {point.expected_within_10pct:.0%} of models within 10%"
    off = "" if point.round_error is None else f"; the last round was predicted {point.round_error:.1%} off"
    return f"{point.seconds / 60:5.1f} min  {point.measured:6d} measured, {point.share:.0%} of latency  {expected}{off}"


def suggestion_document(system: str, suggestions: "list[Suggestion]") -> dict[str, Any]:
    """Returns the JSON document that `costmodel bench --suggest --json` prints."""
    return {"system": system, "suggestions": [asdict(suggested) for suggested in suggestions]}


def print_suggestions(suggestions: "list[Suggestion]") -> None:
    """Prints the sequences that are suggested for measuring as a table, in the given order."""
    from costmodel.units import format_us

    print_table(
        ("kind", "signature", "spread", "models", "share", "expected", "seconds"),
        [
            (
                suggested.kind,
                suggested.signature[:12],
                f"{suggested.uncertainty:.0%}",
                str(suggested.models),
                f"{suggested.share:.2%}",
                format_us(suggested.latency_us),
                f"{suggested.seconds:.2f}",
            )
            for suggested in suggestions
        ],
        left=2,
    )
    say("spread: of the predictions; share: of a model's latency, on average", style="dim")
