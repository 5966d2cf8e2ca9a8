"""Errors as problem details (RFC 9457), with the sentences that the command line prints."""

from typing import Any

from costmodel.errors import (
    ArtefactError,
    BusyError,
    CostModelError,
    HoleError,
    IdempotencyKeyError,
    ModelError,
    ObservationError,
    RuleError,
    StoreError,
    SystemNameError,
    UnknownModelError,
    UnknownSystemError,
    UnknownVersionError,
)

__all__ = ["MEDIA_TYPE", "Problem", "problem_of", "reason_of"]

MEDIA_TYPE = "application/problem+json"

# The first that fits an error says how it is answered.
_STATUS: tuple[tuple[type[CostModelError], int, str], ...] = (
    (UnknownModelError, 404, "unknown-model"),
    (UnknownSystemError, 404, "unknown-system"),
    (ArtefactError, 404, "unknown-version"),
    (HoleError, 422, "layers-without-cost"),
    (ModelError, 422, "model-refused"),
    (SystemNameError, 422, "invalid-request"),
    (RuleError, 422, "invalid-request"),
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
    "forbidden": "The token may not do that",
    "wrong-host": "The service has another name",
    "length-required": "The length of the body is not declared",
    "too-many-requests": "Too much is asked at once",
    "idempotency-conflict": "The key was used for something else",
    "not-found": "There is nothing here",
    "method-not-allowed": "That cannot be done here",
    "head-too-large": "The head of the request is too large",
    "body-too-large": "The body is too large",
    "body-too-slow": "The body did not arrive in time",
    "unsupported-media-type": "The body is of a type that is not understood",
    "overloaded": "The service is busy",
    "too-much": "Too much is asked for",
}


# What is said of failures that are ours; the log has the rest.
_OURS = {
    "store-unavailable": "the results store cannot be used now: try again",
    "overloaded": "more models are to be read than can be now: ask again",
    "internal-error": "see the log of the service",
    "unknown-version": "that regressor cannot be loaded: /v1/regressors lists those that there are",
}


class Problem(Exception):  # noqa: N818  # the word of RFC 9457
    """A request that is not answered as it was meant to be.

    Attributes:
        status: Status code of HTTP.
        kind: One of the titles' keys; the last part of the problem's type.
        detail: One sentence for a person.
        extra: Members besides, such as the layers that have no cost.
        headers: Headers of the answer.
    """

    def __init__(
        self, status: int, kind: str, detail: str, *, extra: dict[str, Any] | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:  # fmt: skip
        """Say what is wrong."""
        super().__init__(detail)
        self.status = status
        self.kind = kind
        self.detail = detail
        self.extra = extra or {}
        self.headers = headers or {}

    def to_dict(self) -> dict[str, Any]:
        """As RFC 9457 has it."""
        return {
            "type": f"urn:costmodel:problem:{self.kind}",
            "title": _TITLES[self.kind],
            "status": self.status,
            "detail": self.detail,
        } | self.extra


def problem_of(error: CostModelError) -> Problem:
    """How an error of ours is answered: what a request can mend in its own words, and nothing of our inside."""
    status, kind = next((status, kind) for of, status, kind in _STATUS if isinstance(error, of))
    if status >= 500:
        return Problem(status, kind, _OURS[kind], headers={"Retry-After": "5"} if status == 503 else None)
    if isinstance(error, ArtefactError) and not isinstance(error, UnknownVersionError):  # it says where that lies
        return Problem(status, kind, _OURS[kind])
    extra = {"layers": list(error.layers)} if isinstance(error, HoleError) else None
    return Problem(status, kind, str(error), extra=extra)


def reason_of(error: CostModelError | Problem) -> str:
    """Why one of several models has no answer.

    Raises:
        CostModelError: None of them has: it is not the model's fault.
    """
    problem = error if isinstance(error, Problem) else problem_of(error)
    if problem.status >= 500:
        raise error
    return problem.detail
