"""A runtime whose time is made up, so that no unit test measures the machine that it runs on.

Nothing but a run moves its clock, and a run costs what the sequence says: the same test gives the same times anywhere.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field

from costmodel.attributes import encode
from costmodel.bench import Bench
from costmodel.constants import data_of, dtype_name
from costmodel.decomposition import whole_model
from costmodel.drift import Observation
from costmodel.errors import LoweringError, MeasurementError
from costmodel.graph import Layer, LayerGraph, TensorType
from costmodel.host import Host
from costmodel.inference import infer_model
from costmodel.measurement import Measurement, Protocol
from costmodel.model import Model
from costmodel.operators import since_version
from costmodel.results import Results
from costmodel.runtimes import RuntimeSettings
from costmodel.sequence import LayerSequence, SequenceLayer, Value
from costmodel.store import Store
from costmodel.systems import System

__all__ = [
    "HOST",
    "OBSERVED",
    "QUICK",
    "FakeClock",
    "FakeRunner",
    "FakeRuntime",
    "elementwise",
    "fake_bench",
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
    passes=3, most_passes=5, fewest_passes=2, reference_every_us=100.0, cold_start_us=50.0, turn_us=20.0, most_runs=4
)  # fmt: skip


class FakeClock:
    """Nanoseconds since the test began; they pass only when something runs."""

    def __init__(self) -> None:
        self.now_ns = 0

    def __call__(self) -> int:
        """The time."""
        return self.now_ns

    def pass_us(self, microseconds: float) -> None:
        """Let time pass."""
        self.now_ns += round(microseconds * 1000)


@dataclass
class FakeRunner:
    """Takes `cost_us` each time, times the factor that `noise` gives for the number of the run.

    Attributes:
        clock: What a run moves.
        cost_us: Of a run on the quiet machine.
        noise: Factor by the number of the run, from 0.
        error: Raised by each run, if any.
        label: What it is called in `ran`.
        ran: Takes the label at each run.
        runs: How many there were.
        feeds: How often its inputs were written.
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
        """Let the time of one run pass."""
        if self.error is not None:
            raise self.error
        self.clock.pass_us(self.cost_us * self.noise(self.runs))
        self.ran.append(self.label)
        self.runs += 1

    def feed(self) -> None:
        """Writing takes no time here."""
        self.feeds += 1


@dataclass
class FakeRuntime:
    """A `costmodel.runtimes.Runtime` that executes every node as a layer of its own, in imagined time.

    A run of a network takes what its call costs and, one after the other, what its layers do: nothing else.

    Attributes:
        version: Of the runtime.
        clock: What a run moves.
        overhead_us: What a call costs, whatever is in it.
        noise: Factor by the number of the run of a network, from 0; called anew for each network that is opened.
        refused: Signatures and model names that do not load.
        broken: Signatures and model names that load and fail when they run.
        opened: Signatures and model names, in the order in which they were opened.
        ran: The same, in the order in which they ran.
        lowered: Names of models, in the order in which they were lowered.
    """

    version: str = "1.0"
    clock: FakeClock = field(default_factory=FakeClock)
    overhead_us: float = 0.0
    noise: Callable[[int], float] = lambda _: 1.0
    refused: set[str] = field(default_factory=set)
    broken: set[str] = field(default_factory=set)
    opened: list[str] = field(default_factory=list)
    ran: list[str] = field(default_factory=list)
    lowered: list[str] = field(default_factory=list)
    name: str = "fake"

    def cost_us(self, sequence: LayerSequence) -> float:
        """What the layers of a sequence take: each a microsecond, and one for a thousand elements read or written."""
        touched = (i for layer in sequence.layers for i in (*layer.inputs, *layer.outputs) if i >= 0)
        return round(len(sequence.layers) + sum(sequence.values[i].type.elements for i in touched) / 1000, 3)

    def lower(self, model: Model, level: str) -> LayerGraph:
        """Every node of the model as it stands, at any level."""
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
                    attributes={a.name: encode(a) for a in node.attribute},
                    inputs=tuple(node.input),
                    outputs=tuple(node.output),
                    sources=(node.name or node.output[0],),
                )
                for node in graph.node
            ),
            types=types,
            constants={tensor.name: data_of(tensor) for tensor in graph.initializer},
            inputs=tuple(model.inputs),
            outputs=tuple(port.name for port in graph.output),
            opset=opset,
        )

    def open_sequence(self, sequence: LayerSequence, settings: RuntimeSettings) -> FakeRunner:
        """A runner that takes what a call costs and what `cost_us` says."""
        if sequence.signature in self.refused:
            raise MeasurementError(f"{sequence.kind} does not load")
        return self._runner(sequence.signature, self.cost_us(sequence))

    def open_model(self, model: Model, settings: RuntimeSettings) -> FakeRunner:
        """The same for the model as one sequence."""
        if model.name in self.refused:
            raise LoweringError(f"{model.name} does not load")
        cost_us = self.cost_us(whole_model(self.lower(model, settings.level)))
        self.lowered.pop()
        return self._runner(model.name, cost_us)

    def _runner(self, label: str, cost_us: float) -> FakeRunner:
        self.opened.append(label)
        error = MeasurementError(f"{label} failed to run") if label in self.broken else None
        return FakeRunner(self.clock, self.overhead_us + cost_us, self.noise, error, label, self.ran)

    def fingerprint(self) -> str:
        """It has no vectors."""
        return "imagined"


def elementwise(*shape: int, op_type: str = "Relu", dtype: str = "float32") -> LayerSequence:
    """A sequence of one layer that reads one tensor and writes another of its type."""
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
    """An imaginary host with an imaginary runtime."""
    runtime = runtime or FakeRuntime()
    settings = settings or RuntimeSettings()
    return System(name, host, runtime.name, runtime.version, settings, capabilities or {}, asserted)


def fake_bench(
    store: Store, runtime: FakeRuntime, system: System | None = None, protocol: Protocol | None = QUICK
) -> Bench:
    """A bench that lives in the runtime's time and locks nobody out."""
    system = system or fake_system(runtime=runtime)
    return Bench(
        store,
        system,
        runtime,
        protocol=protocol,
        lock=nullcontext,
        clock_ns=runtime.clock,
        sleep=lambda seconds: runtime.clock.pass_us(seconds * 1e6),
    )


def measured(
    sequence: LayerSequence,
    *rounds_us: Iterable[float],
    at: str = "2026-01-01T00:00:00.000+00:00",
    stable: bool = True,
    overhead_us: float = 0.0,
) -> Measurement:
    """A measurement of `sequence` with these raw times."""
    rounds = tuple(tuple(times) for times in rounds_us) or ((10.0, 11.0, 12.0),)
    return Measurement(
        signature=sequence.signature,
        rounds_us=rounds,
        reference_us=(100.0,) * len(rounds),
        stable=stable,
        overhead_us=overhead_us,
        circumstances={"threads": 1, "before": {"load_1m": 0.5}},
        measured_at=at,
    )


def results(system: System, records: Iterable[tuple[LayerSequence, Measurement]]) -> Results:
    """What was measured on a system, of no models."""
    records = list(records)
    return Results(system, tuple(m for _, m in records), {sequence.signature: sequence for sequence, _ in records})
