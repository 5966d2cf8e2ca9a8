"""The job of `costmodel profile`: compares predicted costs of layers with those measured alone and in the model."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from statistics import median

from costmodel.errors import UnknownSystemError
from costmodel.estimate.cost import Cost
from costmodel.estimate.estimate import Estimate
from costmodel.ir.graph import LayerGraph
from costmodel.jobs.benchmark_session import BenchmarkSession
from costmodel.measure.measurement import Measurement
from costmodel.onnx_io.model import Model
from costmodel.partition.decomposition import Decomposition, decompose, whole_model
from costmodel.runtimes.base import ProfiledRun, Runtime
from costmodel.runtimes.lowering_cache import lower_cached
from costmodel.serving.predictor import Predictor
from costmodel.store.store import Store
from costmodel.systems.system import System
from costmodel.units import format_us

__all__ = ["PROFILED_RUNS", "LayerProfile", "ModelProfile", "RunProfile", "profile_model"]

PROFILED_RUNS = 20
_WARM_UP_RUNS = 5
# The profiler makes this many times the requested runs, and keeps those that lost the least time to other processes.
_RUNS_TO_CHOOSE_FROM = 2
# A run that was off the CPU for this long, and this share of its time, was disturbed.
_DISTURBED_US, _DISTURBED_SHARE = 20.0, 0.02


@dataclass(frozen=True, slots=True)
class LayerProfile:
    """The costs of one layer of a model, or of one sequence of layers that run only together.

    Attributes:
        layers: Names of the layers.
        op_type: Operator types of the layers, joined by "+".
        signature: Signature of the layer sequence.
        sources: Names of the nodes of the model file that the layers were made from.
        predicted_us: Predicted latency inside the model, in microseconds; None if nothing predicts it.
        alone_us: Measured latency in isolation, in microseconds; None if the store has no measurement.
        in_model_us: Median time in the running model, in microseconds; None if the model was not run.
        kernels: Kernels that executed the layers, with their operators, in order; empty if the model was not run.
    """

    layers: tuple[str, ...]
    op_type: str
    signature: str
    sources: tuple[str, ...]
    predicted_us: float | None
    alone_us: float | None
    in_model_us: float | None
    kernels: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Names of the layers, joined by "+"."""
        return "+".join(self.layers)

    @property
    def difference_us(self) -> float | None:
        """Largest difference between known costs of the layer, in microseconds; None if fewer than two are known."""
        known = self._known_us
        return max(known) - min(known) if len(known) > 1 else None

    @property
    def _known_us(self) -> list[float]:
        return [us for us in (self.predicted_us, self.alone_us, self.in_model_us) if us is not None]

    @property
    def rank(self) -> tuple[float, float]:
        """Sort key that puts layers first whose costs differ most, and then the most expensive ones."""
        return -(self.difference_us or 0.0), -max(self._known_us, default=0.0)


