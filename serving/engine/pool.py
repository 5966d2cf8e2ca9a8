"""A pool of engine processes for one web server; each engine answers one call (request) at a time."""

import json
import logging
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from queue import LifoQueue
from typing import Any, Protocol

from costmodel.errors import BusyError
from costmodel.serving.engine.call import Call, Reply
from costmodel.serving.engine.settings import EngineSettings
from costmodel.serving.isolation.child import Child, ChildDeathError, ChildError, ChildTimeoutError
from costmodel.serving.wire.problems import Problem

__all__ = ["EnginePool", "Engines"]

_LOG = logging.getLogger("costmodel.service")
_START_S = 60.0
_STARTS = 3  # attempts to start the first engine before the web server gives up
# Time allowed for work other than pricing and reading models: refreshing, parsing, writing the answer.
_SPARE_S = 15.0
_ANSWER_BYTES = 64 << 20
# One thread per engine: a server of several processes has as many engines as cores, or more.
_THREADS = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


class Engines(Protocol):
    """Interface of what answers calls: a pool of engines or, in tests, a fake. Threads may share an instance.

    Attributes:
        confinement: Protections by the operating system that confine reader processes, as one of them reported them.
        deaths: Number of engines that died, or were killed because they did not answer.
    """

    confinement: Mapping[str, Any]
    deaths: int

    def start(self) -> None:
        """Prepares the engines, so that the first call does not have to wait."""

    def perform(self, call: Call) -> Reply:
        """Has an engine answer a call, and returns its reply."""

    def close(self) -> None:
        """Stops answering calls and frees all resources."""


class EnginePool:
    """A pool of engine processes; an engine that dies, or takes too long to answer, is replaced.

    Attributes:
        confinement: Protections by the operating system that confine reader processes, as the reader of the engine that
            was started last reported them.
        deaths: Number of engines that died, or were killed because they did not answer.
    """

    def __init__(self, size: int, settings: EngineSettings) -> None:
        """Prepares the pool without starting any engine.

        Args:
            size: Maximum number of engines that run at the same time.
            settings: Settings with which each engine is started.
        """
        self.confinement: Mapping[str, Any] = {}
        self.deaths = 0
        self._settings = settings
        self._timeout_s = settings.request_s + settings.reader_s + _SPARE_S
        # Last in, first out: the caches of the engine that worked last are warm.
        self._free: LifoQueue[Child | None] = LifoQueue()
        self._lock = threading.Lock()
        self._alive: dict[Child, Path] = {}  # and the folder of each
        self._closed = False
        for _ in range(size):
            self._free.put(None)

    @property
    def pids(self) -> list[int]:
        """Process identifiers of the running engines."""
        with self._lock:
            return [engine.pid for engine in self._alive]

    def start(self) -> None:
        """Starts one engine; the others start when they are needed.

        Raises:
            BusyError: The engine did not start in several attempts.
        """
        engine = self._free.get()
        try:
            engine = engine or self._start_first()
        finally:
            self._free.put(engine)

    def perform(self, call: Call) -> Reply:
        """Has a free engine answer a call, and returns its reply.

        If the engine dies, the call is given to a second engine. If that one dies too, or if an engine gives no valid
        answer in time, the reply reports a problem.

        Raises:
            BusyError: No engine can be started now.
        """
        try:
            return self._perform(call)
        except ChildDeathError:
            pass  # another process may have killed the engine: try once more
        except ChildError as error:
            return Reply(problem=_too_much(error))
        try:
            return self._perform(call)
        except ChildError as error:
            return Reply(problem=_too_much(error))

    def close(self) -> None:
        """Ends all engines and the processes that they started."""
        with self._lock:
            self._closed = True
            alive, self._alive = self._alive, {}
        for engine, folder in alive.items():
            _end(engine, folder)

    def _perform(self, call: Call) -> Reply:
        engine = self._free.get()
        answered = False
        try:
            engine = engine or self._start_engine()
            header, body = engine.ask(call.to_header(), call.body, within_s=self._timeout_s)
            answered = True
        finally:
            if engine is not None and not answered:
                with self._lock:
                    self.deaths += 1
                    folder = self._alive.pop(engine, None)
                _end(engine, folder)
                engine = None
            self._free.put(engine)
        return Reply.from_message(header, body)

    def _start_first(self) -> Child:
        for _ in range(_STARTS - 1):
            try:
                return self._start_engine()
            except BusyError as error:
                _LOG.warning("%s; trying again", error)
        return self._start_engine()

    def _start_engine(self) -> Child:
        with self._lock:
            if self._closed:
                raise BusyError("the service is shutting down: ask again")
        folder = None
        try:
            # An engine is killed, not asked to end, so that this process deletes what it and its readers leave.
            folder = Path(tempfile.mkdtemp(prefix="costmodel-engine-", dir=self._settings.scratch))
            settings = {
                key: str(value) if isinstance(value, Path) else value
                for key, value in asdict(replace(self._settings, scratch=folder)).items()
            }
            engine = Child(
                [sys.executable, "-P", "-m", "costmodel.serving.engine.program", json.dumps(settings)],
                folder=Path(tempfile.gettempdir()),
                environment={**os.environ, **_THREADS},
                start_s=_START_S,
                answer_bytes=_ANSWER_BYTES,
            )
        except (ChildError, OSError) as error:
            if folder is not None:
                shutil.rmtree(folder, ignore_errors=True)
            raise BusyError(
                f"an engine does not start ({error}): see the log above, and check the free memory and the folder "
                "for temporary files"
            ) from error
        with self._lock:
            self._alive[engine] = folder
            closed = self._closed
        if closed:
            _end(engine, folder)
            raise BusyError("the service is shutting down: ask again")
        self.confinement = engine.greeting.get("confinement") or {}
        return engine


def _end(engine: Child, folder: Path | None) -> None:
    """Ends an engine and the processes that it started, and deletes its folder; None if that was done before."""
    engine.kill()
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)


def _too_much(error: ChildError) -> Problem:
    """Returns the problem of a request to which an engine gave no valid answer, and after which it was killed."""
    what = "takes more memory than a request may, or crashes an engine"
    if isinstance(error, ChildTimeoutError):
        what = "takes too long"
    elif not isinstance(error, ChildDeathError):
        what = f"cannot be answered: {error}"
    return Problem(422, "too-much", f"the request {what}: split it into smaller ones")
