"""State shared by all routes of one web server: engines, admission control, cached answers, system directory."""

import asyncio
import hashlib
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from cachetools import LRUCache
from fastapi import Request
from pydantic import BaseModel
from starlette.responses import Response

from costmodel.errors import StoreError
from costmodel.serving.directory import Directory, Snapshot
from costmodel.serving.engine.call import Call, Reply
from costmodel.serving.engine.pool import Engines
from costmodel.serving.http.admission import BYTE_BURST_S, AdmissionController, ByteBudget, Pacer
from costmodel.serving.http.answer import Answer
from costmodel.serving.http.connection_limits import ConnectionLimits
from costmodel.serving.http.settings import Settings
from costmodel.serving.http.telemetry import Metrics
from costmodel.serving.observations.observations import Observations
from costmodel.serving.uploads import UploadedModelStore

__all__ = ["AppState", "key_of", "owner_of", "state_of"]

_MIB = 1 << 20
_MOST_RENDERED_BYTES = 4 * _MIB


@dataclass
class AppState:
    """The state of one web server process.

    Attributes:
        settings: Settings of the service.
        engines: Engines that compute answers.
        directory: Systems and regressors of the store.
        observations: Latencies that users observed.
        uploads: Models that clients uploaded.
        metrics: Prometheus metrics.
        several_owners: Whether there are tokens, so that several owners share the service.
        reachable: Whether the store could be read at the last refresh.
        refused: Warnings about systems whose newest regressor cannot be loaded, by system.
        admission: Limit on concurrent engine calls.
        scratch_budget: Limit on the bytes of uploads in transit.
        json_budget: Limit on the bytes of JSON requests in memory.
        byte_pacer: Rate limit on uploaded data, in MiB.
        connection_limits: Limits on open connections.
    """

    settings: Settings
    engines: Engines
    directory: Directory
    observations: Observations
    uploads: UploadedModelStore
    metrics: Metrics
    several_owners: bool
    reachable: bool = False
    refused: Mapping[str, str] = field(default_factory=dict)
    admission: AdmissionController = field(init=False)
    scratch_budget: ByteBudget = field(init=False)
    json_budget: ByteBudget = field(init=False)
    byte_pacer: Pacer = field(init=False)
    connection_limits: ConnectionLimits = field(init=False)
    _answers: LRUCache[bytes, Answer] = field(init=False)
    _rendered: LRUCache[Hashable, bytes] = field(default_factory=lambda: LRUCache(_MOST_RENDERED_BYTES, len))
    _rendered_of: Snapshot | None = None
    _engine_threads: ThreadPoolExecutor = field(init=False)
    _read_threads: ThreadPoolExecutor = field(init=False)

    def __post_init__(self) -> None:
        """Creates the limits, caches and thread pools from the settings."""
        settings = self.settings
        share = max(1, settings.engines - 1) if self.several_owners else settings.engines
        self.admission = AdmissionController(settings.engines, share, settings.queue, settings.queue_seconds)
        self.scratch_budget = ByteBudget(settings.scratch_mib * _MIB)
        self.json_budget = ByteBudget(settings.json_mib * _MIB)
        self.byte_pacer = Pacer(settings.mib_per_second, BYTE_BURST_S)
        self.connection_limits = ConnectionLimits(
            settings.connections, settings.connections_per_address, settings.header_seconds
        )
        self._answers = LRUCache(max(1, settings.answers_mib * _MIB), lambda answer: answer.nbytes)
        self._engine_threads = ThreadPoolExecutor(settings.engines, thread_name_prefix="costmodel-engine")
        # Short queries to the store have threads of their own, so that they wait for no upload and no engine.
        self._read_threads = ThreadPoolExecutor(2, thread_name_prefix="costmodel-read")

    @property
    def share(self) -> float:
        """Fraction of a budget that one owner may hold."""
        return 0.5 if self.several_owners else 1.0

    async def perform(
        self, request: Request, operation: str, options: Mapping[str, Any], body: Sequence[bytes] = ()
    ) -> Reply:
        """Has an engine perform an operation as soon as it is the owner's turn, and returns the reply.

        Raises:
            Problem: The engine answered with a problem, or no engine became free in time.
        """
        owner = owner_of(request)
        call = Call(operation, owner, options, body, request.scope.get("request_id", ""))
        request.scope["queued_at_ns"] = time.time_ns()
        began = time.perf_counter()
        await self.admission.acquire(owner)
        queue_s = time.perf_counter() - began
        loop = asyncio.get_running_loop()
        try:
            future = loop.run_in_executor(self._engine_threads, self.engines.perform, call)
        except BaseException:
            self.admission.release(owner)
            raise
        # The client may have disconnected; the work continues and occupies its slot until it is done.
        future.add_done_callback(lambda _: self.admission.release(owner))
        reply = await asyncio.shield(future)
        facts = {"queue_seconds": queue_s, **reply.facts}
        self.metrics.record(facts)
        request.scope.setdefault("facts", {}).update(facts)
        request.scope["system"] = reply.system
        if reply.refused != self.refused:
            self.refused = reply.refused
            self._rendered.clear()
        if reply.problem is not None:
            raise reply.problem
        return reply

    async def read(self, work: Any, *arguments: Any) -> Any:
        """Runs a short function that reads the store or the disk in a thread, and returns its result."""
        return await asyncio.get_running_loop().run_in_executor(self._read_threads, work, *arguments)

    def cached(self, key: bytes) -> Answer | None:
        """Returns the cached answer under a key if it is still valid, else None."""
        answer = self._answers.get(key)
        entry = None if answer is None else self.directory.entries.get(answer.system)
        if answer is None or entry is None or entry.identity != answer.identity:
            return None
        self.metrics.cached.inc()
        return answer

    def remember(self, key: bytes, answer: Answer) -> None:
        """Store an answer under its cache key."""
        if answer.nbytes <= self._answers.maxsize // 8:
            self._answers[key] = answer

    def rendered(self, key: Hashable, make: Callable[[], BaseModel]) -> Response:
        """Returns a document about the newest snapshot as a response; created once for each snapshot, then cached.

        Args:
            key: Cache key of the document.
            make: Function that creates the document.
        """
        snapshot = self.directory.snapshot
        if self._rendered_of is not snapshot:
            self._rendered_of = snapshot
            self._rendered.clear()
        body = self._rendered.get(key)
        if body is None:
            body = self._rendered[key] = make().model_dump_json().encode()
        return Response(body, media_type="application/json")

    def forget_answers(self) -> None:
        """Empties the answer cache, because a model was deleted."""
        self._answers.clear()

    def refresh(self) -> None:
        """Reads the store and the folder of regressors again, and updates the metrics.

        Raises:
            StoreError: The store cannot be read.
        """
        try:
            before = self.directory.entries
            entries = self.directory.refresh().entries
        except StoreError:
            self.reachable = False
            self.metrics.store_up.set(0)
            raise
        self.reachable = True
        self.metrics.store_up.set(1)
        self.metrics.systems.set(len(entries))
        for name, entry in entries.items():
            if name in before and before[name].identity != entry.identity:
                self.metrics.changes.labels(name).inc()
            if entry.drift.ratio is not None:
                self.metrics.drift.labels(name).set(entry.drift.ratio)

    def close(self) -> None:
        """Ends the engines and the threads."""
        self.engines.close()
        for threads in (self._engine_threads, self._read_threads):
            threads.shutdown(wait=False, cancel_futures=True)


def key_of(owner: str, path: str, query: str, body: Sequence[bytes]) -> bytes:
    """Returns the cache key of a request: a hash of owner, path, query and body."""
    digest = hashlib.sha256(f"{owner}\n{path}\n{query}\n".encode())
    for part in body:
        digest.update(part)
    return digest.digest()


def state_of(request: Request) -> AppState:
    """Returns the state of the application that handles a request."""
    state: AppState = request.app.state.costmodel
    return state


def owner_of(request: Request) -> str:
    """Returns the name of the token that a request came with; "local" if the service has no tokens."""
    token = request.scope.get("token")
    return "local" if token is None else str(token.name)
