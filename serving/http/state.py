"""What all routes of one web server share: engines, admission, remembered answers, and what is known of systems."""

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
from costmodel.observations import Observations
from costmodel.serving.directory import Directory, Snapshot
from costmodel.serving.engine import Call, Reply
from costmodel.serving.engine.pool import Engines
from costmodel.serving.http.admission import BYTE_BURST_S, AdmissionController, ByteBudget, Pacer
from costmodel.serving.http.answer import Answer
from costmodel.serving.http.limits import ConnectionLimits
from costmodel.serving.http.settings import Settings
from costmodel.serving.http.telemetry import Metrics
from costmodel.serving.uploads import UploadedModelStore

__all__ = ["AppState", "key_of", "owner_of", "state_of"]

_MIB = 1 << 20
_MOST_RENDERED_BYTES = 4 * _MIB


@dataclass
class AppState:
    """The state of one process.

    Attributes:
        settings: Settings of the service.
        engines: What answers.
        directory: What is known of systems and regressors.
        observations: Latencies that users saw.
        uploads: Models that clients sent.
        metrics: What operators see.
        several_owners: Whether there are tokens, so that what there is has to be shared.
        reachable: Whether the store could be read when it was looked at last.
        refused: Warnings about systems whose newest regressor cannot be loaded, by system.
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
        """Nothing is remembered, and everything is free."""
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
        # Cheap questions to the store have threads of their own: they wait for no upload and no engine.
        self._read_threads = ThreadPoolExecutor(2, thread_name_prefix="costmodel-read")

    @property
    def share(self) -> float:
        """The part of a budget that one owner may have."""
        return 0.5 if self.several_owners else 1.0

    async def perform(
        self, request: Request, operation: str, options: Mapping[str, Any], body: Sequence[bytes] = ()
    ) -> Reply:
        """Have an engine do something, when it is the owner's turn.

        Raises:
            Problem: There is no answer, or no engine is free in time.
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
        # Whoever asked may have gone; the work goes on, and keeps its place until it is done.
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

    async def read(self, work: Any, *given: Any) -> Any:
        """Do something short that asks the store or the disk, in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._read_threads, work, *given)

    def remembered(self, key: bytes) -> Answer | None:
        """The answer to a question that was asked before in the same words, while it is true."""
        answer = self._answers.get(key)
        entry = None if answer is None else self.directory.entries.get(answer.system)
        if answer is None or entry is None or entry.identity != answer.identity:
            return None
        self.metrics.remembered.inc()
        return answer

    def remember(self, key: bytes, answer: Answer) -> None:
        """Store an answer under its cache key."""
        if answer.nbytes <= self._answers.maxsize // 8:
            self._answers[key] = answer

    def rendered(self, key: Hashable, make: Callable[[], BaseModel]) -> Response:
        """A document made of the newest snapshot: made once for each snapshot, however often it is asked for.

        Args:
            key: What is asked for.
            make: Makes the document.
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
        """Remember nothing any more: a model was deleted."""
        self._answers.clear()

    def refresh(self) -> None:
        """Look at the store and the regressors again, and tell operators.

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
        """End the engines and let go of the store."""
        self.engines.close()
        for threads in (self._engine_threads, self._read_threads):
            threads.shutdown(wait=False, cancel_futures=True)


def key_of(owner: str, path: str, query: str, body: Sequence[bytes]) -> bytes:
    """The cache key of a question: who asks, and what, in the same words."""
    digest = hashlib.sha256(f"{owner}\n{path}\n{query}\n".encode())
    for part in body:
        digest.update(part)
    return digest.digest()


def state_of(request: Request) -> AppState:
    """The state of the application that a request came to."""
    state: AppState = request.app.state.costmodel
    return state


def owner_of(request: Request) -> str:
    """Name of the token that a request came with; "local" where there are no tokens."""
    token = request.scope.get("token")
    return "local" if token is None else str(token.name)
