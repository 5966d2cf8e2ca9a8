"""Engines of one web server: as many as the settings say, each answering one call at a time."""

import json
import logging
import os
import sys
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from queue import LifoQueue
from typing import Any, Protocol

from costmodel.errors import BusyError
from costmodel.isolation.child import Child, ChildDeathError, ChildError
from costmodel.serving.engine.call import Call, Reply
from costmodel.serving.engine.settings import EngineSettings
from costmodel.serving.wire.problems import Problem

__all__ = ["EnginePool", "Engines"]

_LOG = logging.getLogger("costmodel.service")
_START_S = 60.0
_STARTS = 3  # of the first engine, until the web server gives up
# What an engine does beside pricing and reading: refreshing, parsing, writing the answer.
_SPARE_S = 15.0
_ANSWER_BYTES = 64 << 20
# Each engine uses one core; a server of several processes has as many engines as cores, or more.
_THREADS = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


class Engines(Protocol):
    """What answers calls; threads may share it.

    Attributes:
        confinement: What a reader said of its confinement by the operating system.
        deaths: How many engines died or were killed.
    """

    confinement: Mapping[str, Any]
    deaths: int

    def start(self) -> None:
        """Become ready for the first call."""

    def perform(self, call: Call) -> Reply:
        """The answer to a call."""

    def close(self) -> None:
        """Stop."""


class EnginePool:
    """Engines as processes; one that dies or takes too long is replaced.

    Attributes:
        confinement: What the first engine's reader said of its confinement by the operating system.
        deaths: How many engines died or were killed.
    """

    def __init__(self, size: int, settings: EngineSettings) -> None:
        """Start nothing yet.

        Args:
            size: How many engines there are.
            settings: What each is started with.
        """
        self.confinement: Mapping[str, Any] = {}
        self.deaths = 0
        self._settings = settings
        self._within_s = settings.request_s + settings.reader_s + _SPARE_S
        # The last one back is the first to go: what it has in memory is warm.
        self._free: LifoQueue[Child | None] = LifoQueue()
        self._lock = threading.Lock()
        self._alive: set[Child] = set()
        self._closed = False
        for _ in range(size):
            self._free.put(None)

    def start(self) -> None:
        """Start one engine; the others start when they are needed.

        Raises:
            BusyError: It does not start, however often it is tried.
        """
        engine = self._free.get()
        try:
            engine = engine or self._first()
        finally:
            self._free.put(engine)

    def perform(self, call: Call) -> Reply:
        """The answer to a call; a call that brings down two engines is refused.

        Raises:
            BusyError: No engine can be started now.
        """
        try:
            return self._perform(call)
        except ChildDeathError:
            pass  # somebody else may have killed it
        except ChildError:
            return Reply(problem=_too_much("takes too long"))
        try:
            return self._perform(call)
        except ChildError:
            return Reply(problem=_too_much("takes more memory or time than a request may"))

    def close(self) -> None:
        """End all engines, and the processes that they started."""
        with self._lock:
            self._closed = True
            alive, self._alive = self._alive, set()
        for engine in alive:
            engine.kill()

    def _perform(self, call: Call) -> Reply:
        engine = self._free.get()
        sound = False
        try:
            engine = engine or self._new()
            header, body = engine.ask(call.to_header(), call.body, within_s=self._within_s)
            sound = True
        finally:
            if engine is not None and not sound:
                engine.kill()
                with self._lock:
                    self.deaths += 1
                    self._alive.discard(engine)
                engine = None
            self._free.put(engine)
        return Reply.from_message(header, body)

    def _first(self) -> Child:
        for _ in range(_STARTS - 1):
            try:
                return self._new()
            except BusyError as error:
                _LOG.warning("%s; it is tried again", error)
        return self._new()

    def _new(self) -> Child:
        settings = {
            key: str(value) if isinstance(value, Path) else value for key, value in asdict(self._settings).items()
        }
        with self._lock:
            if self._closed:
                raise BusyError("the service is shutting down: ask again")
        try:
            engine = Child(
                [sys.executable, "-P", "-m", "costmodel.serving.engine.program", json.dumps(settings)],
                folder=Path(tempfile.gettempdir()),
                environment={**os.environ, **_THREADS},
                start_s=_START_S,
                answer_bytes=_ANSWER_BYTES,
            )
        except ChildError as error:
            raise BusyError(f"an engine does not start ({error}): see the log above, and the free memory") from error
        with self._lock:
            self._alive.add(engine)
            closed = self._closed
        if closed:
            engine.kill()
            raise BusyError("the service is shutting down: ask again")
        self.confinement = engine.greeting.get("confinement") or {}
        return engine


def _too_much(what: str) -> Problem:
    return Problem(422, "too-much", f"the request {what}: ask for less at once")
