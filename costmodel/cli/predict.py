"""Implements `costmodel predict`, which predicts the latencies of models on a system."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from costmodel.cli import app
from costmodel.cli.options import (
    BatchOption,
    Context,
    GranularityOption,
    InterThreadsOption,
    JsonOption,
    RuntimeOption,
    ShapeOption,
    StoreOption,
    SystemOption,
    ThreadsOption,
    one_of,
    parse_granularity,
    parse_shapes,
)
from costmodel.cli.output import note, print_json, print_table, progress_bars, say
from costmodel.cli.unmeasured import extrapolate_if_unknown, probe_this_host

if TYPE_CHECKING:
    from pathlib import Path

    from costmodel.estimate.estimate import Estimate
    from costmodel.measure.measurement import Measurement
    from costmodel.onnx_io.model import Model
    from costmodel.systems.system import System

__all__ = ["labelled", "measured_document", "predict", "print_estimate"]

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

_SLOWEST_LAYERS = 8
_UNRELIABLE = (
    "the measurement is uncertain, because the machine was busy meanwhile or the runs differ: measure again when it is "
    "quiet"
)
_MAX_NAMES = 3


def _covers() -> tuple[str, ...]:
    from costmodel.partition.decomposition import COVERS

    return COVERS


def _is_a_rule(text: str) -> str:
    from costmodel.errors import RuleError
    from costmodel.estimate.rules import find_rule

    try:
        find_rule(text)
    except RuleError as error:
        raise typer.BadParameter(str(error)) from error
    return text


@app.command()
def predict(
    command: typer.Context,
    models: Annotated[list[str], typer.Argument(help="ONNX files, folders of them, or the name of a corpus.")],
    system: SystemOption = None,
    batch: BatchOption = None,
    shape: ShapeOption = None,
    granularity: GranularityOption = "1",
    cover: Annotated[
        str,
        typer.Option(
            callback=one_of(_covers),
            help="fixed: cut where the DLBricks paper does; cheapest: take measured sequences wherever they fit.",
        ),
    ] = "fixed",
    compose: Annotated[
        str,
        typer.Option(
            callback=_is_a_rule,
            metavar="RULE",
            help="sequential (sum), parallel (critical path), workers:N, or module:function, a rule of your own.",
        ),
    ] = "sequential",
    partial: Annotated[bool, typer.Option("--partial", help="Answer even if layers have no cost.")] = False,
    predict_all: Annotated[
        bool, typer.Option("--predict-all", help="Predict every layer, also those that were measured.")
    ] = False,
    measure: Annotated[
        bool, typer.Option("--measure", help="Also run the models here, and print both latencies.")
    ] = False,
    beside: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODEL",
            show_default=False,
            help="An ONNX file that runs at the same time on other CPUs; several times.",
        ),
    ] = None,
    probe: Annotated[
        bool,
        typer.Option(
            "--probe",
            help="First measure this host for 30 seconds and adapt other systems' costs to it, which takes minutes.",
        ),
    ] = False,
    threads: ThreadsOption = 1,
    runtime: RuntimeOption = "onnxruntime",
    inter_threads: InterThreadsOption = 1,
    server: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            envvar="COSTMODEL_SERVER",
            show_default=False,
            help="Ask a service at this URL; models are sent without their weights.",
        ),
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(envvar="COSTMODEL_TOKEN", show_default=False, help="Token for the service, if it needs one."),
    ] = None,
    on: Annotated[
        str | None,
        typer.Option(
            "--on",
            metavar="URL",
            show_default=False,
            help="Lower the models on the workers of a Dask cluster: tcp://scheduler:8786.",
        ),
    ] = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Predict the latency of models, in total and by layer."""
    from costmodel.api import CostModel
    from costmodel.jobs.bench import measure_models
    from costmodel.onnx_io.model import read_model
    from costmodel.partition.decomposition import FIXED, whole_model
    from costmodel.partition.granularity import AUTO

    shapes = parse_shapes(shape)
    max_layers = parse_granularity(granularity)
    if max_layers == AUTO and cover != FIXED:
        raise typer.BadParameter("auto chooses among fixed cuts: give a number", param_hint="--granularity")
    if server is not None:
        if max_layers == AUTO or cover != FIXED or measure or probe or on or beside:
            raise typer.BadParameter(
                "a service cuts at fixed places and runs nothing: leave out --measure, --probe, --on, --beside, "
                "--cover and auto",
                param_hint="--server",
            )
        options = {
            "system": system, "batch": batch, "shapes": shapes, "granularity": max_layers, "composition": compose,
            "partial": partial, "measured": not predict_all,
        }  # fmt: skip
        _ask(server, token, labelled(models), options, json=json)
        return
    if beside and measure:
        raise typer.BadParameter("models are run alone: leave out --measure", param_hint="--beside")
    context = Context(store, tools=command.obj, runtime_name=runtime)
    name = context.system_name(system, threads, inter_threads)
    failed: dict[str, str] = {}
    read = _of_each(
        labelled(models), lambda label, path: read_model(path, batch=batch, shapes=shapes, name=label), failed
    )
    if probe:
        probe_this_host(context, system, threads, inter_threads)
    else:
        if system is not None and store is None:
            context.import_if_shipped(name)
        extrapolate_if_unknown(context, name, threads, inter_threads)
    cost_model = CostModel.load(name, store=store, runtime=context.tools.runtime)
    if on is not None:
        _lower_on(on, context, cost_model.predictor.system, list(read.values()))
    others = [read_model(path, batch=batch, name=label) for label, path in labelled(beside or ()).items()]
    estimates = _of_each(
        read,
        lambda _, model: cost_model.predict(
            model, granularity=max_layers, cover=cover, composition=compose, partial=partial,
            measured=not predict_all, beside=others,
        ),
        failed,
    )  # fmt: skip
    measured: dict[str, Measurement] = {}
    if measure:
        settings = cost_model.predictor.system.settings
        asserted = cost_model.predictor.system.asserted
        context.runtime_name = cost_model.predictor.system.runtime
        adapter, here = context.here(
            system, settings.threads, level=settings.level, inter_threads=settings.inter_threads, asserted=asserted
        )
        wholes = {label: (whole_model(cost_model.lower(read[label])), read[label]) for label in estimates}
        with progress_bars() as stage:
            measured = measure_models(
                context.store, here, adapter, wholes, stage("running models"), bench=context.bench
            )
    if json:
        print_json(_documents(estimates, measured, failed))
        return
    _print_all(estimates, measured)
    for label, reason in failed.items():
        note(f"{label} has no estimate: {reason}")


