"""Requests as the service understands them: bodies parsed, models found or kept, deadlines set."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from costmodel.serving.engine.settings import EngineSettings
from costmodel.serving.service import Question, Service
from costmodel.serving.wire.problems import Problem
from costmodel.serving.wire.requests import BulkItem, ObservationRequest, PredictRequest, RankModel

__all__ = ["Deadline", "explained", "parsed", "question_of", "source_of"]

_Model = TypeVar("_Model", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Deadline:
    """The moment when a request about many models has had its time."""

    at_s: float

    @classmethod
    def after(cls, seconds: float) -> "Deadline":
        """The deadline of a request that begins now."""
        return cls(time.monotonic() + seconds)

    def check(self) -> None:
        """Go on if there is time left.

        Raises:
            Problem: There is none; what is left is to be asked for again.
        """
        if time.monotonic() > self.at_s:
            raise Problem(422, "too-much", "there was no time left for it: ask for it in another request")


def parsed(model: type[_Model], body: Sequence[bytes]) -> _Model:
    """The body as a model has it.

    Raises:
        Problem: It is not JSON, or not that; the sentence says where.
    """
    try:
        return model.model_validate_json(body[0] if len(body) == 1 else b"".join(body))
    except ValidationError as error:
        raise Problem(422, "invalid-request", explained(error)) from None


def explained(error: ValidationError) -> str:
    """The first complaint of a validation, and where it is."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    where = ".".join(map(str, first["loc"]))
    what = first["msg"].removeprefix("Value error, ")
    return " ".join((f"{where}: {what}" if where else what).split())[:1000]


def question_of(asked: PredictRequest | RankModel | ObservationRequest, system: str, version: str | None) -> Question:
    """What a request asks about a model on a system."""
    shapes = tuple(sorted((name, tuple(shape)) for name, shape in asked.shapes.items()))
    partial = isinstance(asked, PredictRequest) and asked.partial
    return Question(system, version, asked.batch, shapes, asked.granularity, asked.composition, partial, asked.measured)


def source_of(
    service: Service,
    owner: str,
    asked: PredictRequest | RankModel | ObservationRequest | BulkItem,
    settings: EngineSettings,
) -> str:
    """The digest of the model that is referred to, or of the graph that was sent, which is kept from then on.

    Raises:
        Problem: The graph has too many layers.
    """
    if asked.model is not None:
        return asked.model
    assert asked.graph is not None
    layers = len(asked.graph.layers)
    if layers > settings.max_layers:
        raise Problem(
            422, "model-refused",
            f"the graph has {layers} layers, and {settings.max_layers} are accepted: send parts of it",
        )  # fmt: skip
    return service.keep_graph(owner, asked.graph.to_dict())
