"""Chooses the base systems of an adaptation: measured systems from whose costs those of another one are predicted."""

from collections.abc import Callable, Iterable
from pathlib import Path

from costmodel.errors import UnknownSystemError
from costmodel.jobs.shipped_data import import_shipped, shipped_systems
from costmodel.store.parquet import read_system
from costmodel.store.store import Store
from costmodel.systems.system import System

__all__ = ["comparable_systems", "load_bases", "same_threads"]

# Smallest number of measured sequences, without whole models, that make a system a base.
_LEAST_MEASURED = 100


def load_bases(
    store: Store,
    system: System,
    folder: Path | None = None,
    *,
    choose: Callable[[list[System]], list[System]] | None = None,
) -> tuple[list[str], list[str]]:
    """Chooses base systems for a system among those that the store knows or that are shipped, and imports the latter.

    Args:
        store: Store that may know base systems, and receives those that are shipped.
        system: System to which the bases are to be adapted.
        folder: Folder of the shipped data; by default that of the source checkout.
        choose: Function that takes the systems with the same runtime and level, and returns those to use; by default
            those of `comparable_systems`.

    Returns:
        Names of the bases, and names of those among them that were imported.

    Raises:
        UnknownSystemError: There is no system that can be compared with `system`.
        DataFileError: A file of the shipped data cannot be read.
    """
    known = store.systems()
    shipped = {name: read_system(files[0]) for name, files in shipped_systems(folder).items() if name not in known}
    wholes = store.whole_model_signatures()
    measured = [one for name, one in known.items() if len(store.latencies_us(name).keys() - wholes) >= _LEAST_MEASURED]
    same = _same_runtime([*measured, *shipped.values()], system)
    bases = [one.name for one in (comparable_systems(same, system) if choose is None else choose(same))]
    if not bases:
        raise UnknownSystemError(
            f"no system with {system.runtime} at level {system.settings.level} is measured, here or in data/: measure "
            "this one with `costmodel bench`, or import a measured system"
        )
    return bases, [name for name in bases if name in shipped and import_shipped(store, name, folder)]


def same_threads(one: System, other: System) -> bool:
    """Returns whether two systems have the same numbers of threads, within a layer and for layers in parallel."""
    threads = [(system.settings.threads, system.settings.inter_threads) for system in (one, other)]
    return threads[0] == threads[1]


def comparable_systems(systems: Iterable[System], system: System) -> list[System]:
    """Returns those systems that a system can be compared with, because runtime and optimisation level are the same.

    If some of them also have the same numbers of threads, within a layer and for layers in parallel, only these are
    returned.
    """
    same = _same_runtime(systems, system)
    alike = [other for other in same if same_threads(other, system)]
    return alike or same


def _same_runtime(systems: Iterable[System], system: System) -> list[System]:
    """Returns the other systems with the runtime and the optimisation level of a system, by name."""
    same = [
        other
        for other in systems
        if other.name != system.name
        and other.runtime == system.runtime
        and other.settings.level == system.settings.level
    ]
    return sorted(same, key=lambda other: other.name)
