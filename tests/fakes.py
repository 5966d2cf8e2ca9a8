"""A fake runtime with simulated time, so that no unit test measures the machine that it runs on.

Only runs advance its clock, each by a cost computed from the sequence, so that a test gives the same times anywhere.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial

from costmodel.errors import LoweringError, MeasurementError
from costmodel.ir.attributes import encode_attribute
from costmodel.ir.constants import dtype_name, signature_data
from costmodel.ir.graph import Layer, LayerGraph, TensorType
from costmodel.ir.operators import since_version
from costmodel.ir.sequence import LayerSequence, SequenceLayer, Value
from costmodel.jobs.benchmark_session import BenchmarkSession
from costmodel.measure.machine_state import StateProbe, product_chain
from costmodel.measure.measurement import Kind, Measurement, kind_of
from costmodel.measure.protocol import Protocol
from costmodel.onnx_io.model import Model
from costmodel.onnx_io.shape_inference import infer_model
from costmodel.partition.decomposition import decompose, whole_model
from costmodel.runtimes.base import KernelTime, ProfiledRun, RuntimeSettings
from costmodel.serving.observations.drift import Observation
from costmodel.store.results import Results
from costmodel.store.store import Store
from costmodel.systems.host import Host
from costmodel.systems.system import System

__all__ = [
    "HOST",
    "OBSERVED",
    "QUICK",
    "FakeClock",
    "FakeNeighbour",
    "FakeRunner",
    "FakeRuntime",
    "elementwise",
    "fake_bench",
    "fake_sessions",
    "fake_system",
    "measured",
    "results",
]

HOST = Host(
    vendor="GenuineIntel", model_name="Imaginary 1", family=6, model=85, l3_bytes=1 << 20, isa=("avx", "avx2")
)  # fmt: skip
OBSERVED = Observation(
    system="made.up", model="mine", digest="sha256:1", latency_us=110.0, runs=None, predicted_us=100.0,
    interval_us=(90.0, 112.0), version="v1", observed_at="2026-11-21T12:00:00+00:00",
)  # fmt: skip
QUICK = Protocol(
    passes=3, max_passes=5, min_passes=2, reference_every_us=100.0, short_lap_us=50.0, turn_us=20.0, max_runs=4
)  # fmt: skip


class FakeClock:
    """Simulated nanoseconds since the start of the test; only runs advance them.

    Attributes:
        now_ns: The time.
        slowed: Factor by which everything takes longer now.
    """

    def __init__(self) -> None:
        self.now_ns = 0
        self.slowed = 1.0

    def __call__(self) -> int:
        """Returns the time in nanoseconds."""
        return self.now_ns

    def pass_us(self, microseconds: float) -> None:
        """Advance the time."""
        self.now_ns += round(microseconds * self.slowed * 1000)


@dataclass
class FakeNeighbour:
    """A `costmodel.measure.neighbour.Neighbour` that slows a clock while it loops a network.

    Attributes:
        clock: Clock of the runs that are disturbed.
        slowdowns: Factor by which each of its networks slows the others while the CPUs are near each other.
        far_ns: Time until which the CPUs are far from each other, and nothing is slowed.
        looped: Networks that it was asked for, in order.
    """

    clock: FakeClock
    slowdowns: Sequence[float] = (1.0, 1.5, 1.25, 1.1, 1.0, 1.05)
    far_ns: float = 0.0
    looped: list[int] = field(default_factory=list)

    def __enter__(self) -> "FakeNeighbour":
        return self

    def __exit__(self, *_: object) -> None:
        self.rest()

    def loop(self, number: int) -> None:
        """Slows the clock."""
        self.looped.append(number)
        self.clock.slowed = 1.0 if self.clock.now_ns < self.far_ns else self.slowdowns[number]

    def rest(self) -> None:
        """Lets the clock run as usual."""
        self.clock.slowed = 1.0

    def round_trip_ns(self) -> float:
        """Returns a short time if the CPUs are near each other."""
        return 450.0 if self.clock.now_ns < self.far_ns else 110.0


@dataclass
class FakeRunner:
    """A runner whose run takes `cost_us` times the factor that `noise` gives for the number of the run.

    Attributes:
        clock: Clock that a run advances.
        cost_us: Microseconds of a run without noise.
        noise: Function from the number of the run, from 0, to a factor.
        error: Exception that each run raises; None for none.
        label: Entry that a run adds to `ran`.
        ran: List of the labels of all runs.
        runs: Number of runs.
        feeds: Number of times that the inputs were written.
    """

    clock: FakeClock
    cost_us: float
    noise: Callable[[int], float] = lambda _: 1.0
    error: Exception | None = None
    label: str = ""
    ran: list[str] = field(default_factory=list)
    runs: int = 0
    feeds: int = 0

    def run(self) -> None:
        """Advance the clock by the time of one run."""
        if self.error is not None:
            raise self.error
        self.clock.pass_us(self.cost_us * self.noise(self.runs))
        self.ran.append(self.label)
        self.runs += 1

    def feed(self) -> None:
        """Count the write; writing takes no simulated time."""
        self.feeds += 1


@dataclass
class FakeRuntime:
    """A `costmodel.runtimes.base.Runtime` that executes every node as one layer, in simulated time.

    A run of a network takes the call overhead plus the sum of its layers' costs.

    Attributes:
        version: Version of the runtime.
        clock: Clock that a run advances.
        overhead_us: Call overhead in microseconds.
        profiler_us: Time that the profiler takes for each layer, in microseconds.
        noise: Function from the number of a network's run, from 0, to a factor; restarted for each opened network.
        refused: Signatures and model names that do not load.
        broken: Signatures and model names that load and fail when they run.
        opened: Signatures and model names, in the order in which they were opened.
        ran: Signatures and model names, in the order in which they ran.
        lowered: Names of models, in the order in which they were lowered.
    """

    version: str = "1.0"
    clock: FakeClock = field(default_factory=FakeClock)
    overhead_us: float = 0.0
    profiler_us: float = 0.5
    noise: Callable[[int], float] = lambda _: 1.0
    refused: set[str] = field(default_factory=set)
    broken: set[str] = field(default_factory=set)
    opened: list[str] = field(default_factory=list)
    ran: list[str] = field(default_factory=list)
    lowered: list[str] = field(default_factory=list)
    name: str = "fake"

    def cost_us(self, sequence: LayerSequence) -> float:
        """Returns a sequence's cost: 1 us for each layer and for each thousand elements read or written."""
        touched = (i for layer in sequence.layers for i in (*layer.inputs, *layer.outputs) if i >= 0)
        return round(len(sequence.layers) + sum(sequence.values[i].type.elements for i in touched) / 1000, 3)

    def lower(self, model: Model, level: str) -> LayerGraph:
        """Returns each node of the model as a layer, at any level."""
        self.lowered.append(model.name)
        graph = model.proto.graph
        opset = next(entry.version for entry in model.proto.opset_import if not entry.domain)
        types = {
            **infer_model(model.proto),
            **{t.name: TensorType(dtype_name(t.data_type), tuple(t.dims)) for t in graph.initializer},
        }
        return LayerGraph(
            layers=tuple(
                Layer(
                    name=node.name or node.output[0],
                    op_type=node.op_type,
                    domain=node.domain,
                    since=since_version(node.op_type, node.domain, opset),
                    attributes={a.name: encode_attribute(a) for a in node.attribute},
                    inputs=tuple(node.input),
                    outputs=tuple(node.output),
                    sources=(node.name or node.output[0],),
                )
                for node in graph.node
            ),
            types=types,
            constants={tensor.name: signature_data(tensor) for tensor in graph.initializer},
            inputs=tuple(model.inputs),
            outputs=tuple(port.name for port in graph.output),
            opset=opset,
        )

    def open_sequence(self, sequence: LayerSequence, settings: RuntimeSettings) -> FakeRunner:
        """Returns a runner that takes the call overhead plus `cost_us`."""
        if sequence.signature in self.refused:
            raise MeasurementError(f"{sequence.kind} does not load")
        return self._runner(sequence.signature, self.cost_us(sequence))

    def open_model(self, model: Model, settings: RuntimeSettings) -> FakeRunner:
        """Returns a runner of the whole model, which takes the call overhead plus `cost_us` of all its layers."""
        if model.name in self.refused:
            raise LoweringError(f"{model.name} does not load")
        cost_us = self.cost_us(whole_model(self.lower(model, settings.level)))
        self.lowered.pop()
        return self._runner(model.name, cost_us)

    def profile_model(
        self, model: Model, settings: RuntimeSettings, *, runs: int, warm_up_runs: int
    ) -> tuple[ProfiledRun, ...]:
        """Returns runs in which each layer takes `cost_us`, and the profiler takes time between the layers.

        The time that `noise` adds to a run counts as lost to another process, in the first layer of the run.
        """
        segments = decompose(model.name, self.lower(model, settings.level)).segments
        self.lowered.pop()
        begin_us, kernels = self.overhead_us, []
        for segment in segments:
            cost_us = self.cost_us(segment.sequence)
            kernels.append(KernelTime(segment.layers[0], segment.sequence.kind, "Simulated", begin_us, cost_us))
            begin_us += cost_us + self.profiler_us
        found = []
        for number in range(warm_up_runs, warm_up_runs + runs):
            lost_us = begin_us * (self.noise(number) - 1)
            slowed = replace(kernels[0], duration_us=kernels[0].duration_us + lost_us)
            found.append(ProfiledRun(begin_us + lost_us, (slowed, *kernels[1:]), lost_us))
        self.clock.pass_us(sum(run.latency_us for run in found))
        return tuple(found)

    def _runner(self, label: str, cost_us: float) -> FakeRunner:
        self.opened.append(label)
        error = MeasurementError(f"{label} failed to run") if label in self.broken else None
        return FakeRunner(self.clock, self.overhead_us + cost_us, self.noise, error, label, self.ran)

    def fingerprint(self) -> str:
        """Returns a constant, because the fake runtime does not depend on the processor."""
        return "simulated"


