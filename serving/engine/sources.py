"""Translates requests for the service: parses bodies, resolves model references, sets deadlines."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from costmodel.serving.engine.settings import EngineSettings
from costmodel.serving.service import PredictionOptions, Service
from costmodel.serving.wire.problems import Problem
from costmodel.serving.wire.requests import BulkItem, ObservationRequest, PredictRequest, RankModel

__all__ = ["Deadline", "explained", "parsed", "question_of", "source_of"]

_Body = TypeVar("_Body", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Deadline:
    """The time until which a request about many models may take.

    Attributes:
        at_s: Time in seconds of the monotonic clock.
    """

    at_s: float

    @classmethod
    def after(cls, seconds: float) -> "Deadline":
        """Returns the deadline that many seconds from now."""
        return cls(time.monotonic() + seconds)

    def check(self) -> None:
        """Checks that there is time left.

        Raises:
            Problem: The deadline has passed; the client has to send the rest in another request.
        """
        if time.monotonic() > self.at_s:
            raise Problem(
                422, "too-much", "the time limit of the request was reached: send the rest in another request"
            )


def parsed(model: type[_Body], body: Sequence[bytes]) -> _Body:
    """Returns the JSON body of a request as an instance of a pydantic model.

    Raises:
        Problem: The body is not JSON or does not match the model; the message says where.
    """
    try:
        return model.model_validate_json(body[0] if len(body) == 1 else b"".join(body))
    except ValidationError as error:
        raise Problem(422, "invalid-request", explained(error)) from None


def explained(error: ValidationError) -> str:
    """Returns the first error of a validation and its location, as one sentence of at most 1000 characters."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    where = ".".join(map(str, first["loc"]))
    what = first["msg"].removeprefix("Value error, ")
    return " ".join((f"{where}: {what}" if where else what).split())[:1000]


def question_of(
    request: PredictRequest | RankModel | ObservationRequest, system: str, version: str | None
) -> PredictionOptions:
    """Returns the question that a request asks about a model on a system."""
    shapes = tuple(sorted((name, tuple(shape)) for name, shape in request.shapes.items()))
    partial = isinstance(request, PredictRequest) and request.partial
    return PredictionOptions(
        system, version, request.batch, shapes, request.granularity, request.composition, partial, request.measured
    )


def source_of(
    service: Service,
    owner: str,
    request: PredictRequest | RankModel | ObservationRequest | BulkItem,
    settings: EngineSettings,
) -> str:
    """Returns the digest of the model that a request names, or of the graph that it contains; the graph is stored.

    Raises:
        Problem: The graph has too many layers.
    """
    if request.model is not None:
        return request.model
    assert request.graph is not None
    layers = len(request.graph.layers)
    if layers > settings.max_layers:
        raise Problem(
            422, "model-refused",
            f"the graph has {layers} layers, and {settings.max_layers} are accepted: send parts of it",
        )  # fmt: skip
    return service.keep_graph(owner, request.graph.to_dict())