def _of_each(
    items: Mapping[str, _Item], work: Callable[[str, _Item], _Result], failed: dict[str, str]
) -> dict[str, _Result]:
    """Returns what a function makes of each item, by label, without those for which it raises an error.

    Args:
        items: Items by label.
        work: Function of a label and its item.
        failed: Mapping to which the reason is added for each item that is left out.

    Raises:
        CostModelError: There is an error for all of them.
    """
    from costmodel.errors import CostModelError

    results: dict[str, _Result] = {}
    for place, (label, item) in enumerate(items.items(), start=1):
        try:
            results[label] = work(label, item)
        except CostModelError as error:
            if place == len(items) and not results:
                raise
            failed[label] = str(error)
    return results


def _lower_on(scheduler: str, context: Context, system: "System", models: "list[Model]") -> None:
    """Lowers models on the workers of a cluster, so that the predictions find them in the cache."""
    from costmodel.jobs.cluster_lowering import lower_on_cluster
    from costmodel.runtimes.base import get_runtime

    runtime = context.tools.runtime or get_runtime(system.runtime)
    with progress_bars() as stage:
        lower_on_cluster(
            scheduler, models, runtime, system.settings.level, context.home.cache, progress=stage("lowering models")
        )


def _print_all(estimates: "dict[str, Estimate]", measured: "dict[str, Measurement]") -> None:
    if len(estimates) > 1:
        _print_many(estimates, measured)
    for label, estimate in estimates.items():
        if len(estimates) == 1:
            print_estimate(estimate, measured.get(label))
        for warning in estimate.warnings:
            note(f"{label}: {warning}" if len(estimates) > 1 else warning)


def _ask(server: str, token: str | None, files: "dict[str, Path]", options: dict[str, Any], *, json: bool) -> None:
    """Gets the predictions for model files from the service at the URL `server`, and prints them."""
    from costmodel.estimate.estimate import Estimate
    from costmodel.jobs.remote_prediction import predict_remotely

    documents = predict_remotely(server, token, files, options)
    if json:
        print_json(documents[0] if len(documents) == 1 else {"models": documents})
        return
    estimates = {label: Estimate.from_dict(document) for label, document in zip(files, documents, strict=True)}
    _print_all(estimates, {})


def labelled(models: Iterable[str]) -> "dict[str, Path]":
    """Returns the model files that paths and names of corpora stand for, by label.

    The label of a file is the name of its model, or the path of the file if several models have that name.
    """
    from costmodel.training.corpus import corpus_models

    found = {item.path: item for text in models for item in corpus_models(text)}
    names = Counter(item.name for item in found.values())
    return {item.name if names[item.name] == 1 else str(path): path for path, item in found.items()}


def _documents(
    estimates: "dict[str, Estimate]", measured: "dict[str, Measurement]", failed: Mapping[str, str]
) -> dict[str, Any]:
    documents = []
    for label, estimate in estimates.items():
        document: dict[str, Any] = {**estimate.to_dict()}
        if label in measured:
            document |= measured_document(estimate, measured[label])
        documents.append(document)
    if len(documents) == 1 and not failed:
        return documents[0]
    result: dict[str, Any] = {"models": documents, "failed": failed}
    if measured:
        result["geometric_mean_ratio"] = _geometric_mean_ratio(estimates, measured)
    return result


def measured_document(estimate: "Estimate", measured: "Measurement") -> dict[str, Any]:
    """Returns the entries of a JSON document that compare the estimate of a model with its measurement."""
    return {
        "measured_us": measured.latency_us,
        "measured_interval_us": list(measured.interval_us),
        "measured_stable": measured.stable,
        "ratio": estimate.latency_us / measured.latency_us,
    }


