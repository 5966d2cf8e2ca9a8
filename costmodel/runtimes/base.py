"""The interface between costmodel and the runtimes that execute models.

Runtimes are found through the entry point group "costmodel.runtimes": adding one takes a class that implements
`Runtime` and one line in the metadata of its package. The rest of costmodel uses only the protocols of this module.
"""

from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Protocol, runtime_checkable

from costmodel.errors import CostModelError, MissingExtraError
from costmodel.ir.graph import LayerGraph
from costmodel.ir.sequence import LayerSequence
from costmodel.onnx_io.model import Model

__all__ = [
    "DEFAULT_RUNTIME",
    "LEVELS",
    "EmptyNetworks",
    "KernelTime",
    "LayerProfiler",
    "ProfiledRun",
    "Runner",
    "Runtime",
    "RuntimeSettings",
    "SurroundedRunner",
    "get_runtime",
    "installed_runtimes",
    "lowering_key",
]

DEFAULT_RUNTIME = "onnxruntime"
LEVELS = ("none", "basic", "extended", "all")


@dataclass(frozen=True, slots=True)
class RuntimeSettings:
    """The settings of a runtime, which are part of a system's identity.

    Attributes:
        threads: Number of threads that one layer may use.
        level: Level to which the runtime optimises the graph, one of `LEVELS`.
        spinning: Whether idle threads of the runtime spin (wait actively) between layers.
        inter_threads: Number of layers of a model that may run at the same time; has no effect on a layer in isolation.
    """

    threads: int = 1
    level: str = "all"
    spinning: bool = True
    inter_threads: int = 1

    @property
    def cpus(self) -> int:
        """Number of CPUs that the runtime can keep busy."""
        return self.threads * self.inter_threads


class Runner(Protocol):
    """A loaded network with its inputs, ready to be timed."""

    def run(self) -> None:
        """Executes the network once, synchronously.

        Raises:
            MeasurementError: The runtime failed to execute the network.
        """

    def feed(self) -> None:
        """Rewrites the inputs, so that they are in the CPU caches as if a layer had just made them."""


@runtime_checkable
class SurroundedRunner(Runner, Protocol):
    """A runner of a network that contains more than the layers to be timed, because these cannot run without it.

    Attributes:
        surroundings: Runner of the same network without the layers, whose time is not counted.
    """

    surroundings: Runner


@runtime_checkable
class Runtime(Protocol):
    """What costmodel requires of a runtime: to lower models, and to open models and sequences for timing.

    Attributes:
        name: Name of the runtime's entry point.
        version: Version of the runtime on this host.
    """

    name: str
    version: str

    def lower(self, model: Model, level: str) -> LayerGraph:
        """Returns the layers that the runtime, optimising to `level`, executes for `model`, in canonical form.

        Raises:
            LoweringError: The runtime cannot build the model.
        """

    def open_sequence(self, sequence: LayerSequence, settings: RuntimeSettings) -> Runner:
        """Loads `sequence` as a runnable network with synthetic weights and inputs, in the memory layout of this host.

        Raises:
            MeasurementError: The network cannot be built on this host.
        """

    def open_model(self, model: Model, settings: RuntimeSettings) -> Runner:
        """Loads the whole model with synthetic inputs, and with its own weights unless they are missing.

        Raises:
            LoweringError: The runtime cannot load the model.
        """

    def fingerprint(self) -> str:
        """Returns as text what `lower` depends on besides model, level and version, such as the CPU's vector width."""


@runtime_checkable
class LoopWatcher(Protocol):
    """The optional protocol of a runtime that stops a trial run of a network with a loop that does not end.

    Attributes:
        patience_s: Time in seconds after which such a run is stopped and the network refused as endless.
    """

    patience_s: float