def elementwise(*shape: int, op_type: str = "Relu", dtype: str = "float32") -> LayerSequence:
    """Returns a sequence of one layer that reads one tensor and writes another of the same type."""
    kind = TensorType(dtype, shape)
    layer = SequenceLayer(op_type, "", 6, {}, (0,), (1,))
    return LayerSequence((layer,), (Value(kind, "input"), Value(kind, "internal")), (1,))


def fake_system(
    name: str = "fake-1",
    *,
    runtime: FakeRuntime | None = None,
    host: Host | None = HOST,
    settings: RuntimeSettings | None = None,
    capabilities: Mapping[str, float] | None = None,
    asserted: bool = False,
) -> System:
    """Returns a fictitious host with the fake runtime."""
    runtime = runtime or FakeRuntime()
    settings = settings or RuntimeSettings()
    return System(name, host, runtime.name, runtime.version, settings, capabilities or {}, asserted)


def fake_bench(
    store: Store, runtime: FakeRuntime, system: System | None = None, protocol: Protocol | None = QUICK
) -> BenchmarkSession:
    """Returns a session that uses the runtime's simulated clock and takes no machine-wide lock."""
    return fake_sessions(runtime)(store, system or fake_system(runtime=runtime), runtime, protocol=protocol)


def fake_sessions(runtime: FakeRuntime) -> Callable[..., BenchmarkSession]:
    """Returns a constructor of sessions that use the runtime's simulated clock and take no machine-wide lock."""
    return partial(
        BenchmarkSession,
        protocol=QUICK,
        lock=nullcontext,
        clock_ns=runtime.clock,
        sleep=lambda seconds: runtime.clock.pass_us(seconds * 1e6),
        probes=lambda open_sequence, *_: [StateProbe("products", open_sequence(product_chain()), 1.3)],
        cpu_ns=runtime.clock,
        neighbour=lambda opening, cpus: FakeNeighbour(runtime.clock),
    )


def measured(
    sequence: LayerSequence,
    *pass_times_us: Iterable[float],
    at: str = "2026-01-01T00:00:00.000+00:00",
    stable: bool = True,
    overhead_us: float = 0.0,
    kind: Kind | None = None,
) -> Measurement:
    """Returns a measurement of `sequence` with these raw times; by default as a model if there is no call overhead."""
    rounds = tuple(tuple(times) for times in pass_times_us) or ((10.0, 11.0, 12.0),)
    return Measurement(
        signature=sequence.signature,
        kind=kind or kind_of(sequence, whole=not overhead_us),
        pass_times_us=rounds,
        reference_us=(100.0,) * len(rounds),
        stable=stable,
        overhead_us=overhead_us,
        environment={"threads": 1, "before": {"load_1m": 0.5}},
        measured_at=at,
    )


def results(system: System, records: Iterable[tuple[LayerSequence, Measurement]]) -> Results:
    """Returns measurements on a system as `Results` without models."""
    records = list(records)
    return Results(system, tuple(m for _, m in records), {sequence.signature: sequence for sequence, _ in records})
