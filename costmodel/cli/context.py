"""What a command works with: its folders, its store, its runtime, and the system that it is asked about."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from pathlib import Path
    from typing import Any

    from costmodel.jobs.benchmark_session import BenchmarkSession
    from costmodel.jobs.runtime_comparison.release import Release
    from costmodel.jobs.tuning.tune import Tuner
    from costmodel.paths import Home
    from costmodel.runtimes.base import Runtime
    from costmodel.store.store import Store
    from costmodel.systems.system import System

__all__ = ["Context", "Tools"]


@dataclass(frozen=True)
class Tools:
    """The runtime, benchmark sessions and shipped data of commands, which a program that calls `main` can replace.

    Attributes:
        runtime: Runtime that lowers and runs models on this host; None for the default one.
        bench: Function that makes a benchmark session from a store, a system and a runtime; None for the class
            `BenchmarkSession`.
        shipped_data: Folder of the data sets that are shipped with costmodel; None for that of the source checkout.
        measuring_program: Program, with its arguments, that measures a batch on a machine of a fleet; None for
            `costmodel.jobs.fleet.measuring_process`.
        tuner: Function that makes the tuner of a host, with the arguments of `Tuner.of`; None for `Tuner.of`.
        release: Function that takes the name of a release of a runtime, such as "onnxruntime==1.31", and returns a
            function that starts that release; None for releases in environments of their own.
        lock: Function that returns a context manager, inside which no other process compares releases; None for the
            measuring lock of this host.
    """

    runtime: "Runtime | None" = None
    bench: "Callable[..., BenchmarkSession] | None" = None
    shipped_data: "Path | None" = None
    measuring_program: Sequence[str] | None = None
    tuner: "Callable[..., Tuner] | None" = None
    release: "Callable[[str], Callable[[], Release]] | None" = None
    lock: "Callable[[], AbstractContextManager[Any]] | None" = None


@dataclass
class Context:
    """The folders, the store and the runtime that a command works with, each opened when it is first needed.

    Attributes:
        store_url: Value of `--store`; None for the default store.
        reads: Whether the command only reads the store; a store named by `store_url` must then exist already.
        tools: Runtime, benchmark sessions and shipped data that the command uses.
        runtime_name: Value of `--runtime`.
    """

    store_url: str | None = None
    reads: bool = False
    tools: Tools = field(default_factory=Tools)
    runtime_name: str = "onnxruntime"

    @property
    def runtime(self) -> "Runtime":
        """Returns the runtime of this host's system."""
        from costmodel.runtimes.base import get_runtime

        return self.tools.runtime or get_runtime(self.runtime_name)

    @cached_property
    def home(self) -> "Home":
        """Returns the folders of this installation of costmodel."""
        from costmodel.paths import find_home

        return find_home()

    @property
    def bundles(self) -> "Path":
        """Returns the folder of the regressors that were trained on the measurements of the store."""
        return self.home.bundles_of(self.store_url)

    @cached_property
    def store(self) -> "Store":
        """Returns the results store, which is opened on first use."""
        from costmodel.store.store import Store

        return Store(self.store_url or self.home.store_url, create=not (self.reads and self.store_url))

    @property
    def bench(self) -> "Callable[..., BenchmarkSession]":
        """Returns the function that makes a benchmark session on this host from a store, a system and a runtime."""
        from costmodel.jobs.benchmark_session import BenchmarkSession

        return self.tools.bench or BenchmarkSession

    def import_if_shipped(self, name: str) -> None:
        """Imports a system of the shipped data that the store does not know, and prints a remark that it did so."""
        from costmodel.cli.output import note
        from costmodel.jobs.shipped_data import import_shipped

        if import_shipped(self.store, name, self.tools.shipped_data):
            note(f"{name} was imported from the data that is shipped with costmodel")

    def bases(self, system: "System", choose: "Callable[[list[System]], list[System]] | None" = None) -> list[str]:
        """Returns the names of the base systems for a system, and prints a remark about those that it imports.

        Args:
            system: System to which the bases are to be adapted.
            choose: Function that takes the systems with the same runtime and level, and returns those to use; by
                default those of `costmodel.jobs.base_systems.comparable_systems`.
        """
        from costmodel.cli.output import note
        from costmodel.jobs.base_systems import load_bases

        names, imported = load_bases(self.store, system, self.tools.shipped_data, choose=choose)
        for name in imported:
            note(f"{name} was imported from the data that is shipped with costmodel")
        return names

    def here(
        self, name: str | None, threads: int, *, level: str = "all", inter_threads: int = 1, asserted: bool = False
    ) -> "tuple[Runtime, System]":
        """Returns this host's runtime, and this host described as a system named `name` (None: its default name)."""
        from costmodel.runtimes.base import RuntimeSettings
        from costmodel.systems.system import this_system

        settings = RuntimeSettings(threads, level, inter_threads=inter_threads)
        return self.runtime, this_system(self.runtime, settings, name, asserted=asserted)

    def system_name(self, name: str | None, threads: int, inter_threads: int = 1) -> str:
        """Returns `name` if it is valid as the name of a system; the default name of this host if `name` is None."""
        from costmodel.systems.names import validate_name

        if name is not None:
            return validate_name(name)
        return self.here(None, threads, inter_threads=inter_threads)[1].name

    def asked_system(self, name: str | None, threads: int, inter_threads: int = 1) -> str:
        """Returns the name of the system that a question is about, as `system_name` does.

        A system that is named is imported from the shipped data if the default store lacks it; a store that the command
        names is left as it is.

        Raises:
            UnknownSystemError: The system is this host, for want of a name, and only the shipped data has it.
        """
        from costmodel.errors import UnknownSystemError
        from costmodel.jobs.shipped_data import is_shipped
        from costmodel.systems.names import measuring_command

        found = self.system_name(name, threads, inter_threads)
        if self.store_url is None:
            if name is not None:
                self.import_if_shipped(found)
            elif is_shipped(found, self.tools.shipped_data) and found not in self.store.systems():
                raise UnknownSystemError(
                    f"nothing is measured on this host yet, but costmodel ships measurements of such a machine: use "
                    f"them with `--system {found}`, or run `{measuring_command(found)}` for this host's own"
                )
        return found

    def learnt_system(self, name: str | None, threads: int) -> str:
        """Returns the name of the system that a regressor learns from, as `asked_system` does.

        With a shipped system that is named, the same one with fewer threads is imported, from which it learns as well.
        The store of a host that is not named gets nothing: what is shipped would pass for its own measurements.
        """
        from costmodel.jobs.shipped_data import shipped_systems
        from costmodel.store.parquet import read_system
        from costmodel.training.fewer_threads import is_same_with_fewer_threads

        found = self.asked_system(name, threads)
        shipped = {} if name is None or self.store_url else shipped_systems(self.tools.shipped_data)
        if found in shipped:
            system = self.store.system(found)
            for other, paths in shipped.items():
                if is_same_with_fewer_threads(read_system(paths[0]), system):
                    self.import_if_shipped(other)
        return found
