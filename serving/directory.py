"""Snapshots of the systems of a results store and of their regressors, read without loading any regressor."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

from costmodel.errors import ArtefactError, StoreError, UnknownSystemError, UnknownVersionError
from costmodel.serving.observations.drift import Drift
from costmodel.serving.observations.observations import Observations
from costmodel.store.store import Store
from costmodel.systems.system import QUIET_PROBE, System
from costmodel.training.artefact import champion_of
from costmodel.training.evaluation.results import ModelMetrics
from costmodel.training.listing import TrainedRegressor, list_regressors

__all__ = ["Directory", "Snapshot", "SystemEntry", "identity_of"]


@dataclass(frozen=True)
class SystemEntry:
    """What is known about one system of the results store: number of measurements, regressors, accuracy and drift.

    Attributes:
        system: Record of the system: hardware, runtime and settings.
        identity: Hash of champion, measurements and record; as long as it stays the same, the same request has the same
            answer.
        measurements: Number of measurements.
        regressors: Trained regressors of the system, newest first.
        accuracy: Accuracy of the champion on held-out lineages, from its JSON card; None without a champion.
        drift: Drift of the system: how far observed latencies differ from predicted ones.
    """

    system: System
    identity: str
    measurements: int
    regressors: tuple[TrainedRegressor, ...]
    accuracy: ModelMetrics | None
    drift: Drift

    @property
    def champion(self) -> TrainedRegressor | None:
        """Regressor that answers for the system; None if there is none."""
        return next((one for one in self.regressors if one.champion), None)


@dataclass(frozen=True)
class Snapshot:
    """Immutable record of the systems of a results store and of the trained regressors at one moment.

    Attributes:
        entries: Entries of the systems by name, sorted by name.
        regressors: All trained regressors, including those of systems without measurements in the store.
    """

    entries: Mapping[str, SystemEntry] = field(default_factory=dict)
    regressors: tuple[TrainedRegressor, ...] = ()

    def entry(self, name: str) -> SystemEntry:
        """Returns the entry of the system with the given name.

        Raises:
            UnknownSystemError: There is no system with that name.
        """
        if name not in self.entries:
            known = ", ".join(self.entries) or "none yet"
            raise UnknownSystemError(f"nothing is measured for the system {name}; known here: {known}")
        return self.entries[name]

    def check(self, system: str | None, version: str | None) -> str:
        """Checks that a system exists and has a regressor of a given version, and returns the name of the system.

        Args:
            system: Name of the system; None for the only system that there is.
            version: Version of a regressor of the system; None for the champion, whose existence is not checked.

        Raises:
            UnknownSystemError: There is no system with that name, or none was named and there is not exactly one.
            UnknownVersionError: The system has no regressor of that version.
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
    """Holder of the newest `Snapshot` of a results store and a folder of regressors; threads may share it."""

    def __init__(self, store: Store, observations: Observations, bundles: Path) -> None:
        """Prepares the directory, which has no snapshot until the first refresh.

        Args:
            store: Results store with the measurements.
            observations: Store of latencies that users observed.
            bundles: Folder of trained regressors.
        """
        self._snapshot: Snapshot | None = None
        self._store = store
        self._observations = observations
        self._bundles = bundles
        self._lock = Lock()

    @property
    def snapshot(self) -> Snapshot:
        """Snapshot that the last successful refresh has read.

        Raises:
            StoreError: No refresh has succeeded yet.
        """
        if self._snapshot is None:
            raise StoreError("the results store could not be read yet: check that it runs, and its URL")
        return self._snapshot

    @property
    def entries(self) -> Mapping[str, SystemEntry]:
        """Entries of the systems in the newest snapshot, by name of the system; empty before the first refresh."""
        return {} if self._snapshot is None else self._snapshot.entries

    def refresh(self) -> Snapshot:
        """Reads a new snapshot from the results store and the folder of regressors, and returns it.

        Raises:
            StoreError: The store cannot be read; the last snapshot stays in use.
        """
        with self._lock:
            regressors = tuple(list_regressors(self._bundles))
            entries = {
                name: self._entry(system, [one for one in regressors if one.system == name])
                for name, system in self._store.systems().items()
            }
            self._snapshot = Snapshot(entries, regressors)
            return self._snapshot

    def close(self) -> None:
        """Closes the results store."""
        self._store.close()

    def _entry(self, system: System, regressors: list[TrainedRegressor]) -> SystemEntry:
        return SystemEntry(
            system=system,
            identity=identity_of(self._store, self._bundles, system),
            measurements=self._store.count_and_last_measurement(system.name)[0],
            regressors=tuple(regressors),
            accuracy=next((one.accuracy for one in regressors if one.champion), None),
            drift=self._observations.drift(system.name),
        )


def identity_of(store: Store, bundles: Path, system: System, version: str | None = None) -> str:
    """Returns a hash of the regressor, the measurements and the record of a system.

    As long as the hash stays the same, the same request has the same answer.

    Args:
        store: Results store with the measurements.
        bundles: Folder of trained regressors.
        system: The system as the store has it.
        version: Version of the regressor; None for the champion.

    Raises:
        StoreError: The store cannot be read.
    """
    if version is None:
        try:
            path = champion_of(bundles, system.name)
            version = "none" if path is None else path.name
        except ArtefactError:
            version = "damaged"
    content = f"{system.name} {version} {store.count_and_last_measurement(system.name)} {_record(system)}"
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def _record(system: System) -> str:
    """Returns the record of a system as text, without the times of its probes, which no answer depends on."""
    record = system.to_dict()
    capabilities = {name: value for name, value in record["capabilities"].items() if not name.startswith(QUIET_PROBE)}
    return json.dumps({**record, "capabilities": capabilities}, sort_keys=True)
