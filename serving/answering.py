"""What answers for a system: it never changes, and is exchanged as a whole when something newer is there."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

from costmodel.errors import ArtefactError, UnknownSystemError
from costmodel.recent import Recent
from costmodel.serving.directory import identity_of
from costmodel.serving.predictor import Predictor
from costmodel.store import Store

__all__ = ["Answerer", "LoadedPredictors"]

_LOG = logging.getLogger("costmodel.service")
_MOST_PINNED = 8


@dataclass(frozen=True)
class Answerer:
    """A predictor with all that its answers depend on besides the question.

    Attributes:
        predictor: What prices.
        identity: Of regressor and measurements: answers to one question differ only where this does.
    """

    predictor: Predictor
    identity: str


@dataclass
class LoadedPredictors:
    """Those of all systems of a store; threads may share them.

    Attributes:
        store: Where measurements are.
        bundles: Folder of trained regressors.
        changed: Told the name of each system that is answered for anew.
    """

    store: Store
    bundles: Path
    changed: Callable[[str], None] = lambda _: None
    _current: dict[str, Answerer] = field(default_factory=dict)
    _pinned: Recent[tuple[str, str], Answerer] = field(default_factory=lambda: Recent(_MOST_PINNED))
    _refused: dict[str, str] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    @property
    def systems(self) -> list[str]:
        """Those that are answered for."""
        return sorted(self._current)

    @property
    def refused(self) -> dict[str, str]:
        """Why a newer state of a system was not taken over, or a system is not answered for; by its name."""
        return dict(self._refused)

    def refresh(self) -> None:
        """Take over what changed since the last time; a request that is under way keeps what it began with.

        What cannot be loaded is not taken over: the one that answered goes on, and `refused` says so.

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
                        _LOG.warning("a regressor is not taken over", extra={"told": {"error": str(error)}})
                    self._refused[name] = f"the newest regressor of {name} cannot be loaded: see the log of the service"
            for gone in self._refused.keys() - known.keys():
                del self._refused[gone]
            for gone in self._current.keys() - known.keys():
                del self._current[gone]

    def identity(self, system: str) -> str | None:
        """Of what answers for a system now; None if nothing does. Looks at nothing but memory."""
        current = self._current.get(system)
        return None if current is None else current.identity

    def only(self, named: str | None) -> str:
        """The system that is named, or the only one.

        Raises:
            UnknownSystemError: None is named, and there is not just one.
        """
        if named is not None:
            return named
        if len(self._current) != 1:
            raise UnknownSystemError(f"name a system: {', '.join(self.systems) or 'none is measured yet'}")
        return next(iter(self._current))

    def of(self, system: str, version: str | None = None) -> Answerer:
        """What answers for a system now.

        Args:
            system: Its name.
            version: Of a regressor, where it is not to be the champion.

        Raises:
            UnknownSystemError: Nothing answers for it.
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

    def _load(self, system: str, version: str | None, identity: str) -> Answerer:
        predictor = Predictor.load(self.store, self.bundles, system, version=version, settled=True)
        predictor.warm_up()
        return Answerer(predictor, identity)
