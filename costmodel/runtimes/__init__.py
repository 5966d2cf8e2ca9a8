"""The seam between costmodel and the runtimes that execute models.

A runtime is found through the entry point group "costmodel.runtimes": a second one is one new file plus one line
in its package's metadata. Everything else in costmodel speaks to the two protocols below.
"""

from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Protocol, runtime_checkable

from costmodel.errors import CostModelError
from costmodel.graph import LayerGraph
from costmodel.model import Model
from costmodel.sequence import LayerSequence

__all__ = ["DEFAULT_RUNTIME", "LEVELS", "Runner", "Runtime", "RuntimeSettings", "get_runtime", "lowering_key"]

DEFAULT_RUNTIME = "onnxruntime"
LEVELS = ("none", "basic", "extended", "all")


@dataclass(frozen=True, slots=True)
class RuntimeSettings:
    """How a runtime is set up; part of a system's identity.

    Attributes:
        threads: Threads that one layer may use.
        level: How far the runtime optimises the graph, one of `LEVELS`.
        spinning: Whether idle worker threads spin between layers.
        inter_threads: Layers of a model that may run at the same time; a layer by itself knows nothing of it.
    """

    threads: int = 1
    level: str = "all"
    spinning: bool = True
    inter_threads: int = 1

    @property
    def cpus(self) -> int:
        """How many can be busy at a time."""
        return self.threads * self.inter_threads


class Runner(Protocol):
    """A network that is loaded and fed, ready to be timed."""

    def run(self) -> None:
        """Execute the network once, synchronously.

        Raises:
            MeasurementError: The runtime failed.
        """

    def feed(self) -> None:
        """Write the inputs once more, so that they lie where a layer that made them would have left them."""


@runtime_checkable
class Runtime(Protocol):
    """What costmodel needs of a runtime.

    Attributes:
        name: As in the entry point.
        version: Version of the runtime on this host.
    """

    name: str
    version: str

    def lower(self, model: Model, level: str) -> LayerGraph:
        """The layers that the runtime executes for `model`, in canonical form.

        Raises:
            LoweringError: The runtime cannot build the model.
        """

    def open_sequence(self, sequence: LayerSequence, settings: RuntimeSettings) -> Runner:
        """`sequence` as a runnable network on synthetic weights and inputs, in this host's own layout.

        Raises:
            MeasurementError: The network cannot be built here.
        """

    def open_model(self, model: Model, settings: RuntimeSettings) -> Runner:
        """The whole model on synthetic inputs, with its own weights where they are there.

        Raises:
            LoweringError: The runtime cannot load the model.
        """

    def fingerprint(self) -> str:
        """What, besides the version, decides what `lower` gives on this host: the vector width, say."""


def get_runtime(name: str = DEFAULT_RUNTIME) -> Runtime:
    """The runtime registered under `name`.

    Raises:
        CostModelError: No such runtime is installed.
    """
    found = {point.name: point for point in entry_points(group="costmodel.runtimes")}
    if name not in found:
        raise CostModelError(f"no runtime {name!r} is installed: choose one of {', '.join(sorted(found))}")
    runtime = found[name].load()()
    assert isinstance(runtime, Runtime)
    return runtime


def lowering_key(runtime: Runtime, level: str) -> str:
    """What a lowered graph depends on besides the model: runtime, version, level, vector width."""
    return f"{runtime.name}-{runtime.version}-{level}-{runtime.fingerprint()}"
