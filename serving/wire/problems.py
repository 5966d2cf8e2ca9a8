"""Converts errors to problem details (RFC 9457), the error format of HTTP APIs; messages are as on the command line."""

from typing import Any, NotRequired

from pydantic import ConfigDict, with_config
from typing_extensions import TypedDict

from costmodel.errors import (
    ArtefactError,
    BusyError,
    CostModelError,
    IdempotencyKeyError,
    ModelError,
    ObservationError,
    RuleError,
    StoreError,
    SystemNameError,
    TrafficError,
    TuningError,
    UnknownModelError,
    UnknownSystemError,
    UnknownVersionError,
    UnpricedLayersError,
)

__all__ = ["MEDIA_TYPE", "Problem", "ProblemAnswer", "problem_of", "reason_of"]

MEDIA_TYPE = "application/problem+json"

# Status and kind by error class; the first class that matches an error applies.
_STATUS: tuple[tuple[type[CostModelError], int, str], ...] = (
    (UnknownModelError, 404, "unknown-model"),
    (UnknownSystemError, 404, "unknown-system"),
    (ArtefactError, 404, "unknown-version"),
    (UnpricedLayersError, 422, "layers-without-cost"),
    (ModelError, 422, "model-refused"),
    (SystemNameError, 422, "invalid-request"),
    (RuleError, 422, "invalid-request"),
    (TrafficError, 422, "invalid-request"),
    (TuningError, 422, "invalid-request"),
    (IdempotencyKeyError, 409, "idempotency-conflict"),
    (ObservationError, 422, "invalid-request"),
    (StoreError, 503, "store-unavailable"),
    (BusyError, 503, "overloaded"),
    (CostModelError, 500, "internal-error"),
)
_TITLES = {
    "unknown-model": "The model is not known here",
    "unknown-system": "The system is not known here",
    "unknown-version": "There is no such regressor",
    "layers-without-cost": "Layers have no cost on this system",
    "model-refused": "The model cannot be used",
    "invalid-request": "The request is not valid",
    "store-unavailable": "The results store cannot be used",
    "internal-error": "The service failed",
    "unauthorized": "A token is needed",
    "forbidden": "The token does not have the required scope",
    "wrong-host": "The Host header does not name this service",
    "length-required": "The length of the body is not declared",
    "too-many-requests": "Too many requests at once",
    "idempotency-conflict": "The key was used for another observation",
    "not-found": "There is nothing at this path",
    "method-not-allowed": "The path does not offer this method",
    "head-too-large": "The head of the request is too large",
    "body-too-large": "The body is too large",
    "body-too-slow": "The body did not arrive in time",
    "unsupported-media-type": "The type of the body is not supported",
    "overloaded": "The service is busy",
    "too-much": "The request exceeds a limit",
}


# Messages for failures of the service itself; the details are in the log only.
_SERVICE_FAILURES = {
    "store-unavailable": "the results store cannot be used now: try again",
    "overloaded": "the service is busy: ask again",
    "internal-error": "see the log of the service",
    "unknown-version": "that regressor cannot be loaded: /v1/regressors lists those that there are",
}


@with_config(ConfigDict(extra="allow"))
class ProblemAnswer(TypedDict):
    """An error as problem details (RFC 9457).

    Attributes:
        type: URN that identifies the kind of problem.
        title: Short description of the kind of problem.
        status: HTTP status code.
        detail: One sentence that says what is wrong and what to do.
        request_id: Identifier of the request in the log of the service.
    """

    type: str
    title: str
    status: int
    detail: str
    request_id: NotRequired[str]


class Problem(Exception):  # noqa: N818  # the word of RFC 9457
    """An error that the client receives as problem details (RFC 9457).

    Attributes:
        status: HTTP status code.
        kind: Kind of problem, such as "too-much": a key of `_TITLES`, and the last part of the URN that identifies the
            kind.
        detail: One sentence that says what is wrong and what to do.
        extra: Additional members of the JSON document, by name, such as the layers without a cost.
        headers: Additional headers of the HTTP response.
    """

    def __init__(
        self, status: int, kind: str, detail: str, *, extra: dict[str, Any] | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:  # fmt: skip
        """Creates the error; the attributes of the class describe the arguments."""
        super().__init__(detail)
        self.status = status
        self.kind = kind
        self.detail = detail
        self.extra = extra or {}
        self.headers = headers or {}

    def to_dict(self) -> dict[str, Any]:
        """Returns the problem details as the JSON document that RFC 9457 defines."""
        document: ProblemAnswer = {
            "type": f"urn:costmodel:problem:{self.kind}",
            "title": _TITLES[self.kind],
            "status": self.status,
            "detail": self.detail,
        }
        return {**document, **self.extra}


def problem_of(error: CostModelError) -> Problem:
    """Returns the problem details for an error.

    They contain the error's own message if the client can correct the error, and otherwise a general message without
    internal details.
    """
    status, kind = next((status, kind) for of, status, kind in _STATUS if isinstance(error, of))
    if status >= 500:
        return Problem(status, kind, _SERVICE_FAILURES[kind], headers={"Retry-After": "5"} if status == 503 else None)
    if isinstance(error, ArtefactError) and not isinstance(error, UnknownVersionError):  # its message has a path
        return Problem(status, kind, _SERVICE_FAILURES[kind])
    extra = {"layers": list(error.layers)} if isinstance(error, UnpricedLayersError) else None
    return Problem(status, kind, str(error), extra=extra)


def reason_of(error: CostModelError | Problem) -> str:
    """Returns the reason, for the client, why one of several models in a request has no estimate.

    Args:
        error: Error that was raised while the model was estimated.

    Raises:
        CostModelError: `error` itself, if the service failed, which affects all models of the request.
        Problem: `error` itself, if the service failed, which affects all models of the request.
    """
    problem = error if isinstance(error, Problem) else problem_of(error)
    if problem.status >= 500:
        raise error
    return problem.detail
