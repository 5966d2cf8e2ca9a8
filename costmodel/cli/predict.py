"""Implements `costmodel predict`, which predicts the latencies of models on a system."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from costmodel.cli import app
from costmodel.cli.context import Context
from costmodel.cli.estimates import estimates_document, print_estimates
from costmodel.cli.options import (
    BatchOption,
    GranularityOption,
    InterThreadsOption,
    JsonOption,
    RuntimeOption,
    ShapeOption,
    StoreOption,
    SystemOption,
    ThreadsOption,
    ValueOption,
    one_of,
    parse_granularity,
    parse_shapes,
    parse_values,
)
from costmodel.cli.output import note, print_json, progress_bars
from costmodel.cli.unmeasured import extrapolate_if_unknown, probe_this_host

if TYPE_CHECKING:
    from pathlib import Path

    from costmodel.measure.measurement import Measurement
    from costmodel.onnx_io.model import Model
    from costmodel.systems.system import System

__all__ = ["labelled", "predict"]

# Exit code if some of the models have no estimate.
_INCOMPLETE = 1

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


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
    value: ValueOption = None,
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
    """Predict the latency of models, in total and by layer.

    A model that has no estimate does not stop the others: it is named, and the exit code is 1.
    """
    from costmodel.api import CostModel
    from costmodel.jobs.bench import measure_models
    from costmodel.onnx_io.model import read_model
    from costmodel.partition.decomposition import FIXED, whole_model
    from costmodel.partition.granularity import AUTO

    shapes = parse_shapes(shape)
    values = parse_values(value)
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
            "system": system, "batch": batch, "shapes": shapes, "values": values, "granularity": max_layers,
            "composition": compose, "partial": partial, "measured": not predict_all,
        }  # fmt: skip
        _ask(server, token, labelled(models), options, json=json)
        return
    if beside and measure:
        raise typer.BadParameter("models are run alone: leave out --measure", param_hint="--beside")
    context = Context(store, tools=command.obj, runtime_name=runtime)
    name = context.system_name(system, threads, inter_threads)
    failed: dict[str, str] = {}
    read = _of_each(
        labelled(models),
        lambda label, path: read_model(path, batch=batch, shapes=shapes, values=values, name=label),
        failed,
    )
    if probe:
        probe_this_host(context, system, threads, inter_threads)
    else:
        name = context.asked_system(system, threads, inter_threads)
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
        print_json(estimates_document(estimates, measured, failed))
    else:
        print_estimates(estimates, measured)
        for label, reason in failed.items():
            note(f"{label} has no estimate: {reason}")
    if failed:
        raise typer.Exit(_INCOMPLETE)


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


def _ask(server: str, token: str | None, files: "dict[str, Path]", options: dict[str, Any], *, json: bool) -> None:
    """Gets the predictions for model files from the service at the URL `server`, and prints them."""
    from costmodel.estimate.estimate import Estimate
    from costmodel.jobs.remote_prediction import predict_remotely

    documents = predict_remotely(server, token, files, options)
    if json:
        print_json(documents[0] if len(documents) == 1 else {"models": documents})
        return
    estimates = {label: Estimate.from_dict(document) for label, document in zip(files, documents, strict=True)}
    print_estimates(estimates, {})


def labelled(models: Iterable[str]) -> "dict[str, Path]":
    """Returns the model files that paths and names of corpora stand for, by label.

    The label of a file is the name of its model, or the path of the file if several models have that name.
    """
    from costmodel.training.corpus import corpus_models

    found = {item.path: item for text in models for item in corpus_models(text)}
    names = Counter(item.name for item in found.values())
    return {item.name if names[item.name] == 1 else str(path): path for path, item in found.items()}
