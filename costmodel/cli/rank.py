"""Implements `costmodel rank`, which finds the cheapest system or model that is fast enough."""

from typing import TYPE_CHECKING, Annotated

import typer

from costmodel.cli import app
from costmodel.cli.context import Context
from costmodel.cli.options import (
    BatchOption,
    JsonOption,
    ShapeOption,
    StoreOption,
    ValueOption,
    one_of,
    parse_prices,
    parse_shapes,
    parse_values,
    parsed,
)
from costmodel.cli.output import note, print_json, print_table, say

if TYPE_CHECKING:
    from costmodel.serving.ranking import RankAnswer, Ranked, RankError

__all__ = ["rank"]


def _quantiles() -> tuple[str, ...]:
    from costmodel.serving.ranking import QUANTILES

    return QUANTILES


@app.command()
def rank(
    command: typer.Context,
    models: Annotated[list[str], typer.Argument(help="ONNX files, folders of them, or the name of a corpus.")],
    system: Annotated[
        list[str] | None,
        typer.Option(
            "--system",
            metavar="NAME",
            help="A system to consider, also one of the catalogue that nobody has measured; several times. By default "
            "all that are known here.",
        ),
    ] = None,
    threads: Annotated[
        int | None,
        typer.Option(
            min=1,
            show_default=False,
            help="Number of threads on the machines of --system that nobody has measured; by default 1, or that of the "
            "last time.",
        ),
    ] = None,
    slo: Annotated[
        str | None, typer.Option(metavar="LATENCY", help="Latency objective: 500us, 20ms, 1.5s.", show_default=False)
    ] = None,
    quantile: Annotated[
        str, typer.Option(callback=one_of(_quantiles), help="Quantile of the objective: p50, p90, p99 or quiet.")
    ] = "p50",
    memory: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Memory that a process may take: 512MB, 2GiB.", show_default=False),
    ] = None,
    arrivals: Annotated[
        str | None,
        typer.Option(
            metavar="RATE", help="Requests to carry within the objective: 120/s, 7200/min.", show_default=False
        ),
    ] = None,
    price: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=USD", help="Price of a system in dollars an hour; several times.", show_default=False
        ),
    ] = None,
    batch: BatchOption = None,
    shape: ShapeOption = None,
    value: ValueOption = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Find the cheapest system or model that is fast enough.

    Ranks systems and models by whether they meet a latency objective, and by price; with --arrivals, by the price of as
    many replicas as carry the traffic.
    """
    from costmodel.api import CostModel
    from costmodel.cli.predict import labelled
    from costmodel.cli.unmeasured import extrapolate_if_unknown, unmeasured_machine
    from costmodel.errors import CostModelError
    from costmodel.onnx_io.model import read_model
    from costmodel.serving.ranking import Criteria, cheapest, in_order
    from costmodel.systems.catalogue import catalogue
    from costmodel.systems.names import validate_name
    from costmodel.traffic.objective import parse_rate_per_s
    from costmodel.units import parse_bytes, parse_latency_us

    slo_us = None if slo is None else parsed(parse_latency_us, slo, "--slo")
    memory_bytes = None if memory is None else parsed(parse_bytes, memory, "--memory")
    arrivals_per_s = None if arrivals is None else parsed(parse_rate_per_s, arrivals, "--arrivals")
    if arrivals is not None and (slo is None or quantile == "quiet"):
        raise typer.BadParameter("needs --slo, and --quantile p50, p90 or p99", param_hint="--arrivals")
    if threads is not None and not system:
        raise typer.BadParameter("is for machines that are named with --system", param_hint="--threads")
    prices = {entry.name: entry.usd_per_hour for entry in catalogue().values()} | parse_prices(price)
    shapes = parse_shapes(shape)
    values = parse_values(value)
    context = Context(store, reads=True, tools=command.obj)
    known = list(map(validate_name, system)) if system else list(context.store.systems())
    read = [
        read_model(path, batch=batch, shapes=shapes, values=values, name=label)
        for label, path in labelled(models).items()
    ]
    for name in system or ():
        unmeasured_machine(context, name, threads, 1)  # what is wrong with any of them is said before minutes of work
    for name in system or ():
        extrapolate_if_unknown(context, context.asked_system(name, threads or 1), threads, 1)
    if not known:
        raise CostModelError(
            "nothing is measured yet: run `costmodel bench`, import results with `costmodel import`, or name machines "
            "of the catalogue (`costmodel systems`) with --system"
        )
    criteria = Criteria(slo_us, quantile, memory_bytes, prices, arrivals_per_s)
    entries: list[Ranked] = []
    failed: list[RankError] = []
    for name in known:
        try:
            cost_model = CostModel.load(name, store=store, runtime=context.tools.runtime)
        except CostModelError as error:
            if system:
                raise
            failed += [{"model": model.name, "system": name, "error": str(error)} for model in read]
            continue
        variation = None if arrivals is None else cost_model.predictor.variation
        for model in read:
            try:
                entries.append(criteria.judged(cost_model.predict(model), variation))
            except CostModelError as error:
                failed.append({"model": model.name, "system": name, "error": str(error)})
    ranked = in_order(entries)
    best = cheapest(ranked)
    if json:
        document: RankAnswer = {
            "slo_us": slo_us, "quantile": quantile, "memory_bytes": memory_bytes, "arrivals_per_s": arrivals_per_s,
            "best": best, "ranking": ranked, "failed": failed,
        }  # fmt: skip
        print_json(document)
        return
    _print(ranked, best, slo_us, quantile, memory_bytes, arrivals)
    if best is not None and best.usd_per_million is not None:
        for name in dict.fromkeys(one.system for one in ranked if one.usd_per_million is None):
            note(f"{name} has no price, so it is not considered for the choice: give one with --price {name}=USD")
    for name in dict.fromkeys(one.system for one in ranked if not one.quantile_known):
        note(
            f"how much latencies vary on {name} was never measured, so its {quantile} is the latency on the quiet "
            "machine"
        )
    for one in failed:
        note(f"{one['model']} on {one['system']}: {one['error']}")


def _print(
    ranked: "list[Ranked]",
    best: "Ranked | None",
    slo_us: float | None,
    quantile: str,
    memory_bytes: int | None,
    arrivals: str | None,
) -> None:
    from costmodel.units import format_bytes, format_us, format_usd

    # Columns that nothing was asked about would leave less room for the others.
    headings = ["model", "system", quantile, "interval", "objective", "$ per million", "measured"]
    if memory_bytes is not None:
        headings[4:5] = ["memory"] if slo_us is None else ["objective", "memory"]
    if arrivals is not None:
        headings[headings.index("interval")] = "replicas"
    cells = [
        {
            "model": one.model,
            "system": one.system,
            quantile: format_us(one.slo_latency_us),
            "interval": " to ".join(map(format_us, one.slo_interval_us)),
            "objective": _verdict(one),
            "memory": _memory(one),
            "replicas": "-" if one.replicas is None else str(one.replicas),
            "$ per million": "-" if one.usd_per_million is None else format_usd(one.usd_per_million),
            "measured": f"{one.coverage['measured']:.0%}",
        }
        for one in ranked
    ]
    print_table(headings, [[row[heading] for heading in headings] for row in cells], left=2)
    objectives = [] if slo_us is None else [f"{quantile} <= {format_us(slo_us)}"]
    if arrivals is not None:
        objectives.append(f"at {arrivals}")
    if memory_bytes is not None:
        objectives.append(f"memory <= {format_bytes(memory_bytes)}")
    if objectives:
        verdict = "nothing meets it" if best is None else f"{best.model} on {best.system} is the choice"
        say(f"objective {', '.join(objectives)}: {verdict}")


def _memory(one: "Ranked") -> str:
    from costmodel.units import format_bytes

    if one.peak_memory_bytes is None:
        return "unknown"
    peak = format_bytes(one.peak_memory_bytes)
    if one.fits is None:
        return peak
    sure = "" if one.fits_within_interval else ", unsure"
    return f"{peak}{'' if one.fits else ', too much'}{sure}"


def _verdict(one: "Ranked") -> str:
    from costmodel.units import format_us

    if one.meets is None or one.exceeds_by_us is None:
        return "-"
    sure = "" if one.within_interval else ", unsure"
    return (
        f"met, {format_us(-one.exceeds_by_us)} left{sure}"
        if one.meets
        else f"fails by {format_us(one.exceeds_by_us)}{sure}"
    )
