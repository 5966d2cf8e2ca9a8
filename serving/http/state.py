"""State shared by all routes of one web server: engines, limits, cached answers, and what is known of the systems."""

import asyncio
import hashlib
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

from cachetools import LRUCache
from fastapi import Request
from pydantic import TypeAdapter
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

__all__ = ["AppState", "owner_of", "state_of"]

_MIB = 1 << 20
_MOST_RENDERED_BYTES = 4 * _MIB
# Maximum size of a request whose answer is cached, and the least number of answers that the cache has room for.
_MOST_CACHED_REQUEST_BYTES = 16 << 10
_LEAST_CACHED_ANSWERS = 8

_Document = TypeVar("_Document")


@dataclass
class AppState:
    """State of one web server process.

    Attributes:
        settings: Settings of the service.
        engines: Engines that compute answers.
        directory: Systems and regressors of the store.
        observations: Store of latencies that users observed.
        uploads: Store of models that clients uploaded.
        metrics: Prometheus metrics.
        several_owners: Whether there are tokens, so that several owners share the service.
        reachable: Whether the results store could be read at the last refresh.
        refused: Warnings about systems whose newest regressor cannot be loaded, by the name of the system.
        admission: Limit on the number of requests that engines process at the same time.
        scratch_budget: Limit on the bytes of uploaded files that are on disk while their requests are processed.
        json_budget: Limit on the bytes of JSON requests in memory.
        byte_pacer: Limit on the rate at which each owner uploads data, in MiB per second.
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
    _deletions: int = 0
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
        """Fraction of each byte budget (JSON bodies, uploaded files) that one owner may hold."""
        return 0.5 if self.several_owners else 1.0

    async def perform(
        self, request: Request, operation: str, options: Mapping[str, Any], body: Sequence[bytes] = ()
    ) -> Reply:
        """Has an engine perform an operation when it is the turn of the request's owner, and returns the reply.

        Args:
            request: Request that asks for the operation.
            operation: Name of the operation.
            options: Parameters that are not in the body.
            body: Request body in parts; empty if there is none or if it is a file.

        Raises:
            Problem: The engine replied with a problem, or no engine became free in time.
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
        """Runs a short function that uses the store or the disk, in a thread, and returns its result."""
        return await asyncio.get_running_loop().run_in_executor(self._read_threads, work, *arguments)

    async def answer(
        self, request: Request, operation: str, options: Mapping[str, Any], body: Sequence[bytes] = ()
    ) -> Response:
        """Returns the HTTP response to a request, from the cache or an engine; answers to small requests are cached.

        Args:
            request: Request that asks for the operation.
            operation: Name of the operation, for an engine.
            options: Parameters that are not in the body, for an engine.
            body: Request body in parts; empty if there is none.

        Raises:
            Problem: The engine replied with a problem, or no engine became free in time.
        """
        query = request.url.query
        cacheable = len(query) + sum(map(len, body)) <= _MOST_CACHED_REQUEST_BYTES
        key = _key_of(owner_of(request), request.url.path, query, body) if cacheable else b""
        answer = self._cached(key) if cacheable else None
        request.scope["cached"] = answer is not None
        if answer is None:
            deletions = self.uploads.deletions()
            answer = Answer.from_reply(await self.perform(request, operation, options, body))
            fits = cacheable and answer.nbytes <= self._answers.maxsize // _LEAST_CACHED_ANSWERS
            # What was read before a model was deleted must not be kept after it. An answer of another regressor than
            # the champion would never be found.
            if fits and self._is_current(answer) and self.uploads.deletions() == deletions:
                self._answers[key] = answer
        request.scope["system"] = answer.system
        return answer.response(request)

    def _cached(self, key: bytes) -> Answer | None:
        """Returns the answer that is cached under a key, or None if there is none that is still valid.

        None is valid after any process has deleted a model, because there are no more answers about that one.
        """
        if (deletions := self.uploads.deletions()) != self._deletions:
            self._answers.clear()
            self._deletions = deletions
        answer = self._answers.get(key)
        if answer is None or not self._is_current(answer):
            return None
        self.metrics.cached.inc()
        return answer

    def _is_current(self, answer: Answer) -> bool:
        """Returns whether an answer is that of its system's present champion and measurements."""
        entry = self.directory.entries.get(answer.system)
        return entry is not None and entry.identity == answer.identity

    def rendered(self, kind: type[_Document], key: Hashable, make: Callable[[], _Document]) -> Response:
        """Returns a JSON document about the directory's newest `Snapshot` as an HTTP response.

        The document is made once for each snapshot, then cached.

        Args:
            kind: Python type of the document.
            key: Key under which the document is cached.
            make: Function that makes the document.
        """
        snapshot = self.directory.snapshot
        if self._rendered_of is not snapshot:
            self._rendered_of = snapshot
            self._rendered.clear()
        body = self._rendered.get(key)
        if body is None:
            body = self._rendered[key] = TypeAdapter(kind).dump_json(make())
        return Response(body, media_type="application/json")

    def refresh(self) -> None:
        """Reads the results store and the folder of regressors again, and updates the metrics.

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
        """Ends the engines and the threads of this web server, and closes its stores."""
        self.engines.close()
        for threads in (self._engine_threads, self._read_threads):
            threads.shutdown(wait=False, cancel_futures=True)
        self.directory.close()
        self.observations.close()


def _key_of(owner: str, path: str, query: str, body: Sequence[bytes]) -> bytes:
    """Returns the key under which the answer to a request is cached: a hash of owner, path, query and body."""
    digest = hashlib.sha256(f"{owner}\n{path}\n{query}\n".encode())
    for part in body:
        digest.update(part)
    return digest.digest()


def state_of(request: Request) -> AppState:
    """Returns the state of the web server that handles a request."""
    state: AppState = request.app.state.costmodel
    return state


def owner_of(request: Request) -> str:
    """Returns the name of the token that a request came with; "local" if the service has no tokens."""
    token = request.scope.get("token")
    return "local" if token is None else str(token.name)
