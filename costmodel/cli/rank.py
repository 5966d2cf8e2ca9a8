"""Implements `costmodel rank`, which finds the cheapest system or model that is fast enough."""

from typing import TYPE_CHECKING, Annotated

import typer

from costmodel.cli import app
from costmodel.cli.options import (
    BatchOption,
    Context,
    JsonOption,
    ShapeOption,
    StoreOption,
    one_of,
    parse_prices,
    parse_shapes,
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
    models: Annotated[list[str], typer.Argument(help="ONNX files, folders of them, or the name of a corpus.")],
    system: Annotated[
        list[str] | None,
        typer.Option("--system", metavar="NAME", help="A system to consider; several times. By default all."),
    ] = None,
    slo: Annotated[
        str | None, typer.Option(metavar="LATENCY", help="Latency objective: 500us, 20ms, 1.5s.", show_default=False)
    ] = None,
    quantile: Annotated[
        str, typer.Option(callback=one_of(_quantiles), help="Quantile of the objective: p50, p90, p99 or quiet.")
    ] = "p50",
    price: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=USD", help="Price of a system in dollars an hour; several times.", show_default=False
        ),
    ] = None,
    batch: BatchOption = None,
    shape: ShapeOption = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Find the cheapest system or model that is fast enough.

    Ranks systems and models by whether they meet a latency objective, and by price.
    """
    from costmodel.api import CostModel
    from costmodel.cli.predict import labelled
    from costmodel.errors import CostModelError
    from costmodel.onnx_io.model import read_model
    from costmodel.serving.ranking import cheapest
    from costmodel.serving.ranking import rank as ranked_by
    from costmodel.systems.catalogue import catalogue
    from costmodel.systems.system import validate_name
    from costmodel.units import parse_latency_us

    try:
        slo_us = None if slo is None else parse_latency_us(slo)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--slo") from error
    prices = {entry.name: entry.usd_per_hour for entry in catalogue().values()} | parse_prices(price)
    shapes = parse_shapes(shape)
    context = Context(store, reads=True)
    known = [validate_name(name) for name in system] if system else list(context.store.systems())
    if not known:
        raise CostModelError(
            "nothing is measured yet: run `costmodel bench`, or import results with `costmodel import`"
        )
    read = [read_model(path, batch=batch, shapes=shapes, name=label) for label, path in labelled(models).items()]
    estimates = []
    failed: list[RankError] = []
    for name in known:
        try:
            cost_model = CostModel.load(name, store=store)
        except CostModelError as error:
            if system:
                raise
            failed += [{"model": model.name, "system": name, "error": str(error)} for model in read]
            continue
        for model in read:
            try:
                estimates.append(cost_model.predict(model))
            except CostModelError as error:
                failed.append({"model": model.name, "system": name, "error": str(error)})
    ranked = ranked_by(estimates, slo_us=slo_us, quantile=quantile, usd_per_hour=prices)
    best = cheapest(ranked)
    if json:
        document: RankAnswer = {
            "slo_us": slo_us, "quantile": quantile, "best": best, "ranking": ranked, "failed": failed,
        }  # fmt: skip
        print_json(document)
        return
    _print(ranked, best, slo_us, quantile)
    for one in failed:
        note(f"{one['model']} on {one['system']}: {one['error']}")


def _print(ranked: "list[Ranked]", best: "Ranked | None", slo_us: float | None, quantile: str) -> None:
    from costmodel.units import format_us

    print_table(
        ("model", "system", quantile, "interval", "objective", "$ per million", "measured"),
        [
            (
                one.model, one.system, format_us(one.slo_latency_us),
                " to ".join(map(format_us, one.slo_interval_us)), _verdict(one),
                "-" if one.usd_per_million is None else f"{one.usd_per_million:.2f}",
                f"{one.coverage['measured']:.0%}",
            )
            for one in ranked
        ],
        left=2,
    )  # fmt: skip
    if slo_us is not None:
        verdict = "nothing meets it" if best is None else f"{best.model} on {best.system} is the choice"
        say(f"objective {quantile} <= {format_us(slo_us)}: {verdict}")


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