@runtime_checkable
class EmptyNetworks(Protocol):
    """The optional protocol of a runtime that runs networks which do next to nothing.

    With other runtimes, the call overhead is extrapolated from chains of tiny layers, which assumes that the runtime
    executes each of them by itself.
    """

    def open_empty(self, inputs: int, outputs: int, settings: RuntimeSettings) -> Runner:
        """Loads a network with tiny inputs and outputs, whose time is the call overhead of networks with as many.

        Args:
            inputs: Number of inputs, at least 1.
            outputs: Number of outputs, at least 1.
            settings: Threads, level and spinning of the runtime.
        """


@dataclass(frozen=True, slots=True)
class KernelTime:
    """The time of one kernel in one run of a model, as the runtime's own profiler reports it.

    Attributes:
        layer: Name of the layer that the kernel executes, as in the lowered graph, or of the layer whose body (of a
            loop or branch) the kernel belongs to; "" if the runtime executed a node that the lowered graph lacks.
        kernel: Operator of the kernel, such as "Conv".
        provider: Name of the runtime's library of kernels, such as "CPUExecutionProvider".
        begin_us: Time from the start of the run to the start of the kernel, in microseconds.
        duration_us: Duration of the kernel in microseconds.
        thread: Number of the thread that ran the kernel, from 0.
        in_body: Whether the kernel belongs to the body of a layer, so that the time of the layer includes its own.
    """

    layer: str
    kernel: str
    provider: str
    begin_us: float
    duration_us: float
    thread: int = 0
    in_body: bool = False


@dataclass(frozen=True, slots=True)
class ProfiledRun:
    """One run of a model under the runtime's own profiler.

    Attributes:
        latency_us: Duration of the run in microseconds, including what the profiler itself takes.
        kernels: Kernels in the order in which they started.
        lost_us: Part of the run during which the thread that started it was not on a CPU, because another process was,
            in microseconds.
    """

    latency_us: float
    kernels: tuple[KernelTime, ...]
    lost_us: float = 0.0


@runtime_checkable
class LayerProfiler(Protocol):
    """The optional protocol of a runtime that can time the layers of a model while the model runs."""

    def profile_model(
        self, model: Model, settings: RuntimeSettings, *, runs: int, warm_up_runs: int
    ) -> tuple[ProfiledRun, ...]:
        """Runs a model with synthetic weights and inputs under the runtime's profiler, and returns the runs.

        Args:
            model: Model to run.
            settings: Threads, level and spinning of the runtime.
            runs: Number of runs to return.
            warm_up_runs: Number of runs before these, which are not returned.

        Raises:
            LoweringError: The runtime cannot load the model.
            MeasurementError: The model fails to run, or the profiler reported no complete run.
        """


def get_runtime(name: str = DEFAULT_RUNTIME) -> Runtime:
    """Returns the runtime that is registered under `name`.

    Raises:
        CostModelError: No runtime of that name is installed, or costmodel itself is not.
    """
    known = {point.name: point for point in entry_points(group="costmodel.runtimes")}
    if not known:  # runtimes are found by the metadata of packages, which a folder of source code has none of
        raise CostModelError("costmodel is not installed here: run `pip install .` in the folder of its source code")
    if name not in known:
        raise CostModelError(f"there is no runtime {name!r}: choose one of {', '.join(sorted(known))}")
    try:
        runtime = known[name].load()()
    except ModuleNotFoundError as error:
        raise CostModelError(
            f"the runtime {name} is not installed ({error.name} is missing): {MissingExtraError.installation_of(name)}"
        ) from error
    except ImportError as error:
        raise CostModelError(f"the runtime {name} cannot be loaded ({error}): install it again") from error
    assert isinstance(runtime, Runtime)
    return runtime


def installed_runtimes() -> list[str]:
    """Returns the names of the runtimes that can be used on this host, the default one first."""
    names = []
    for point in entry_points(group="costmodel.runtimes"):
        with suppress(ImportError):
            point.load()
            names.append(point.name)
    return sorted(names, key=lambda name: (name != DEFAULT_RUNTIME, name))


def lowering_key(runtime: Runtime, level: str) -> str:
    """Returns a cache key of what lowering depends on besides the model: runtime, version, level, fingerprint."""
    return f"{runtime.name}-{runtime.version}-{level}-{runtime.fingerprint()}"
