"""A release of a runtime: lowers models and measures groups of layers, in this process or in one of its own."""

from collections.abc import Callable, Mapping
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from costmodel.ir.graph import LayerGraph
from costmodel.jobs.benchmark_session import BenchmarkSession
from costmodel.jobs.session_store import BatchStore
from costmodel.measure.groups import Group
from costmodel.measure.measurement import Measurement
from costmodel.onnx_io.model import Model, read_model
from costmodel.runtimes.base import Runner, Runtime
from costmodel.systems.system import System

__all__ = ["LocalRelease", "Release", "TurnResult"]


@dataclass(frozen=True, slots=True)
class TurnResult:
    """The measurements that one release made in one turn.

    Attributes:
        measurements: Measurements of the layers of a model and of the whole model.
        failed: Reasons why layers and the whole model were not measured, by signature or name of the model.
    """

    measurements: tuple[Measurement, ...] = ()
    failed: Mapping[str, str] = field(default_factory=dict)


class Release(Runtime, Protocol):
    """A release that lowers models at once, and measures after `open`, until it is closed as a context manager."""

    def open(self, system: System) -> System:
        """Prepares for measuring on this host; returns the system with its capabilities.

        Raises:
            SystemMismatchError: The capabilities of `system` are those of another machine.
        """

    def measure(self, group: Group, path: Path | None) -> TurnResult:
        """Measures all layers of a group and, if it has one, the whole model.

        Args:
            group: Layers and whole model, without the model itself.
            path: Path of the model; None to run the whole model with synthetic weights.
        """

    def close(self) -> System | None:
        """Ends measuring; returns the system with what was learnt of it, None if `open` was never called."""

    def __enter__(self) -> "Release":
        """Returns the release."""

    def __exit__(self, *_: object) -> None:
        """Ends the release, at once if it is measuring."""


class LocalRelease:
    """A release that runs in this process: the runtime that is installed here.

    Attributes:
        name: Name of the runtime.
        version: Full version of the runtime.
    """

    def __init__(self, runtime: Runtime, bench: Callable[..., BenchmarkSession] = BenchmarkSession) -> None:
        """Creates a release that does not measure yet.

        Args:
            runtime: Runtime that lowers models and runs layers.
            bench: Function that makes a benchmark session from a store, a system and a runtime.
        """
        self.name, self.version = runtime.name, runtime.version
        self._runtime = runtime
        self._bench = bench
        self._stack = ExitStack()
        self._store: BatchStore | None = None
        self._session: BenchmarkSession | None = None

    @property
    def system(self) -> System | None:
        """The system as it is known now; None if `open` was never called."""
        return None if self._store is None else self._store.system

    def lower(self, model: Model, level: str) -> LayerGraph:
        """Returns the layers that the release executes for a model."""
        return self._runtime.lower(model, level)

    def open_sequence(self, *arguments: object) -> Runner:
        """Is not needed: layers run in benchmark sessions only."""
        raise NotImplementedError

    open_model = open_sequence

    def fingerprint(self) -> str:
        """Returns what lowering depends on besides model, level and version."""
        return self._runtime.fingerprint()

    def open(self, system: System) -> System:
        """Enters a benchmark session, which measures the capabilities of the host unless `system` has them."""
        self._store = BatchStore(system if system.capabilities else None)
        # The process that compares two releases holds the measuring lock for both.
        session = self._bench(self._store, system, self._runtime, lock=nullcontext)
        self._session = self._stack.enter_context(session)
        return self._session.system

    def measure(self, group: Group, path: Path | None) -> TurnResult:
        """Measures a group under the protocol of the session."""
        assert self._session is not None
        assert self._store is not None
        model = None if path is None else read_model(path, name=group.label)
        report = self._session.run([replace(group, model=model)], again=True)
        measured = tuple(self._store.measurements)
        self._store.measurements.clear()
        return TurnResult(measured, report.failed)

    def close(self) -> System | None:
        """Leaves the benchmark session."""
        self._stack.close()
        return self.system

    def __enter__(self) -> "LocalRelease":
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
