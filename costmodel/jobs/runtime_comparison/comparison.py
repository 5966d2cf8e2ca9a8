"""The job of `costmodel compare-runtimes`: finds what became slower or faster between two releases of a runtime."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from costmodel.errors import CostModelError, ModelError
from costmodel.jobs.decomposed_models import DecomposedModel, decompose_models, put_models
from costmodel.jobs.runtime_comparison.changes import (
    LEAST_CHANGE,
    LEVEL,
    Change,
    LayerOccurrence,
    find_changes,
    unmatched_layers,
)
from costmodel.jobs.runtime_comparison.environments import ReleaseName, environment_of, program_in
from costmodel.jobs.runtime_comparison.measuring import Side, measure_pairs
from costmodel.jobs.runtime_comparison.pairs import ComparedModel, Marks, read_pairs
from costmodel.jobs.runtime_comparison.release import Release
from costmodel.jobs.runtime_comparison.release_process import ReleaseProcess
from costmodel.measure.lock import measuring_lock
from costmodel.progress import Progress, Stages, no_progress
from costmodel.runtimes.base import RuntimeSettings, lowering_key
from costmodel.store.store import Store
from costmodel.systems.host import probe_host
from costmodel.systems.names import default_name
from costmodel.systems.system import System, this_system

__all__ = ["RuntimeComparison", "compare_runtimes", "installed_release"]

StartRelease = Callable[[], Release]
"""Function that starts a release in a new process."""


@dataclass(frozen=True)
class RuntimeComparison:
    """The changes between two releases of a runtime.

    Attributes:
        systems: This host with the release from which the comparison starts, and with the other one, as systems.
        changes: Ratios of everything that was compared, those that changed included.
        only_from: Layers that only the old release executes.
        only_to: Layers that only the new release executes.
        models: Number of models that both releases execute.
        turns: Number of turns that were measured now; a turn is one model with one release.
        left: Number of pairs of turns that were not measured because the budget was spent.
        failed: Reasons why layers and models were not measured, by the signature of a layer or the name of a model.
        seconds: Seconds that measuring took.
    """

    systems: tuple[System, System]
    changes: list[Change]
    only_from: list[LayerOccurrence]
    only_to: list[LayerOccurrence]
    models: int
    turns: int = 0
    left: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """Returns the JSON document that `costmodel compare-runtimes --json` prints."""
        old, new = self.systems
        return {
            "from": {"runtime": old.runtime, "version": old.runtime_version, "system": old.name},
            "to": {"runtime": new.runtime, "version": new.runtime_version, "system": new.name},
            "models": self.models,
            "level": LEVEL,
            "least_change": LEAST_CHANGE,
            "changes": [asdict(change) for change in self.changes],
            "only_from": [asdict(layer) for layer in self.only_from],
            "only_to": [asdict(layer) for layer in self.only_to],
            "measured_turns": self.turns,
            "left": self.left,
            "failed": self.failed,
            "seconds": round(self.seconds, 3),
        }


def installed_release(release: ReleaseName, folder: Path, note: Callable[[str], None] = lambda _: None) -> StartRelease:
    """Returns a function that starts a release in its own environment, which is made if it does not exist yet.

    Args:
        release: Release to start.
        folder: Folder of the environments.
        note: Function that is called with a remark before an environment is made.

    Raises:
        CostModelError: The environment cannot be made, for example because there is no such release.
    """
    program = program_in(environment_of(release, folder, note))
    return lambda: ReleaseProcess(program, release.runtime, release.includes)


def compare_runtimes(
    store: Store,
    starts: tuple[StartRelease, StartRelease],
    target: str,
    cache: Path,
    *,
    rounds: int,
    settings: RuntimeSettings | None = None,
    budget_s: float | None = None,
    progress: Stages | None = None,
    lock: Callable[[], AbstractContextManager[Any]] = measuring_lock,
    clock_s: Callable[[], float] = time.monotonic,
) -> RuntimeComparison:
    """Measures models with two releases as far as the store lacks that, and compares the releases.

    Args:
        store: Store that may have earlier measurements of the comparison, and receives the new ones.
        starts: Functions that start the release from which the comparison starts, and the other one.
        target: Name of a corpus, or path of a model or of a folder of models.
        cache: Folder in which lowered graphs are cached.
        rounds: Number of rounds in all, earlier ones included; each measures every model with both releases.
        settings: Settings of the runtime; by default one thread.
        budget_s: Seconds after which no further measurement starts; None for no limit.
        progress: Function that takes the name of a stage of the job and returns its progress callback; None to report
            nothing.
        lock: Function that returns a context manager, inside which no other process measures.
        clock_s: Function that returns the time of a monotonic clock in seconds.

    Raises:
        CostModelError: A release does not start, or both are the same.
        HostBusyError: Another process is measuring.
        ModelError: The target has no models, or none that both releases can execute.
        SystemMismatchError: The store has a system of the same name with another machine or settings.
    """
    settings = settings or RuntimeSettings()
    stage = progress or no_progress
    refused: dict[str, str] = {}
    with _started(starts) as releases:
        systems = _systems(releases, settings)
        lowered = [
            _lowered(store, release, target, settings.level, cache, refused, stage(f"lowering, {release.version}"))
            for release in releases
        ]
    names = [name for name in lowered[0] if name in lowered[1]]
    if not names:
        raise ModelError(f"no model of {target} can be executed by both releases: {'; '.join(refused.values())}")
    old, new = ({name: models[name] for name in names} for models in lowered)
    sides = Side(starts[0], systems[0], old), Side(starts[1], systems[1], new)
    first, second = (f"{system.runtime} {system.runtime_version}" for system in systems)
    marks = Marks(first, second)
    pairs = read_pairs(
        store, (systems[0].name, systems[1].name), marks, {name: item.model.digest for name, item in old.items()}
    )
    with lock():
        found = measure_pairs(
            store, sides, marks, pairs, rounds=rounds, budget_s=budget_s, progress=stage("measuring"), clock_s=clock_s
        )
    compared = [
        ComparedModel(name, old[name].decomposition, new[name].decomposition, found.pairs[name]) for name in names
    ]
    only_from, only_to = unmatched_layers(compared)
    return RuntimeComparison(
        systems=systems,
        changes=find_changes(compared),
        only_from=only_from,
        only_to=only_to,
        models=len(names),
        turns=found.turns,
        left=found.left,
        failed=refused | found.failed,
        seconds=found.seconds,
    )


@contextmanager
def _started(starts: tuple[StartRelease, StartRelease]) -> Iterator[tuple[Release, Release]]:
    with starts[0]() as old, starts[1]() as new:
        yield old, new


def _systems(releases: tuple[Release, Release], settings: RuntimeSettings) -> tuple[System, System]:
    """Returns this host with each of the releases; two patches of one release get names with their full versions.

    Raises:
        CostModelError: Both are the same release.
    """
    old, new = releases
    if old.version == new.version:
        raise CostModelError(f"both releases are {old.name} {old.version}: choose two different ones")
    host = probe_host()
    names = [default_name(host, release.name, release.version, settings) for release in releases]
    if names[0] == names[1]:
        names = [default_name(host, release.name, release.version, settings, patch=True) for release in releases]
    first, second = (this_system(release, settings, name, host) for release, name in zip(releases, names, strict=True))
    return first, second


def _lowered(
    store: Store,
    release: Release,
    target: str,
    level: str,
    cache: Path,
    refused: dict[str, str],
    progress: Progress,
) -> dict[str, DecomposedModel]:
    """Lowers the models of a target with a release, stores their layers, and returns the models by name."""
    from costmodel.training.corpus import corpus_models

    models = decompose_models(corpus_models(target), release, level, cache, refused=refused, progress=progress)
    put_models(store, models, lowering_key(release, level))
    return {item.model.name: item for item in models}
