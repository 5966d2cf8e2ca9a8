"""Answers that are remembered, with their tags."""

import hashlib
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from costmodel.serving.engine import Reply

__all__ = ["Answer"]

_OVERHEAD_BYTES = 500  # of an entry in the cache, beside the body


@dataclass(frozen=True, slots=True)
class Answer:
    """A document, ready to be sent, and for how long it is true.

    Attributes:
        body: JSON.
        etag: Entity tag of the body.
        system: Name of the system that answered.
        identity: Identity of what answered: as long as the system has it, the answer stays true.
    """

    body: bytes
    etag: str
    system: str
    identity: str

    @classmethod
    def from_reply(cls, reply: Reply) -> "Answer":
        """The answer that an engine gave."""
        assert reply.system is not None
        assert reply.identity is not None
        tag = hashlib.sha256(reply.body).hexdigest()[:32]
        return cls(reply.body, f'"{tag}"', reply.system, reply.identity)

    @property
    def nbytes(self) -> int:
        """Memory that it takes in a cache."""
        return len(self.body) + _OVERHEAD_BYTES

    def response(self, request: Request) -> Response:
        """The answer to a request; to a GET that has it already, only that it is still true."""
        headers = {"etag": self.etag, "cache-control": "private, no-cache", "vary": "authorization"}
        if request.method == "GET" and self._is_known(request.headers.get("if-none-match", "")):
            return Response(status_code=304, headers=headers)
        return Response(self.body, media_type="application/json", headers=headers)

    def _is_known(self, tags: str) -> bool:
        return tags.strip() == "*" or self.etag in (tag.strip().removeprefix("W/") for tag in tags.split(","))
