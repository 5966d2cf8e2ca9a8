"""Prepares requests for the service: parses their bodies, finds or stores their models, and sets deadlines."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from costmodel.serving.engine.settings import EngineSettings
from costmodel.serving.service import BesideModel, PredictionOptions, Service
from costmodel.serving.wire.problems import Problem
from costmodel.serving.wire.requests import (
    BulkItem,
    CapacityRequest,
    ObservationRequest,
    PredictRequest,
    RankModel,
    TuneRequest,
)

__all__ = ["Deadline", "explained", "parsed", "question_of", "source_of"]

_Body = TypeVar("_Body", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Deadline:
    """The time after which an engine stops working on a request about many models.

    Attributes:
        at_s: The time in seconds, on the clock of `time.monotonic`.
    """

    at_s: float

    @classmethod
    def after(cls, seconds: float) -> "Deadline":
        """Returns the deadline that is `seconds` from now."""
        return cls(time.monotonic() + seconds)

    def check(self) -> None:
        """Checks that the deadline has not passed.

        Raises:
            Problem: The deadline has passed; the client has to send the remaining models in another request.
        """
        if time.monotonic() > self.at_s:
            raise Problem(
                422, "too-much", "the time limit of the request was reached: send the rest in another request"
            )


def parsed(model: type[_Body], body: Sequence[bytes]) -> _Body:
    """Returns the JSON body of a request, given in parts, as an instance of the pydantic class `model`.

    Raises:
        Problem: The body is not JSON, or does not match the class; the message names the first invalid field.
    """
    try:
        return model.model_validate_json(body[0] if len(body) == 1 else b"".join(body))
    except ValidationError as error:
        raise Problem(422, "invalid-request", explained(error)) from None


def explained(error: ValidationError) -> str:
    """Returns the first error of a pydantic validation, with its location, as a sentence of up to 1000 characters."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    where = ".".join(map(str, first["loc"]))
    what = first["msg"].removeprefix("Value error, ")
    return " ".join((f"{where}: {what}" if where else what).split())[:1000]


def question_of(
    request: PredictRequest | RankModel | ObservationRequest, system: str, version: str | None
) -> PredictionOptions:
    """Returns the parameters of the prediction that a request asks for.

    Args:
        request: Request with the options of the prediction.
        system: Name of the system on which the model would run.
        version: Version of the regressor; None for the champion.
    """
    partial = isinstance(request, PredictRequest) and request.partial
    beside = () if isinstance(request, ObservationRequest) else request.beside
    return PredictionOptions(
        system, version, request.batch, _sorted_shapes(request.shapes), request.granularity, request.composition,
        partial, request.measured,
        tuple(BesideModel(one.model, one.name, one.batch, _sorted_shapes(one.shapes)) for one in beside),
        values=tuple(sorted(request.values.items())),
    )  # fmt: skip


def _sorted_shapes(shapes: Mapping[str, Sequence[int]]) -> tuple[tuple[str, tuple[int, ...]], ...]:
    return tuple(sorted((name, tuple(shape)) for name, shape in shapes.items()))


def source_of(
    service: Service,
    owner: str,
    request: PredictRequest | RankModel | ObservationRequest | CapacityRequest | TuneRequest | BulkItem,
    settings: EngineSettings,
) -> str:
    """Returns the digest of the model of a request; if the request contains a graph of layers, the graph is stored.

    Raises:
        Problem: The graph has more layers than `settings` allows.
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
