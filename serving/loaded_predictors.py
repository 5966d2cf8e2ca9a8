"""Predictors of the systems of a store: immutable, and replaced as a whole when regressor or measurements change."""

import logging
from collections.abc import Callable
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
    """A loaded predictor with its identity.

    Attributes:
        predictor: Predictor of a system.
        identity: Hash of regressor and measurements; as long as it is the same, so are the answers to a request.
    """

    predictor: Predictor
    identity: str


@dataclass
class LoadedPredictors:
    """The predictors of all systems of a store; threads may share them.

    Attributes:
        store: Results store with the measurements.
        bundles: Folder of trained regressors.
        changed: Called with the name of each system whose predictor was loaded or replaced.
    """

    store: Store
    bundles: Path
    changed: Callable[[str], None] = lambda _: None
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
        """Reasons why the newest regressor of a system could not be loaded, by the name of the system."""
        return dict(self._refused)

    def refresh(self) -> None:
        """Loads what changed since the last refresh; requests in progress keep the predictor that they began with.

        If a regressor cannot be loaded, the previous predictor stays in use and `refused` has the reason.

        Raises:
            StoreError: The store cannot be read.
        """
        with self._lock:
            known = self.store.systems()
            for name in known:
                try:
                    identity = self._identity(name, None)
                    current = self._current.get(name)
                    if current is None or current.identity != identity:
                        self._current[name] = self._load(name, None, identity)
                        self.changed(name)
                    self._refused.pop(name, None)
                except (ArtefactError, UnknownSystemError) as error:
                    if name not in self._refused:
                        _LOG.warning("a regressor cannot be loaded", extra={"fields": {"error": str(error)}})
                    self._refused[name] = f"the newest regressor of {name} cannot be loaded: see the log of the service"
            for gone in self._refused.keys() - known.keys():
                del self._refused[gone]
            for gone in self._current.keys() - known.keys():
                del self._current[gone]

    def identity(self, system: str) -> str | None:
        """Returns the identity of the current predictor of a system, from memory only; None if there is none."""
        current = self._current.get(system)
        return None if current is None else current.identity

    def only(self, named: str | None) -> str:
        """Returns the named system; if none is named, the only system that has a predictor.

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
            ArtefactError: There is no such version, or it cannot be loaded.
        """
        current = self._current.get(system)
        if current is None:
            known = ", ".join(self.systems) or "none yet"
            reason = self._refused.get(system)
            raise UnknownSystemError(reason or f"nothing is measured for the system {system}; known here: {known}")
        regression = current.predictor.regression
        if version is None or (regression is not None and version == regression.id.version):
            return current
        identity = self._identity(system, version)
        pinned = self._pinned.get((system, version))
        if pinned is None or pinned.identity != identity:
            pinned = self._load(system, version, identity)
            self._pinned.put((system, version), pinned)
        return pinned

    def _identity(self, system: str, version: str | None) -> str:
        return identity_of(self.store, self.bundles, system, version)

    def _load(self, system: str, version: str | None, identity: str) -> LoadedPredictor:
        predictor = Predictor.load(self.store, self.bundles, system, version=version, settled=True)
        predictor.warm_up()
        return LoadedPredictor(predictor, identity)