@dataclass(frozen=True, slots=True)
class RunProfile:
    """A model as it ran on this host, without the runtime's profiler and with it.

    Attributes:
        measurement: Measurement of the whole model without the profiler.
        runs: Runs under the profiler, after the warm-up: those that lost the least time to other processes.
    """

    measurement: Measurement
    runs: tuple[ProfiledRun, ...]

    @property
    def profiled_us(self) -> float:
        """Median latency of the model under the profiler, in microseconds."""
        return median(run.latency_us for run in self.runs)

    @property
    def num_disturbed(self) -> int:
        """Number of runs that lost the CPU to another process, so that one of their layers seems to take longer."""
        return sum(run.lost_us > max(_DISTURBED_US, _DISTURBED_SHARE * run.latency_us) for run in self.runs)

    @property
    def typical(self) -> ProfiledRun:
        """The run whose latency is the median, or the lower one of two in the middle."""
        return sorted(self.runs, key=lambda run: run.latency_us)[(len(self.runs) - 1) // 2]

    @property
    def in_model_us(self) -> dict[str, float]:
        """Median time of each layer over the runs, in microseconds, by name; "" for nodes outside the lowered graph."""
        of_runs = [_times_us(run) for run in self.runs]
        return {name: median(times.get(name, 0.0) for times in of_runs) for name in of_runs[0]}

    @property
    def kernels(self) -> dict[str, tuple[str, ...]]:
        """Operators of the kernels that executed each layer, in order and each once, by name of the layer."""
        ran = sorted(self.runs[0].kernels, key=lambda kernel: kernel.layer)
        return {
            layer: tuple(dict.fromkeys(kernel.kernel for kernel in of_layer))
            for layer, of_layer in groupby(ran, key=lambda kernel: kernel.layer)
        }


@dataclass(frozen=True, slots=True)
class ModelProfile:
    """The costs of a model and of each of its layers on a system.

    Attributes:
        model: Name of the model.
        system: Name of the system.
        predicted_us: Latency of the model when every layer is predicted, in microseconds; None if a layer has no
            predicted cost.
        predicted_interval_us: Lower and upper bound of `predicted_us`, in microseconds.
        layers: The layers in execution order.
        run: The model as it ran on this host; None if it was not run.
        notes: Remarks for the user, one sentence each.
    """

    model: str
    system: str
    predicted_us: float | None
    predicted_interval_us: tuple[float, float] | None
    layers: tuple[LayerProfile, ...]
    run: RunProfile | None
    notes: tuple[str, ...] = ()

    @property
    def alone_us(self) -> float | None:
        """Sum of the layers' measured latencies in isolation, in microseconds; None unless all are measured."""
        return _sum_us([layer.alone_us for layer in self.layers])

    @property
    def in_model_us(self) -> float | None:
        """Sum of the layers' times in the running model, in microseconds; None if the model was not run."""
        return _sum_us([layer.in_model_us for layer in self.layers])

    @property
    def by_difference(self) -> list[LayerProfile]:
        """The layers, those first whose costs differ most, and then the most expensive ones."""
        return sorted(self.layers, key=lambda layer: layer.rank)


def profile_model(
    store: Store,
    system: System,
    runtime: Runtime,
    model: Model,
    *,
    cache: Path,
    bundles: Path,
    here: bool,
    runs: int = PROFILED_RUNS,
    bench: Callable[[Store, System, Runtime], BenchmarkSession] = BenchmarkSession,
) -> ModelProfile:
    """Returns the costs of a model's layers on a system: predicted, measured alone, and measured in the running model.

    Args:
        store: Store with the measurements of the system.
        system: The system; if it is this host, `here` is true.
        runtime: Runtime that lowers the model, and runs it if the system is this host.
        model: Model to profile.
        cache: Folder in which lowered graphs are cached.
        bundles: Folder of the regressors that were trained on the store.
        here: Whether the system is this host, so that the model can be run.
        runs: Number of runs under the runtime's profiler to use, the quieter half of those that are made.
        bench: Function that makes a benchmark session from a store, a system and a runtime.

    Raises:
        ModelError: The model cannot be lowered or loaded.
        MeasurementError: The model does not run, or the runtime has no profiler.
        HostBusyError: Another process is measuring.
        ArtefactError: The regressor of the system cannot be loaded.
    """
    graph = lower_cached(runtime, model, system.settings.level, cache)
    cut = decompose(model.name, graph)
    estimate, notes = _predicted(store, system, bundles, cut)
    run = _run(store, system, runtime, model, graph, runs, bench) if here else None
    layers = _layers(cut, graph, estimate, _alone_us(store, system, cut), run)
    if run is not None:
        notes += _notes_on(run, layers)
    complete = estimate is not None and not estimate.unpriced
    return ModelProfile(
        model=model.name,
        system=system.name,
        predicted_us=estimate.latency_us if estimate and complete else None,
        predicted_interval_us=estimate.interval_us if estimate and complete else None,
        layers=layers,
        run=run,
        notes=(*model.warnings, *notes),
    )


def _predicted(store: Store, system: System, bundles: Path, cut: Decomposition) -> tuple[Estimate | None, list[str]]:
    """Returns the estimate of a model of which every layer is predicted, None without a regressor; and remarks."""
    missing = f"nothing is predicted: train a regressor with `costmodel train --system {system.name}`"
    try:
        predictor = Predictor.load(store, bundles, system.name)
    except UnknownSystemError:
        return None, [missing]
    estimate = predictor.estimate(cut, measured=False, partial=True)
    return (estimate, [missing]) if len(estimate.unpriced) == len(cut.segments) else (estimate, [])


def _alone_us(store: Store, system: System, cut: Decomposition) -> dict[str, float]:
    """Returns the measured latency in isolation of each sequence that the store has, in microseconds, by signature."""
    if system.name not in store.systems():
        return {}
    return {signature: one.latency_us for signature, one in store.timings(system.name, cut.unique).items()}


def _run(
    store: Store,
    system: System,
    runtime: Runtime,
    model: Model,
    graph: LayerGraph,
    runs: int,
    bench: Callable[[Store, System, Runtime], BenchmarkSession],
) -> RunProfile:
    with bench(store, system, runtime) as session:
        measurement = session.measure_model(whole_model(graph), model)
        candidates = session.profile_model(model, runs=_RUNS_TO_CHOOSE_FROM * runs, warm_up_runs=_WARM_UP_RUNS)
        return RunProfile(measurement, tuple(sorted(candidates, key=lambda run: run.lost_us)[:runs]))


def _layers(
    cut: Decomposition,
    graph: LayerGraph,
    estimate: Estimate | None,
    alone_us: dict[str, float],
    run: RunProfile | None,
) -> tuple[LayerProfile, ...]:
    sources = {layer.name: layer.sources for layer in graph.layers}
    in_model_us = {} if run is None else run.in_model_us
    kernels = {} if run is None else run.kernels
    costs: Sequence[Cost | None] = [None] * len(cut.segments) if estimate is None else [o.cost for o in estimate.layers]
    return tuple(
        LayerProfile(
            layers=segment.layers,
            op_type=segment.sequence.kind,
            signature=segment.sequence.signature,
            sources=tuple(source for layer in segment.layers for source in sources[layer]),
            predicted_us=None if cost is None or cost.source == "unpriced" else cost.latency_us,
            alone_us=alone_us.get(segment.sequence.signature),
            in_model_us=_sum_us([in_model_us.get(layer) for layer in segment.layers]),
            kernels=tuple(kernel for layer in segment.layers for kernel in kernels.get(layer, ())),
        )
        for segment, cost in zip(cut.segments, costs, strict=True)
    )


def _notes_on(run: RunProfile, layers: Sequence[LayerProfile]) -> list[str]:
    """Returns remarks about what the runtime's profiler reported otherwise than the lowered graph says."""
    notes = []
    if unseen := [layer.name for layer in layers if layer.in_model_us is None]:
        notes.append(f"the profiler reported no time for {len(unseen)} layers: {', '.join(unseen)}")
    if elsewhere_us := run.in_model_us.get("", 0.0):
        notes.append(
            f"{format_us(elsewhere_us)} of each run are spent in nodes that are not layers of the lowered graph"
        )
    if 2 * run.num_disturbed > len(run.runs):
        notes.append(
            f"{run.num_disturbed} of {len(run.runs)} runs under the profiler lost the CPU to other processes, so times "
            "in the model may be too long: profile the model again when the machine is quiet"
        )
    if not run.measurement.stable:
        notes.append("the latency of the model is uncertain, because the machine was busy: profile it again")
    return notes


def _times_us(run: ProfiledRun) -> dict[str, float]:
    """Returns the time of each layer in one run, in microseconds, by name."""
    times_us: dict[str, float] = {}
    for kernel in run.kernels:
        if not kernel.in_body:
            times_us[kernel.layer] = times_us.get(kernel.layer, 0.0) + kernel.duration_us
    return times_us


def _sum_us(parts_us: Sequence[float | None]) -> float | None:
    """Returns the sum of the parts in microseconds; None if one of them is unknown."""
    known = [us for us in parts_us if us is not None]
    return sum(known) if len(known) == len(parts_us) else None
