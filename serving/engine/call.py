"""Messages between a web server and an engine: a call carries a request, and a reply carries the answer to it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from costmodel.serving.wire.problems import Problem

__all__ = ["Call", "Reply"]


@dataclass(frozen=True, slots=True)
class Call:
    """A request in the form in which a web server sends it to an engine.

    Attributes:
        operation: Name of the operation to perform; see `costmodel.serving.engine.operations.Operations`.
        owner: Name of the token that the request came with; "local" if the service has no tokens.
        options: Parameters of the operation that are not in the body, by name; JSON-serialisable.
        body: Byte strings that together make up the request body; empty if there is no body, or if the body is an ONNX
            file, whose path is then among the options.
        request_id: Identifier of the request, for the log.
    """

    operation: str
    owner: str
    options: Mapping[str, Any] = field(default_factory=dict)
    body: Sequence[bytes] = ()
    request_id: str = ""

    def to_header(self) -> dict[str, Any]:
        """Returns the header of the message that carries the call, JSON-serialisable: all fields except the body."""
        return {
            "operation": self.operation, "owner": self.owner, "options": dict(self.options),
            "request_id": self.request_id,
        }  # fmt: skip

    @classmethod
    def from_message(cls, header: Mapping[str, Any], body: bytes) -> "Call":
        """Returns the call that a message with this header and this body carries."""
        return cls(header["operation"], header["owner"], header["options"], (body,), header["request_id"])


@dataclass(frozen=True, slots=True)
class Reply:
    """What an engine answers to a call: the answer to the request, or the reason why there is none.

    Attributes:
        body: The answer as JSON text; empty if there is a problem or nothing to return.
        status: HTTP status code.
        system: Name of the system that the answer is about; None if it is not about exactly one system.
        identity: Hash of the regressor and measurements used: the answer may be cached until the system has another
            hash. None for an answer that must not be cached.
        problem: Reason why there is no answer; None if there is one.
        facts: Figures for metrics and the log, by name: seconds spent on activities, and counts.
        refused: Warnings about systems whose newest regressor cannot be loaded, by name of the system.
    """

    body: bytes = b""
    status: int = 200
    system: str | None = None
    identity: str | None = None
    problem: Problem | None = None
    facts: Mapping[str, float] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)

    def to_header(self) -> dict[str, Any]:
        """Returns the header of the message that carries the reply, JSON-serialisable: all fields except the body."""
        problem = self.problem
        return {
            "status": self.status, "system": self.system, "identity": self.identity,
            "facts": dict(self.facts), "refused": dict(self.refused),
            "problem": None if problem is None else
            [problem.status, problem.kind, problem.detail, problem.extra, problem.headers],
        }  # fmt: skip

    @classmethod
    def from_message(cls, header: Mapping[str, Any], body: bytes) -> "Reply":
        """Returns the reply that a message with this header and this body carries."""
        fields = dict(header)
        encoded = fields.pop("problem")
        problem = None
        if encoded is not None:
            status, kind, detail, extra, headers = encoded
            problem = Problem(status, kind, detail, extra=extra, headers=headers)
        return cls(body=body, problem=problem, **fields)
