"""`costmodel predict`."""

import math
from typing import TYPE_CHECKING, Annotated, Any

import typer

from costmodel.cli import app
from costmodel.cli.options import (
    Context,
    GranularityOption,
    JsonOption,
    ShapeOption,
    StoreOption,
    SystemOption,
    ThreadsOption,
    parse_shapes,
)
from costmodel.cli.output import console, note, print_json, progress_bars

if TYPE_CHECKING:
    from costmodel.estimate import Estimate

_DEAREST = 8


@app.command()
def predict(
    models: Annotated[list[str], typer.Argument(help="ONNX files, folders of them, or the name of a corpus.")],
    system: SystemOption = None,
    batch: Annotated[int | None, typer.Option(help="Size of the batch, where it is symbolic.")] = None,
    shape: ShapeOption = None,
    granularity: GranularityOption = 1,
    compose: Annotated[str, typer.Option(help="sequential (sum) or parallel (critical path).")] = "sequential",
    partial: Annotated[bool, typer.Option(help="Answer even if layers have no cost.")] = False,
    predict_all: Annotated[
        bool, typer.Option("--predict-all", help="Predict every layer, also those that were measured.")
    ] = False,
    measure: Annotated[
        bool, typer.Option("--measure", help="Also run the models here, and print both latencies.")
    ] = False,
    threads: ThreadsOption = 1,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """What a model will cost: latency, interval, and what every layer contributes."""
    from costmodel.api import CostModel
    from costmodel.composition import COMPOSITIONS
    from costmodel.decomposition import whole_model
    from costmodel.jobs import measure_models
    from costmodel.model import read_model
    from costmodel.training.corpus import corpus_models

    if compose not in COMPOSITIONS:
        raise typer.BadParameter(f"{compose!r}: choose one of {', '.join(COMPOSITIONS)}", param_hint="--compose")
    shapes = parse_shapes(shape)
    context = Context(store)
    name = context.system_name(system, threads)
    cost_model = CostModel.load(name, store=store)
    estimates: dict[str, Estimate] = {}
    read = {}
    for item in (item for text in models for item in corpus_models(text)):
        model = read_model(item.path, batch=batch, shapes=shapes, name=item.name)
        read[item.name] = model
        estimates[item.name] = cost_model.predict(
            model, granularity=granularity, composition=compose, partial=partial, measured=not predict_all
        )
    measured: dict[str, float] = {}
    if measure:
        runtime, here = context.here(system, cost_model.predictor.system.settings.threads)
        wholes = {n: (whole_model(cost_model.lower(model)), model) for n, model in read.items()}
        with progress_bars() as stage:
            measured = measure_models(context.store, here, runtime, wholes, stage("running models"))
    if json:
        print_json(_documents(estimates, measured))
        return
    if len(estimates) > 1:
        _print_many(estimates, measured)
    for estimate in estimates.values():
        if len(estimates) == 1:
            print_estimate(estimate, measured.get(estimate.model))
        for warning in estimate.warnings:
            note(f"{estimate.model}: {warning}" if len(estimates) > 1 else warning)


def _documents(estimates: "dict[str, Estimate]", measured: dict[str, float]) -> dict[str, Any]:
    documents = []
    for name, estimate in estimates.items():
        document = estimate.to_dict()
        if name in measured:
            document["measured_us"] = measured[name]
            document["ratio"] = estimate.latency_us / measured[name]
        documents.append(document)
    if len(documents) == 1:
        return documents[0]
    result: dict[str, Any] = {"models": documents}
    if measured:
        result["geometric_mean_ratio"] = geometric_mean_ratio(estimates, measured)
    return result


def geometric_mean_ratio(estimates: "dict[str, Estimate]", measured: dict[str, float]) -> float:
    """Geometric mean over models of estimated over measured latency."""
    return math.exp(sum(math.log(estimates[n].latency_us / us) for n, us in measured.items()) / len(measured))


def print_estimate(estimate: "Estimate", measured_us: float | None = None) -> None:
    """One estimate: the total, where it comes from, and its dearest layers."""
    from rich.table import Table

    from costmodel.units import format_us

    out = console()
    low, high = estimate.interval_us
    out.print(f"[bold]{estimate.model}[/bold] on {estimate.system}")
    out.print(
        f"  latency   [bold]{format_us(estimate.latency_us)}[/bold]   "
        f"{estimate.interval_level:.0%} interval {format_us(low)} to {format_us(high)}"
    )
    if measured_us is not None:
        error = estimate.latency_us / measured_us - 1
        out.print(f"  measured  [bold]{format_us(measured_us)}[/bold]   the estimate is {error:+.1%} off")
    out.print("  users see " + ", ".join(f"{q} {format_us(us)}" for q, us in estimate.quantiles_us.items()))
    shares = ", ".join(f"{share:.0%} {source}" for source, share in estimate.coverage.items() if share)
    out.print(
        f"  made of   {shares}; {len(estimate.layers)} sequences, "
        f"granularity {estimate.granularity}, {estimate.composition}"
    )
    table = Table(
        "dearest layers",
        "operator",
        "latency",
        "share",
        "source",
        box=None,
        header_style="bold",
        padding=(0, 2),
    )
    total = sum(layer.cost.latency_us for layer in estimate.layers) or 1.0
    for layer in sorted(estimate.layers, key=lambda one: -one.cost.latency_us)[:_DEAREST]:
        share = layer.cost.latency_us / total
        table.add_row(
            layer.name[:40],
            layer.op_type[:40],
            format_us(layer.cost.latency_us),
            f"{share:.1%}",
            layer.cost.source,
        )
    for column in table.columns[2:4]:
        column.justify = "right"
    out.print(table)


def _print_many(estimates: "dict[str, Estimate]", measured: dict[str, float]) -> None:
    from rich.table import Table

    from costmodel.units import format_us

    columns = ["model", "latency", "interval", "from measurements"]
    table = Table(*columns, *(["end to end", "ratio"] if measured else []), box=None, header_style="bold")
    for name, estimate in estimates.items():
        low, high = estimate.interval_us
        row = [name, format_us(estimate.latency_us), f"{format_us(low)} to {format_us(high)}",
               f"{estimate.coverage['measured']:.0%}"]  # fmt: skip
        if measured:
            row += [format_us(measured[name]), f"{estimate.latency_us / measured[name]:.3f}"]
        table.add_row(*row)
    for column in table.columns[1:]:
        column.justify = "right"
    console().print(table)
    if measured:
        console().print(f"geometric mean of the ratios: {geometric_mean_ratio(estimates, measured):.3f}")