def _geometric_mean_ratio(estimates: "dict[str, Estimate]", measured: "dict[str, Measurement]") -> float:
    """Returns the geometric mean, over the models, of the estimated latency divided by the measured latency."""
    ratios = (estimates[label].latency_us / measurement.latency_us for label, measurement in measured.items())
    return math.prod(ratios) ** (1 / len(measured))


def print_estimate(estimate: "Estimate", measured: "Measurement | None" = None) -> None:
    """Prints one estimate: the latency, what share of it comes from which source, and the slowest layers."""
    from costmodel.partition.decomposition import FIXED
    from costmodel.units import format_bytes, format_us

    low, high = estimate.interval_us
    say(f"{estimate.model} on {estimate.system}", style="bold")
    if estimate.unpriced:
        missing = f"{len(estimate.unpriced)} of {len(estimate.layers)} have no cost"
        say(f"  at least  {format_us(estimate.latency_us)}   {missing}")
    else:
        say(
            f"  latency   {format_us(estimate.latency_us)}   "
            f"{estimate.interval_level:.0%} interval {format_us(low)} to {format_us(high)}"
        )
    if estimate.beside:
        least, most = estimate.slowdown_interval
        say(
            f"  beside    {', '.join(estimate.beside)}: {estimate.slowdown:.2f} times as long as alone "
            f"({least:.2f} to {most:.2f}); the layers below are alone"
        )
    if measured is not None:
        error = estimate.latency_us / measured.latency_us - 1
        low, high = measured.interval_us
        say(
            f"  measured  {format_us(measured.latency_us)}   90% interval {format_us(low)} to {format_us(high)}; "
            f"the estimate is {error:+.1%} off"
        )
        if not measured.stable:
            say(f"            {_UNRELIABLE}")
    quantiles = ", ".join(f"{q} {format_us(us)}" for q, us in estimate.quantiles_us.items())
    say(f"  users see {quantiles or 'unknown: how much latencies vary was never measured on this system'}")
    if estimate.peak_memory_bytes is not None and estimate.peak_memory_interval_bytes is not None:
        bounds = " to ".join(map(format_bytes, estimate.peak_memory_interval_bytes))
        say(f"  memory    {format_bytes(estimate.peak_memory_bytes)} at its peak, 90% interval {bounds}")
    if estimate.load_time_us is not None and estimate.first_run_us is not None:
        load, first = format_us(estimate.load_time_us), format_us(estimate.first_run_us)
        say(f"  start     {load} to load, {first} for the first run")
    shares = ", ".join(f"{share:.0%} {source}" for source, share in estimate.coverage.items() if share)
    say(f"  made of   {shares or 'nothing that has a cost'}")
    cover = "" if estimate.cover == FIXED else f"{estimate.cover} cover, "
    how = f"granularity {estimate.granularity}, {cover}{estimate.composition}"
    say(f"  over      {len(estimate.layers)} sequences, {how}")
    say()
    included = {one: one.share * one.cost.latency_us for one in estimate.layers if one.share}
    slowest = sorted(included, key=lambda one: -included[one])[:_SLOWEST_LAYERS]
    print_table(
        ("slowest layers", "operator", "source", "latency", "share"),
        [
            (
                _short(layer.name), _short(layer.op_type), layer.cost.source, format_us(layer.cost.latency_us),
                f"{included[layer] / (estimate.latency_us or 1.0):.1%}",
            )
            for layer in slowest
        ],
        left=3,
    )  # fmt: skip


def _short(names: str) -> str:
    """Shortens the name of a sequence ("a+b+c+d", its layers) to the first and last layer if it has many layers."""
    parts = names.split("+")
    return names if len(parts) <= _MAX_NAMES else f"{parts[0]}+{len(parts) - 2} more+{parts[-1]}"


def _print_many(estimates: "dict[str, Estimate]", measured: "dict[str, Measurement]") -> None:
    from costmodel.units import format_bytes, format_us

    rows = []
    for label, estimate in estimates.items():
        low, high = estimate.interval_us
        row = [label, format_us(estimate.latency_us), f"{format_us(low)} to {format_us(high)}",
               f"{estimate.coverage['measured']:.0%}",
               "-" if estimate.peak_memory_bytes is None else format_bytes(estimate.peak_memory_bytes)]  # fmt: skip
        if measured:
            of_model = measured[label]
            mark = "" if of_model.stable else " *"
            row += [format_us(of_model.latency_us) + mark, f"{estimate.latency_us / of_model.latency_us:.3f}"]
        rows.append(row)
    print_table(
        ["model", "latency", "interval", "measured share", "memory", *(["end to end", "ratio"] if measured else [])],
        rows,
    )
    if measured:
        say(f"geometric mean of the ratios: {_geometric_mean_ratio(estimates, measured):.3f}")
        if not all(measurement.stable for measurement in measured.values()):
            say(f"* {_UNRELIABLE}")
