"""What every route works with: the service, the gate before it, and the answers that are remembered."""

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from fastapi import Request
from starlette.responses import Response

from costmodel.errors import StoreError, UnknownSystemError
from costmodel.recent import Recent
from costmodel.serving.http.gate import Gate
from costmodel.serving.http.problems import Problem
from costmodel.serving.http.settings import Settings
from costmodel.serving.http.telemetry import Metrics
from costmodel.serving.service import Service

__all__ = ["Answer", "Deadline", "Desk", "desk_of"]

_Found = TypeVar("_Found")
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Answer:
    """A document, ready to be sent, and for how long it is true.

    Attributes:
        body: JSON.
        etag: Of the body.
        system: That answered.
        version: Of the regressor, as it was asked for.
        identity: Of what answered: as long as the system has it, the answer stays true.
    """

    body: bytes
    etag: str
    system: str
    version: str | None
    identity: str

    @classmethod
    def of(cls, body: bytes, system: str, version: str | None, identity: str) -> "Answer":
        """With its tag."""
        return cls(body, f'"{hashlib.sha256(body).hexdigest()[:32]}"', system, version, identity)

    def response(self, request: Request) -> Response:
        """Nothing where whoever asks has it already."""
        headers = {"etag": self.etag, "cache-control": "private, no-cache", "vary": "authorization"}
        known = request.headers.get("if-none-match", "")
        if known and (
            known.strip() == "*" or self.etag in (tag.strip().removeprefix("W/") for tag in known.split(","))
        ):
            return Response(status_code=304, headers=headers)
        return Response(self.body, media_type="application/json", headers=headers)


@dataclass(frozen=True, slots=True)
class Deadline:
    """When a request about many models has had its time."""

    at_s: float

    def check(self) -> None:
        """Go on.

        Raises:
            Problem: It has; what is left is to be asked for again.
        """
        if time.monotonic() > self.at_s:
            raise Problem(422, "too-much", "there was no time left for it: ask for it in another request")


@dataclass
class Desk:
    """Of one process.

    Attributes:
        service: What answers.
        gate: Who may ask it, and when.
        metrics: What operators see.
        settings: Of the service.
        reachable: Whether the store could be read when it was looked at last.
    """

    service: Service
    gate: Gate
    metrics: Metrics
    settings: Settings
    reachable: bool = True
    _answers: Recent[bytes, Answer] = field(init=False)

    def __post_init__(self) -> None:
        """Remember nothing yet."""
        self._answers = Recent(self.settings.answers_mib * _MIB, lambda answer: len(answer.body))

    def deadline(self) -> Deadline:
        """Of a request that begins now."""
        return Deadline(time.monotonic() + self.settings.request_seconds)

    async def work(self, work: Callable[[], _Found]) -> _Found:
        """Do something that takes time."""
        return await self.gate.run(work)

    def remembered(self, question: bytes) -> Answer | None:
        """The answer to a question that was asked before in the same words, while it is true."""
        answer = self._answers.get(_key(question))
        if answer is None or self.service.answerers.identity(answer.system) != answer.identity:
            return None
        self.metrics.remembered.inc()
        return answer

    def remember(self, question: bytes, answer: Answer) -> None:
        """For the next time."""
        if self.settings.answers_mib:
            self._answers.put(_key(question), answer)

    def refresh(self) -> None:
        """Take over what is new, and tell operators of it.

        Raises:
            StoreError: The store cannot be read.
        """
        answerers = self.service.answerers
        try:
            answerers.refresh()
            drifts = {system: self.service.observations.drift(system) for system in self.service.observations.systems()}
        except StoreError:
            self.reachable = False
            raise
        self.reachable = True
        self.metrics.systems.set(len(answerers.systems))
        self.metrics.waiting.set(self.gate.waiting)
        for system, drift in drifts.items():
            if drift.ratio is not None:
                self.metrics.drift.labels(system).set(drift.ratio)

    def system(self, asked: str | None) -> str:
        """The system that is meant.

        Raises:
            UnknownSystemError: None was named, and there is not just one.
        """
        if asked is not None:
            return asked
        known = self.service.answerers.systems
        if len(known) != 1:
            raise UnknownSystemError(f"name a system: {', '.join(known) or 'none is measured yet'}")
        return known[0]


def _key(question: bytes) -> bytes:
    return hashlib.sha256(question).digest()  # as long for every question


def desk_of(request: Request) -> Any:
    """The desk of the application that a request came to."""
    return request.app.state.desk
