"""Times the kernels of a model while it runs, with ONNX Runtime's own profiler.

The profiler names kernels after the nodes of the graph that the session optimised, whose numbered names differ from
session to session. The profiled session therefore also writes its graph, in which the names are those of its profile,
and the nodes of that graph are named as `costmodel.runtimes.ort.graph` names layers.

The model runs with synthetic weights: its file may name nodes twice or not at all, and weights do not affect which
layers there are.
"""

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto

from costmodel.errors import MeasurementError
from costmodel.onnx_io.model import Model
from costmodel.runtimes.base import KernelTime, ProfiledRun, RuntimeSettings
from costmodel.runtimes.ort.graph import layer_names
from costmodel.runtimes.ort.provenance import name_nodes
from costmodel.runtimes.ort.session import SessionRunner, new_session, ort_value, session_options
from costmodel.runtimes.ort.synthetic_weights import with_synthetic_weights
from costmodel.runtimes.timed_run import timed_run

__all__ = ["profiled_runs"]

_KERNEL, _RUN = "_kernel_time", "model_run"
# Larger weights of the optimised graph are written to a file of their own, which is not read.
_EMBEDDED_BYTES = 1024
_ROUNDING_US = 2


def profiled_runs(
    model: Model, settings: RuntimeSettings, inputs: Mapping[str, np.ndarray], *, runs: int, warm_up_runs: int
) -> tuple[ProfiledRun, ...]:
    """Runs a model under ONNX Runtime's profiler and returns the runs after the warm-up.

    Args:
        model: Model to run.
        settings: Threads, level and spinning of the session.
        inputs: Value of each input by name.
        runs: Number of runs to return; fewer are returned if the profiler has no room for more events.
        warm_up_runs: Number of runs before these.

    Raises:
        MeasurementError: The model fails to run, or the profiler reported no complete run.
        Exception: onnxruntime cannot load the model; the exception is onnxruntime's own.
    """
    source = ModelProto()
    source.CopyFrom(model.proto)
    name_nodes(source)
    network, weights = with_synthetic_weights(source)
    values = [ort_value(array) for array in weights.values()]
    options = session_options(settings, timed=True, concurrent=True)
    with tempfile.TemporaryDirectory(prefix="costmodel-profile-") as folder:
        optimised = Path(folder) / "optimised.onnx"
        options.optimized_model_filepath = str(optimised)
        key = "session.optimized_model_external_initializers"
        options.add_session_config_entry(f"{key}_file_name", "optimised.bin")
        options.add_session_config_entry(f"{key}_min_size_in_bytes", str(_EMBEDDED_BYTES))
        options.enable_profiling = True
        options.profile_file_prefix = str(Path(folder) / "profile")
        if weights:
            options.add_external_initializers(list(weights), values)
        session = new_session(network.SerializeToString(), options)
        try:
            runner = SessionRunner(session, inputs, (weights, values))
            lost_us = [timed_run(runner)[1] for _ in range(warm_up_runs + runs)]
        finally:
            profile = Path(session.end_profiling())
        names = layer_names(source, onnx.load(str(optimised), load_external_data=False))
        found = tuple(_runs(json.loads(profile.read_bytes()), names, lost_us))[warm_up_runs:]
    if not found:
        raise MeasurementError(
            f"the profiler of onnxruntime reported no complete run of {model.name}, which has too many kernels for it: "
            "ask for fewer --runs"
        )
    return found


@dataclass(frozen=True, slots=True)
class _Event:
    """An event of the profile: a kernel or a run of the model, with times in microseconds."""

    name: str
    begin_us: float
    duration_us: float
    thread: int
    arguments: Mapping[str, Any]

    @property
    def end_us(self) -> float:
        return self.begin_us + self.duration_us


def _runs(document: list[dict[str, Any]], names: Mapping[str, str], lost_us: Sequence[float]) -> Iterator[ProfiledRun]:
    """Yields the complete runs of a profile, in order.

    Args:
        document: Events of the profile, as ONNX Runtime writes them.
        names: Name of each layer by name of its node in the optimised graph.
        lost_us: For each run, the time during which it was not on a CPU, in microseconds.
    """
    events = [_Event(e["name"], e["ts"], e["dur"], e["tid"], e["args"]) for e in document if e.get("ph") == "X"]
    kernels = sorted(
        (event for event in events if event.name.endswith(_KERNEL)), key=lambda e: (e.begin_us, -e.duration_us)
    )
    threads = {thread: number for number, thread in enumerate(dict.fromkeys(event.thread for event in kernels))}
    position = 0
    runs = sorted((event for event in events if event.name == _RUN), key=lambda e: e.begin_us)
    for run, lost in zip(runs, lost_us, strict=False):  # the profiler may have had no room for the last runs
        while position < len(kernels) and kernels[position].begin_us < run.begin_us:
            position += 1
        first = position
        while position < len(kernels) and kernels[position].begin_us <= run.end_us:
            position += 1
        yield ProfiledRun(run.duration_us, tuple(_kernels(run, kernels[first:position], names, threads)), lost)


def _kernels(
    run: _Event, events: list[_Event], names: Mapping[str, str], threads: Mapping[int, int]
) -> Iterator[KernelTime]:
    """Yields the kernels of one run; those of the body of a layer run while its own kernel does, in the same thread."""
    enclosing: dict[int, tuple[_Event, str]] = {}
    for event in events:
        outer, layer = enclosing.get(event.thread, (None, ""))
        own = names.get(event.name.removesuffix(_KERNEL))
        # The profiler cuts begin and duration to whole microseconds, so a body may seem to end after its layer.
        in_body = outer is not None and event.begin_us < outer.end_us + (_ROUNDING_US if own is None else 0)
        if not in_body:
            layer = own or ""
            enclosing[event.thread] = event, layer
        yield KernelTime(
            layer=layer,
            kernel=event.arguments.get("op_name", ""),
            provider=event.arguments.get("provider", ""),
            begin_us=event.begin_us - run.begin_us,
            duration_us=event.duration_us,
            thread=threads[event.thread],
            in_body=in_body,
        )
