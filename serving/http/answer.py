"""JSON answers that can be cached, with entity tags (HTTP ETags)."""

import hashlib
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from costmodel.serving.engine.call import Reply

__all__ = ["Answer"]

_OVERHEAD_BYTES = 500  # memory of a cache entry in addition to the body


@dataclass(frozen=True, slots=True)
class Answer:
    """A JSON answer that is ready to be sent, and the state of the system for which it is valid.

    Attributes:
        body: The answer as JSON.
        etag: Entity tag of the body.
        system: Name of the system that the answer is about.
        identity: Hash of the regressor and the measurements that were used: the answer is valid as long as the system
            has the same hash.
    """

    body: bytes
    etag: str
    system: str
    identity: str

    @classmethod
    def from_reply(cls, reply: Reply) -> "Answer":
        """Returns the answer contained in the reply of an engine, with an entity tag computed from the body."""
        assert reply.system is not None
        assert reply.identity is not None
        tag = hashlib.sha256(reply.body).hexdigest()[:32]
        return cls(reply.body, f'"{tag}"', reply.system, reply.identity)

    @property
    def nbytes(self) -> int:
        """Memory in bytes that the answer takes in a cache."""
        return len(self.body) + _OVERHEAD_BYTES

    def response(self, request: Request) -> Response:
        """Returns the HTTP response; 304 without a body for a GET whose If-None-Match has this answer's entity tag."""
        headers = {"etag": self.etag, "cache-control": "private, no-cache", "vary": "authorization"}
        if request.method == "GET" and self._matches(request.headers.get("if-none-match", "")):
            return Response(status_code=304, headers=headers)
        return Response(self.body, media_type="application/json", headers=headers)

    def _matches(self, tags: str) -> bool:
        return tags.strip() == "*" or self.etag in (tag.strip().removeprefix("W/") for tag in tags.split(","))
