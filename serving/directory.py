"""What a service knows of systems and regressors without loading any: read as a whole, exchanged as a whole."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

from costmodel.drift import Drift
from costmodel.errors import ArtefactError, StoreError, UnknownSystemError, UnknownVersionError
from costmodel.observations import Observations
from costmodel.store import Store
from costmodel.systems import System
from costmodel.training.artefact import champion_of
from costmodel.training.listing import TrainedRegressor, list_regressors

__all__ = ["Directory", "Snapshot", "SystemEntry", "identity_of"]


@dataclass(frozen=True)
class SystemEntry:
    """A system that something is measured or trained for.

    Attributes:
        system: The system.
        identity: Hash of its champion and its measurements; answers to one question differ only where this does.
        measurements: How many it has.
        regressors: What was trained for it, the newest first.
        accuracy: What its champion's card says of families left out; None without a champion.
        drift: How far users' latencies have drifted from predictions.
    """

    system: System
    identity: str
    measurements: int
    regressors: tuple[TrainedRegressor, ...]
    accuracy: Mapping[str, Any] | None
    drift: Drift

    @property
    def champion(self) -> TrainedRegressor | None:
        """The regressor that answers for the system."""
        return next((one for one in self.regressors if one.champion), None)


@dataclass(frozen=True)
class Snapshot:
    """Everything that was known at one moment.

    Attributes:
        entries: Systems by name, in order of their names.
        regressors: All regressors, those of systems that nothing is measured for included.
    """

    entries: Mapping[str, SystemEntry] = field(default_factory=dict)
    regressors: tuple[TrainedRegressor, ...] = ()

    def entry(self, name: str) -> SystemEntry:
        """One system.

        Raises:
            UnknownSystemError: Nothing is known under that name.
        """
        if name not in self.entries:
            known = ", ".join(self.entries) or "none yet"
            raise UnknownSystemError(f"nothing is measured for the system {name}; known here: {known}")
        return self.entries[name]

    def check(self, system: str | None, version: str | None) -> str:
        """The name of the system that a question is about.

        Args:
            system: Its name; None where there is only one.
            version: Version of the regressor that is to answer; None for the champion.

        Raises:
            UnknownSystemError: No such system is known, or none was named and there are several.
            UnknownVersionError: The system has no such regressor.
        """
        if system is None:
            if len(self.entries) != 1:
                raise UnknownSystemError(f"name a system: {', '.join(self.entries) or 'none is measured yet'}")
            system = next(iter(self.entries))
        entry = self.entry(system)
        if version is not None and version not in {one.version for one in entry.regressors}:
            raise UnknownVersionError(f"{system} has no regressor {version}: /v1/regressors lists those that there are")
        return system


class Directory:
    """The newest snapshot of a store and a folder of regressors; threads may share it."""

    def __init__(self, store: Store, observations: Observations, bundles: Path) -> None:
        """Know nothing until the first refresh.

        Args:
            store: Where measurements are.
            observations: Latencies that users saw.
            bundles: Folder of trained regressors.
        """
        self._snapshot: Snapshot | None = None
        self._store = store
        self._observations = observations
        self._bundles = bundles
        self._lock = Lock()

    @property
    def snapshot(self) -> Snapshot:
        """What was known when it was refreshed last.

        Raises:
            StoreError: The store could not be read yet.
        """
        if self._snapshot is None:
            raise StoreError("the results store could not be read yet: check that it runs, and its URL")
        return self._snapshot

    @property
    def entries(self) -> Mapping[str, SystemEntry]:
        """The systems of the newest snapshot; none before there is one."""
        return {} if self._snapshot is None else self._snapshot.entries

    def refresh(self) -> Snapshot:
        """Look again.

        Raises:
            StoreError: The store cannot be read; the last snapshot stays.
        """
        with self._lock:
            regressors = tuple(list_regressors(self._bundles))
            entries = {
                name: self._entry(system, [one for one in regressors if one.system == name])
                for name, system in self._store.systems().items()
            }
            self._snapshot = Snapshot(entries, regressors)
            return self._snapshot

    def _entry(self, system: System, regressors: list[TrainedRegressor]) -> SystemEntry:
        return SystemEntry(
            system=system,
            identity=identity_of(self._store, self._bundles, system.name),
            measurements=self._store.measured(system.name)[0],
            regressors=tuple(regressors),
            accuracy=next((one.accuracy for one in regressors if one.champion), None),
            drift=self._observations.drift(system.name),
        )


def identity_of(store: Store, bundles: Path, system: str, version: str | None = None) -> str:
    """Hash of all that answers for a system depend on besides the question.

    Args:
        store: Where measurements are.
        bundles: Folder of trained regressors.
        system: Name of the system.
        version: Version of the regressor that answers; None for the champion.

    Raises:
        StoreError: The store cannot be read.
    """
    if version is None:
        try:
            path = champion_of(bundles, system)
            version = "none" if path is None else path.name
        except ArtefactError:
            version = "damaged"
    told = f"{system} {version} {store.measured(system)}"
    return hashlib.sha256(told.encode()).hexdigest()[:16]
