"""What crosses between the web server and an engine."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from costmodel.serving.wire.problems import Problem

__all__ = ["Call", "Reply"]


@dataclass(frozen=True, slots=True)
class Call:
    """A request, as an engine gets it.

    Attributes:
        operation: Name of a method of `costmodel.serving.engine.operations.Operations`.
        owner: Name of the token that it came with; "local" where there are no tokens.
        options: What is not in the body: JSON-able.
        body: The body in parts; empty where there is none, or it is a file.
        request_id: Number of the request, for the log.
    """

    operation: str
    owner: str
    options: Mapping[str, Any] = field(default_factory=dict)
    body: Sequence[bytes] = ()
    request_id: str = ""

    def to_header(self) -> dict[str, Any]:
        """All of it but the body, as JSON."""
        return {
            "operation": self.operation, "owner": self.owner, "options": dict(self.options),
            "request_id": self.request_id,
        }  # fmt: skip

    @classmethod
    def from_message(cls, header: Mapping[str, Any], body: bytes) -> "Call":
        """The call that a message carries."""
        return cls(header["operation"], header["owner"], header["options"], (body,), header["request_id"])


@dataclass(frozen=True, slots=True)
class Reply:
    """An engine's answer.

    Attributes:
        body: JSON; empty where there is a problem, or nothing to say.
        status: Status code of HTTP.
        system: The system that answered, if the answer depends on one.
        version: Version of the regressor, as it was asked for.
        identity: Identity of what answered; as long as the system has it, the answer stays true.
        problem: Why there is no answer.
        facts: What operators are told: seconds by what they were spent on, counts.
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
        """All of it but the body, as JSON."""
        problem = self.problem
        return {
            "status": self.status, "system": self.system, "version": self.version, "identity": self.identity,
            "facts": dict(self.facts), "refused": dict(self.refused),
            "problem": None if problem is None else
            [problem.status, problem.kind, problem.detail, problem.extra, problem.headers],
        }  # fmt: skip

    @classmethod
    def from_message(cls, header: Mapping[str, Any], body: bytes) -> "Reply":
        """The reply that a message carries."""
        fields = dict(header)
        told = fields.pop("problem")
        problem = None if told is None else Problem(told[0], told[1], told[2], extra=told[3], headers=told[4])
        return cls(body=body, problem=problem, **fields)
