"""Writes the profile of a model in the Trace Event Format, which Perfetto and Chrome's tracing page show.

Each level is a thread of one process, because a thread is a track on the screen: the model, its layers as they ran with
their kernels inside them, the predicted costs, and the costs that were measured alone.
"""

from collections.abc import Iterator
from typing import NotRequired

from typing_extensions import TypedDict

from costmodel.jobs.profiling import LayerProfile, ModelProfile
from costmodel.runtimes.base import KernelTime

__all__ = ["TraceDocument", "TraceEvent", "trace_document"]

_PROCESS = 1
_MODEL, _PREDICTED, _ALONE, _LAYERS = 1, 2, 3, 4  # layers come last: each thread of the runtime has a track

Argument = str | float | int | list[str] | None


class TraceEvent(TypedDict):
    """An event of the Trace Event Format, a complete event ("X") or metadata ("M").

    Attributes:
        name: Name of the event.
        ph: Phase, which says what kind of event it is.
        pid: Number of the process.
        tid: Number of the thread.
        args: Values that are shown with the event.
        cat: Category of the event.
        ts: Start of the event in microseconds.
        dur: Duration of the event in microseconds.
    """

    name: str
    ph: str
    pid: int
    tid: int
    args: dict[str, Argument]
    cat: NotRequired[str]
    ts: NotRequired[float]
    dur: NotRequired[float]


class TraceDocument(TypedDict):
    """A trace in the JSON object form of the Trace Event Format.

    Attributes:
        traceEvents: Events: first the metadata, then those of each track in order of time.
        displayTimeUnit: Unit in which times are shown.
        otherData: What the trace is about.
    """

    traceEvents: list[TraceEvent]
    displayTimeUnit: str
    otherData: dict[str, str]


def trace_document(profile: ModelProfile) -> TraceDocument:
    """Returns the profile of a model as a trace.

    The layers are those of the run with the median latency. Predicted costs, and those measured alone, are laid end to
    end, so that the end of a track is their sum; layers without such a cost are left out of it.
    """
    events = [*_model(profile), *_costs(profile, _PREDICTED), *_costs(profile, _ALONE), *_layers(profile)]
    tracks = {_MODEL: "model", _PREDICTED: "layers, predicted", _ALONE: "layers, measured alone"}
    for track in sorted({event["tid"] for event in events if event["tid"] >= _LAYERS}):
        tracks[track] = "layers and kernels, in the model" + (f", thread {track - _LAYERS}" if track > _LAYERS else "")
    present = {event["tid"] for event in events}
    metadata = [_metadata("process_name", 0, {"name": f"{profile.model} on {profile.system}"})]
    for track, name in tracks.items():
        if track in present:
            metadata.append(_metadata("thread_name", track, {"name": name}))
            metadata.append(_metadata("thread_sort_index", track, {"sort_index": track}))
    return {
        "traceEvents": [*metadata, *events],
        "displayTimeUnit": "ms",
        "otherData": {"model": profile.model, "system": profile.system},
    }


def _metadata(name: str, track: int, values: dict[str, Argument]) -> TraceEvent:
    return {"name": name, "ph": "M", "pid": _PROCESS, "tid": track, "args": values}


def _complete(
    name: str, category: str, track: int, begin_us: float, end_us: float, values: dict[str, Argument]
) -> TraceEvent:
    begin_us = round(begin_us, 3)
    return {
        "name": name, "cat": category, "ph": "X", "pid": _PROCESS, "tid": track, "ts": begin_us,
        "dur": round(end_us - begin_us, 3), "args": values,
    }  # fmt: skip


def _model(profile: ModelProfile) -> Iterator[TraceEvent]:
    """Yields the model's latency as one event: measured without the profiler, or else predicted."""
    latency_us = profile.predicted_us if profile.run is None else profile.run.measurement.latency_us
    if latency_us is not None:
        values: dict[str, Argument] = {
            "predicted_us": profile.predicted_us,
            "sum_measured_alone_us": profile.alone_us,
            "sum_in_model_us": profile.in_model_us,
            "measured_us": None if profile.run is None else profile.run.measurement.latency_us,
            "under_profiler_us": None if profile.run is None else profile.run.profiled_us,
        }
        yield _complete(profile.model, "model", _MODEL, 0.0, latency_us, values)


def _values(layer: LayerProfile) -> dict[str, Argument]:
    return {
        "operator": layer.op_type,
        "predicted_us": layer.predicted_us,
        "measured_alone_us": layer.alone_us,
        "in_model_us": layer.in_model_us,
        "sources": list(layer.sources),
        "signature": layer.signature,
    }


def _costs(profile: ModelProfile, track: int) -> Iterator[TraceEvent]:
    """Yields the layers with their predicted costs, or those measured alone, one after the other."""
    end_us = 0.0
    for layer in profile.layers:
        cost_us = layer.predicted_us if track == _PREDICTED else layer.alone_us
        if cost_us is not None:
            begin_us, end_us = end_us, end_us + cost_us
            yield _complete(layer.name, "layer", track, begin_us, end_us, _values(layer))


def _layers(profile: ModelProfile) -> Iterator[TraceEvent]:
    """Yields the layers of the typical run, thread by thread, each followed by its kernel and those of its body."""
    if profile.run is None:
        return
    of_layer = {name: layer for layer in profile.layers for name in layer.layers}
    by_thread: dict[int, list[KernelTime]] = {}
    for kernel in profile.run.typical.kernels:
        by_thread.setdefault(kernel.thread, []).append(kernel)
    for thread, kernels in sorted(by_thread.items()):
        ends_us: list[float] = []  # of the layer, and of the kernels of its body that contain the next one
        for kernel in kernels:
            begin_us, end_us = kernel.begin_us, kernel.begin_us + kernel.duration_us
            if kernel.in_body:
                while len(ends_us) > 1 and begin_us >= ends_us[-1]:
                    ends_us.pop()
                # The profiler cuts times to microseconds, so that a body may seem to end after its layer.
                begin_us, end_us = min(begin_us, ends_us[-1]), min(end_us, ends_us[-1])
                ends_us.append(end_us)
            else:
                ends_us = [end_us]
                layer = of_layer.get(kernel.layer)
                values = {} if layer is None else _values(layer)
                yield _complete(kernel.layer or kernel.kernel, "layer", _LAYERS + thread, begin_us, end_us, values)
            provider: dict[str, Argument] = {"provider": kernel.provider}
            yield _complete(kernel.kernel, "kernel", _LAYERS + thread, begin_us, end_us, provider)
