"""Messages between the web server and an engine: calls and replies."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from costmodel.serving.wire.problems import Problem

__all__ = ["Call", "Reply"]


@dataclass(frozen=True, slots=True)
class Call:
    """A request in the form in which an engine receives it.

    Attributes:
        operation: Name of an operation of `costmodel.serving.engine.operations.Operations`.
        owner: Name of the token that the request came with; "local" if the service has no tokens.
        options: Parameters that are not in the body; JSON-serialisable.
        body: Request body in parts; empty if the request has no body or its body is a file.
        request_id: Identifier of the request, for the log.
    """

    operation: str
    owner: str
    options: Mapping[str, Any] = field(default_factory=dict)
    body: Sequence[bytes] = ()
    request_id: str = ""

    def to_header(self) -> dict[str, Any]:
        """Returns all fields except the body, JSON-serialisable."""
        return {
            "operation": self.operation, "owner": self.owner, "options": dict(self.options),
            "request_id": self.request_id,
        }  # fmt: skip

    @classmethod
    def from_message(cls, header: Mapping[str, Any], body: bytes) -> "Call":
        """Returns the call that was sent as a message."""
        return cls(header["operation"], header["owner"], header["options"], (body,), header["request_id"])


@dataclass(frozen=True, slots=True)
class Reply:
    """An engine's answer.

    Attributes:
        body: JSON; empty if there is a problem or nothing to return.
        status: HTTP status code.
        system: Name of the system that the answer is about; None if it does not depend on one system.
        version: Version of the regressor that the request named; None for the champion.
        identity: Identity of the regressor and measurements used; the answer is valid as long as the system has it.
        problem: Reason why there is no answer; None if there is one.
        facts: Figures for metrics and the log: seconds spent, by activity, and counts.
        refused: Warnings about systems whose newest regressor cannot be loaded, by system.
    """

    body: bytes = b""
    status: int = 200
    system: str | None = None
    version: str | None = None
    identity: str | None = None
    problem: Problem | None = None
    facts: Mapping[str, float] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)

    def to_header(self) -> dict[str, Any]:
        """Returns all fields except the body, JSON-serialisable."""
        problem = self.problem
        return {
            "status": self.status, "system": self.system, "version": self.version, "identity": self.identity,
            "facts": dict(self.facts), "refused": dict(self.refused),
            "problem": None if problem is None else
            [problem.status, problem.kind, problem.detail, problem.extra, problem.headers],
        }  # fmt: skip

    @classmethod
    def from_message(cls, header: Mapping[str, Any], body: bytes) -> "Reply":
        """Returns the reply that was sent as a message."""
        fields = dict(header)
        encoded = fields.pop("problem")
        problem = None
        if encoded is not None:
            status, kind, detail, extra, headers = encoded
            problem = Problem(status, kind, detail, extra=extra, headers=headers)
        return cls(body=body, problem=problem, **fields)
