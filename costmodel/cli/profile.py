"""Implements `costmodel profile`, which compares what a model's layers are predicted to cost with what they take."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from costmodel.cli import app
from costmodel.cli.context import Context
from costmodel.cli.options import (
    BatchOption,
    InterThreadsOption,
    JsonOption,
    RuntimeOption,
    ShapeOption,
    StoreOption,
    SystemOption,
    ThreadsOption,
    ValueOption,
    parse_shapes,
    parse_values,
)
from costmodel.cli.output import note, print_json, print_table, say
from costmodel.cli.unmeasured import extrapolate_if_unknown

if TYPE_CHECKING:
    from costmodel.jobs.profiling import ModelProfile
    from costmodel.runtimes.base import Runtime
    from costmodel.systems.system import System

__all__ = ["profile"]

_SHOWN_LAYERS = 15
_RUNS = 20


@app.command()
def profile(
    command: typer.Context,
    model: Annotated[str, typer.Argument(help="An ONNX file, or the name of a model in a corpus.")],
    system: SystemOption = None,
    batch: BatchOption = None,
    shape: ShapeOption = None,
    value: ValueOption = None,
    runs: Annotated[int, typer.Option(min=1, help="Runs under the runtime's profiler, after a warm-up.")] = _RUNS,
    trace: Annotated[
        Path | None,
        typer.Option(help="Write a trace that Perfetto and Chrome's tracing page show.", show_default=False),
    ] = None,
    threads: ThreadsOption = 1,
    runtime: RuntimeOption = "onnxruntime",
    inter_threads: InterThreadsOption = 1,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Compare predicted and measured costs of layers.

    Shows for each layer what it is predicted to take, takes alone, and takes in the running model.

    Runs the model here, first as it is, then under the runtime's own profiler. The layers whose costs differ most come
    first. If the system is another machine, the model is not run.
    """
    from costmodel.jobs.profile_trace import trace_document
    from costmodel.jobs.profiling import profile_model
    from costmodel.onnx_io.model import read_model
    from costmodel.training.corpus import corpus_models

    matches = list(corpus_models(model))
    if len(matches) != 1:
        raise typer.BadParameter(f"{model} is {len(matches)} models: name one file", param_hint="MODEL")
    if trace is not None and not trace.parent.is_dir():
        raise typer.BadParameter(f"there is no folder {trace.parent}: make it first", param_hint="--trace")
    context = Context(store, tools=command.obj, runtime_name=runtime)
    read = read_model(
        matches[0].path, batch=batch, shapes=parse_shapes(shape), values=parse_values(value), name=matches[0].name
    )
    running, found, elsewhere = _system(context, system, threads, inter_threads)
    result = profile_model(
        context.store, found, running, read, cache=context.home.cache, bundles=context.bundles, here=not elsewhere,
        runs=runs, bench=context.bench,
    )  # fmt: skip
    for remark in (*([elsewhere] if elsewhere else []), *result.notes):
        note(remark)
    if trace is not None:
        from json import dumps

        trace.write_text(dumps(trace_document(result), allow_nan=False) + "\n", encoding="utf-8")
    if json:
        print_json(_document(result, elsewhere))
        return
    _print(result)
    if trace is not None:
        say(f"The trace is in {trace}: open it at ui.perfetto.dev or chrome://tracing.")


def _system(
    context: Context, name: str | None, threads: int, inter_threads: int
) -> "tuple[Runtime, System, str | None]":
    """Returns the runtime, the system, and the reason why the model is not run; None if the system is this host.

    Raises:
        UnknownSystemError: A system is named that the store does not have.
    """
    from costmodel.errors import SystemMismatchError
    from costmodel.runtimes.base import get_runtime
    from costmodel.systems.system import check_same_system

    if name is None:
        runtime, here = context.here(None, threads, inter_threads=inter_threads)
        return runtime, context.store.systems().get(here.name, here), None
    extrapolate_if_unknown(context, context.asked_system(name, threads, inter_threads), threads, inter_threads)
    known = context.store.system(name)
    settings = known.settings
    try:
        if known.extrapolated:
            raise SystemMismatchError(f"nobody has measured {name}")
        runtime, here = context.here(
            name, settings.threads, level=settings.level, inter_threads=settings.inter_threads, asserted=known.asserted
        )
        check_same_system(known, here)
    except SystemMismatchError as error:
        runtime = context.tools.runtime or get_runtime(known.runtime)
        return runtime, known, f"the model was not run, because this host is not {name}: {error}"
    return runtime, known, None


def _print(result: "ModelProfile") -> None:
    from costmodel.units import format_us

    def shown(us: float | None) -> str:
        return "-" if us is None else format_us(us)

    say(f"{result.model} on {result.system}", style="bold")
    if result.run is not None:
        low, high = result.run.measurement.interval_us
        measured_us, in_model_us = result.run.measurement.latency_us, result.in_model_us
        say(f"  measured      {format_us(measured_us)}   90% interval {format_us(low)} to {format_us(high)}")
        if in_model_us is not None:
            say(
                f"  in the model  {format_us(in_model_us)}   sum of {len(result.layers)} layers under the profiler, "
                f"{in_model_us / measured_us - 1:+.1%} to the measured latency; a run took "
                f"{format_us(result.run.profiled_us)}"
            )
    if result.alone_us is not None:
        say(f"  alone         {format_us(result.alone_us)}   sum of {len(result.layers)} layers measured one by one")
    else:
        known = sum(layer.alone_us is not None for layer in result.layers)
        say(f"  alone         {known} of {len(result.layers)} layers are measured; `costmodel bench` measures the rest")
    if result.predicted_us is not None and result.predicted_interval_us is not None:
        low, high = result.predicted_interval_us
        say(f"  predicted     {format_us(result.predicted_us)}   interval {format_us(low)} to {format_us(high)}")
    say()
    print_table(
        ("layer", "operator", "kernels", "predicted", "alone", "in the model", "difference"),
        [
            (
                layer.name, layer.op_type, " ".join(layer.kernels), shown(layer.predicted_us), shown(layer.alone_us),
                shown(layer.in_model_us), shown(layer.difference_us),
            )
            for layer in result.by_difference[:_SHOWN_LAYERS]
        ],
        left=3,
    )  # fmt: skip


def _document(result: "ModelProfile", elsewhere: str | None) -> dict[str, Any]:
    run = result.run
    return {
        "model": result.model,
        "system": result.system,
        "predicted_us": result.predicted_us,
        "predicted_interval_us": result.predicted_interval_us,
        "alone_us": result.alone_us,
        "in_model_us": result.in_model_us,
        "measured_us": None if run is None else run.measurement.latency_us,
        "measured_interval_us": None if run is None else run.measurement.interval_us,
        "measured_stable": None if run is None else run.measurement.stable,
        "profiled_us": None if run is None else run.profiled_us,
        "runs": 0 if run is None else len(run.runs),
        "layers": [
            {
                "name": layer.name,
                "op_type": layer.op_type,
                "signature": layer.signature,
                "sources": list(layer.sources),
                "kernels": list(layer.kernels),
                "predicted_us": layer.predicted_us,
                "alone_us": layer.alone_us,
                "in_model_us": layer.in_model_us,
                "difference_us": layer.difference_us,
            }
            for layer in result.by_difference
        ],
        "warnings": [*([elsewhere] if elsewhere else []), *result.notes],
    }
