"""Predictors of the systems of a store: immutable; one is replaced when its regressor or its measurements change."""

import logging
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

from costmodel.bounded_cache import BoundedCache
from costmodel.errors import ArtefactError, UnknownSystemError
from costmodel.serving.directory import identity_of
from costmodel.serving.predictor import Predictor
from costmodel.store.store import Store

__all__ = ["LoadedPredictor", "LoadedPredictors"]

_LOG = logging.getLogger("costmodel.service")
_MOST_PINNED = 8


@dataclass(frozen=True)
class LoadedPredictor:
    """A predictor of a system, with a hash that tells whether its answers are still valid.

    Attributes:
        predictor: The predictor.
        identity: Hash of the regressor and the measurements; as long as it stays the same, the same request has the
            same answer.
    """

    predictor: Predictor
    identity: str


@dataclass
class LoadedPredictors:
    """The predictors of all systems of a store; threads may share them.

    Attributes:
        store: Results store with the measurements.
        bundles: Folder of trained regressors.
    """

    store: Store
    bundles: Path
    _current: dict[str, LoadedPredictor] = field(default_factory=dict)
    _pinned: BoundedCache[tuple[str, str], LoadedPredictor] = field(default_factory=lambda: BoundedCache(_MOST_PINNED))
    _refused: dict[str, str] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    @property
    def systems(self) -> list[str]:
        """Names of the systems that have a predictor, sorted."""
        return sorted(self._current)

    @property
    def refused(self) -> dict[str, str]:
        """For each system whose newest regressor could not be loaded, the reason, by the name of the system."""
        return dict(self._refused)

    def refresh(self) -> None:
        """Loads the predictors of those systems whose regressor or measurements changed since the last refresh.

        Requests in progress keep the predictor that they began with. If a regressor cannot be loaded, the previous
        predictor stays in use and `refused` has the reason.

        Raises:
            StoreError: The store cannot be read.
        """
        with self._lock:
            known = self.store.systems()
            for name, system in known.items():
                try:
                    identity = identity_of(self.store, self.bundles, system)
                    current = self._current.get(name)
                    if current is None or current.identity != identity:
                        self._current[name] = self._load(name, None, identity)
                    self._refused.pop(name, None)
                except UnknownSystemError:
                    continue  # its record is there, and nothing is measured yet
                except ArtefactError as error:
                    if name not in self._refused:
                        _LOG.warning("a regressor cannot be loaded", extra={"fields": {"error": str(error)}})
                    self._refused[name] = f"the newest regressor of {name} cannot be loaded: see the log of the service"
            for gone in self._refused.keys() - known.keys():
                del self._refused[gone]
            for gone in self._current.keys() - known.keys():
                del self._current[gone]

    def only(self, named: str | None) -> str:
        """Returns the given name of a system; if it is None, the name of the only system that has a predictor.

        Args:
            named: Name of a system, which is not checked; None for the only one.

        Raises:
            UnknownSystemError: No system is named and there is not exactly one.
        """
        if named is not None:
            return named
        if len(self._current) != 1:
            raise UnknownSystemError(f"name a system: {', '.join(self.systems) or 'none is measured yet'}")
        return next(iter(self._current))

    def of(self, system: str, version: str | None = None) -> LoadedPredictor:
        """Returns the predictor of a system.

        Args:
            system: Name of the system.
            version: Version of the regressor; None for the champion.

        Raises:
            UnknownSystemError: There is no predictor for the system.
            ArtefactError: The system has no regressor of that version, or the regressor cannot be loaded.
        """
        current = self._current.get(system)
        if current is None:
            known = ", ".join(self.systems) or "none yet"
            reason = self._refused.get(system)
            raise UnknownSystemError(reason or f"nothing is measured for the system {system}; known here: {known}")
        regression = current.predictor.regression
        if version is None or (regression is not None and version == regression.id.version):
            return current
        identity = identity_of(self.store, self.bundles, self.store.system(system), version)
        pinned = self._pinned.get((system, version))
        if pinned is None or pinned.identity != identity:
            pinned = self._load(system, version, identity)
            self._pinned.put((system, version), pinned)
        return pinned

    def _load(self, system: str, version: str | None, identity: str) -> LoadedPredictor:
        predictor = Predictor.load(self.store, self.bundles, system, version=version, settled=True)
        predictor.warm_up()
        return LoadedPredictor(predictor, identity)
