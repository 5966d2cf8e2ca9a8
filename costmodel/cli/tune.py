"""Implements `costmodel tune`, which says how a model should run: runtime, threads, level, batch, precision."""

from typing import TYPE_CHECKING, Annotated, cast

import typer

from costmodel.cli import app
from costmodel.cli.context import Context
from costmodel.cli.options import (
    JsonOption,
    ObjectiveOption,
    PriceOption,
    ShapeOption,
    StoreOption,
    SystemOption,
    ValueOption,
    one_of,
    parse_budget_s,
    parse_shapes,
    parse_values,
    parsed,
)
from costmodel.cli.output import note, print_json, print_table, progress_bars, say

if TYPE_CHECKING:
    from costmodel.jobs.tuning.model_files import Within
    from costmodel.serving.tuning.answer import TuneAnswer, TunedSetting
    from costmodel.serving.tuning.question import Objective

__all__ = ["tune"]

_ROWS = 8


def _objectives() -> tuple[str, ...]:
    from costmodel.serving.tuning.question import OBJECTIVES

    return OBJECTIVES


def _within() -> tuple[str, ...]:
    from costmodel.jobs.tuning.model_files import WITHIN

    return WITHIN


@app.command()
def tune(
    command: typer.Context,
    model: Annotated[str, typer.Argument(help="ONNX file, or the name of a model of a corpus.")],
    system: SystemOption = None,
    objective: Annotated[
        str,
        typer.Option(callback=one_of(_objectives), help="What is to be best: latency, throughput or cost."),
    ] = "latency",
    slo: ObjectiveOption = None,
    within: Annotated[
        str,
        typer.Option(
            callback=one_of(_within),
            help="accuracy-safe: the files as they are; quantised: also an int8 version, made here for timing only.",
        ),
    ] = "accuracy-safe",
    int8: Annotated[
        str | None, typer.Option(metavar="FILE", help="The int8 version (QDQ) of the model.", show_default=False)
    ] = None,
    max_batch: Annotated[
        int, typer.Option(min=1, help="Largest batch for throughput and cost, if the file leaves the batch open.")
    ] = 32,
    budget: Annotated[str, typer.Option(metavar="TIME", help="Time for measuring: 30s, 5m.")] = "60s",
    measure: Annotated[
        bool, typer.Option("--measure/--no-measure", help="Run the best settings here, or answer by prediction alone.")
    ] = True,
    price: PriceOption = None,
    shape: ShapeOption = None,
    value: ValueOption = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Find the settings under which a model runs best.

    Prices every setting by prediction: runtime, threads, optimisation level, spinning, precision and, for throughput
    and cost, batch and sessions beside each other. Then runs the best few on this host, and prints the best one with
    lines of Python that apply it.
    """
    from costmodel.cli.predict import labelled
    from costmodel.cli.unmeasured import extrapolate_if_unknown
    from costmodel.jobs.tuning.model_files import open_files
    from costmodel.jobs.tuning.tune import Tuner
    from costmodel.serving.tuning.question import TuneQuestion
    from costmodel.systems.catalogue import listed_price
    from costmodel.traffic.objective import MAX_BATCH, parse_objective

    limit = None if slo is None else parsed(parse_objective, slo, "--slo")
    budget_s = parse_budget_s(budget)
    assert budget_s is not None
    if max_batch > MAX_BATCH:
        raise typer.BadParameter(f"{max_batch} is more than {MAX_BATCH}", param_hint="--max-batch")
    shapes = parse_shapes(shape)
    files = list(labelled([model]).values())
    if len(files) != 1:
        raise typer.BadParameter(f"{model} stands for {len(files)} models: give one", param_hint="MODEL")
    context = Context(store, tools=command.obj)
    if system is not None:
        extrapolate_if_unknown(context, context.asked_system(system, 1), None, 1)
    tuner = (context.tools.tuner or Tuner.of)(
        context.store, context.bundles, context.home.cache, system, runtime=context.tools.runtime
    )
    usd_per_hour = listed_price(system, tuner.host) if price is None else price
    question = TuneQuestion(cast("Objective", objective), limit, usd_per_hour, max_batch)
    with (
        open_files(
            files[0], shapes=shapes, values=parse_values(value), int8=int8, within=cast("Within", within)
        ) as opened,
        progress_bars() as stage,
    ):
        found = tuner.tune(opened, question, measure=measure, budget_s=budget_s, progress=stage)
    if json:
        print_json(found)
        return
    _print(found)
    for warning in found.warnings:
        note(warning)


def _print(found: "TuneAnswer") -> None:
    from costmodel.units import format_us, format_usd

    limit = "" if found.slo_us is None else f", {found.slo} <= {format_us(found.slo_us)}"
    say(f"{found.model} on {found.host}, {found.cpus} CPUs: {found.objective}{limit}", style="bold")
    say(f"  best       {found.best.description}")
    _print_performance(found.best)
    if found.default is None:
        say("  default    neither predicted nor measured")
    elif found.best.setting == found.default.setting:
        say("  default    the same: there is nothing to set")
    else:
        say(f"  default    {found.default.description}: {_brief(found.default, found)}")
    if found.default is not None and found.gain is not None and found.best.setting != found.default.setting:
        saved = found.saved_usd_per_million
        amount = "" if not saved else f", {format_usd(abs(saved))} {'less' if saved > 0 else 'more'} per million"
        say(f"  gain       {found.gain:.2f} times the default{amount}")
    conditions = found.measurement
    if conditions is None:
        say("  measured   nothing: these are predictions")
    else:
        say(
            f"  measured   {conditions.settings} settings in up to {conditions.rounds} rounds, "
            f"{conditions.seconds:.0f} s on {conditions.host or 'this host'}, {conditions.measured_at}"
        )
    for sentence in found.findings:
        say(f"  {sentence}")
    say()
    _print_table(found)
    for one in found.left_out:
        note(f"left out: {one.settings}: {one.reason}")
    say()
    for line in found.snippet.splitlines():
        say(line)


def _print_performance(one: "TunedSetting") -> None:
    from costmodel.units import format_per_s, format_us, format_usd

    performance = one.performance
    low, high = map(format_us, performance.interval_us)
    word = "predicted" if one.measured is None else "measured"
    say(f"  latency    {format_us(performance.latency_us)}   {word}, 90% interval {low} to {high}")
    say(f"  carries    {format_per_s(performance.throughput_per_s)}")
    if performance.usd_per_million is not None:
        say(f"  cost       {format_usd(performance.usd_per_million)} per million")
    for sentence in one.borrowed if one.measured is None else ():
        say(f"  priced     {sentence}")


def _brief(one: "TunedSetting", found: "TuneAnswer") -> str:
    from costmodel.units import format_per_s, format_us

    if found.objective == "latency":
        return format_us(one.performance.latency_us)
    return format_per_s(one.performance.throughput_per_s)


def _print_table(found: "TuneAnswer") -> None:
    from costmodel.units import format_per_s, format_us

    rows = []
    for one in found.settings[:_ROWS]:
        predicted, measured = one.predicted, one.measured
        meets = {None: "-", True: "met", False: "failed"}[one.performance.meets]
        rows.append(
            (
                one.description,
                one.system or "-",
                "-" if predicted is None else f"{format_us(predicted.latency_us)}{' *' if one.borrowed else ''}",
                "-" if measured is None else format_us(measured.latency_us),
                format_per_s(one.performance.throughput_per_s),
                meets,
            )
        )
    print_table(("setting", "priced from", "predicted", "measured", "carries", "objective"), rows, left=2)
    if any(one.borrowed for one in found.settings[:_ROWS]):
        say("* priced from a system with other settings")
    if len(found.settings) > _ROWS:
        say(f"and {len(found.settings) - _ROWS} more; --json lists all")
