"""JSON answers of the HTTP API.

Many of the classes extend the class whose data they present, such as an estimate, with fields that only the API has.
"""

from dataclasses import dataclass
from typing import Annotated, Literal, NotRequired

import pydantic
from pydantic import Field, computed_field
from typing_extensions import TypedDict

from costmodel.estimate.estimate import Coverage, EstimateDocument, PredictorDocument
from costmodel.serving.capacity import Capacity
from costmodel.serving.observations.drift import Drift, StoredObservation
from costmodel.serving.ranking import RankAnswer
from costmodel.serving.tuning.answer import TuneAnswer
from costmodel.serving.uploads import UploadedModel
from costmodel.serving.wire.fields import Digest
from costmodel.serving.wire.problems import ProblemAnswer
from costmodel.systems.system import SystemDocument
from costmodel.training.evaluation.results import ModelMetrics
from costmodel.training.listing import TrainedRegressor

__all__ = [
    "BulkAnswer",
    "BulkItemAnswer",
    "CapacityAnswer",
    "DeletedAnswer",
    "Health",
    "ModelAnswer",
    "ModelsAnswer",
    "ObservationAnswer",
    "ObservationsAnswer",
    "PredictAnswer",
    "ProblemAnswer",
    "RankAnswer",
    "RegressorAnswer",
    "RegressorsAnswer",
    "StoredModelAnswer",
    "SystemAnswer",
    "SystemsAnswer",
    "TunedAnswer",
]  # fmt: skip

Next = Annotated[str | None, Field(description="Parameter `after` for the next page; null on the last page.")]


class PredictAnswer(EstimateDocument):
    """The estimated latency of a model on a system, with the digest of the model."""

    digest: Digest


class BulkItemAnswer(TypedDict):
    """The estimated latency of one model of a bulk request, or the reason why there is none.

    Attributes:
        name: Name of the model in the request; "item" and its position if it has none.
        latency_us: Latency of back-to-back runs on the quiet machine, in microseconds.
        interval_us: Lower and upper bound of the interval of `latency_us`, in microseconds.
        coverage: Share of the latency from costs of each source (measured, predicted, extrapolated), by source.
        error: Reason why there is no estimate; absent if there is one.
    """

    name: str
    latency_us: NotRequired[float]
    interval_us: NotRequired[tuple[float, float]]
    coverage: NotRequired[Coverage]
    error: NotRequired[str]


class BulkAnswer(TypedDict):
    """The answer to a request for the latencies of many models on one system.

    Attributes:
        system: Name of the system.
        predictor: Regressor that predicted the layers that have no measurements; "none" if the system has no regressor.
        interval_level: Probability that the interval of a model holds its latency, such as 0.9.
        failed: Number of models without an estimate.
        items: One entry for each model, in the order of the request.
    """

    system: str
    predictor: PredictorDocument
    interval_level: float
    failed: int
    items: list[BulkItemAnswer]


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityAnswer(Capacity):
    """The traffic that a model carries on a system, with the digest of the model."""

    digest: Digest


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedAnswer(TuneAnswer):
    """How a model should run on the host of a system, by prediction, with the digest of the model."""

    digest: Digest


class StoredModelAnswer(TypedDict):
    """The digest under which an uploaded model is stored."""

    digest: Digest


@dataclass(frozen=True, slots=True)
class ModelAnswer(UploadedModel):
    """A model that was uploaded to the service."""

    digest: Digest


class ModelsAnswer(TypedDict):
    """A page of the list of uploaded models."""

    models: list[ModelAnswer]
    next: Next


@dataclass(frozen=True, kw_only=True)
class RegressorAnswer(TrainedRegressor):
    """A trained regressor.

    Attributes:
        age_s: Time since training in seconds; None if the time of training is not known.
    """

    accuracy: Annotated[ModelMetrics | None, Field(exclude=True)]
    age_s: float | None


class RegressorsAnswer(TypedDict):
    """A page of the list of trained regressors."""

    regressors: list[RegressorAnswer]
    next: Next


class SystemAnswer(SystemDocument):
    """A system in the results store, with what the service knows about it.

    Attributes:
        measurements: Number of measurements on the system.
        champion: Regressor that predicts costs on the system; None if there is none.
        accuracy: Accuracy of the champion on model families held out of its training; None without a champion.
        usd_per_hour: On-demand price in US dollars per hour; None if the system is not in the catalogue.
        drift: Drift of the system: how far recently observed latencies are from the predicted ones.
        warnings: Warnings about the system for the user, one sentence each.
    """

    measurements: int
    champion: PredictorDocument | None
    accuracy: ModelMetrics | None
    usd_per_hour: float | None
    drift: Drift
    warnings: list[str]


class SystemsAnswer(TypedDict):
    """A page of the list of systems in the results store."""

    systems: list[SystemAnswer]
    next: Next


@pydantic.dataclasses.dataclass(frozen=True, kw_only=True)
class ObservationAnswer(StoredObservation):
    """A stored observation: a latency that users observed, with the latency that was predicted."""

    digest: Digest
    owner: Annotated[str, Field(exclude=True)]
    idempotency_key: str | None
    ratio = computed_field(StoredObservation.ratio)
    covered = computed_field(StoredObservation.covered)


class ObservationsAnswer(TypedDict):
    """A page of the list of stored observations, newest first."""

    observations: list[ObservationAnswer]
    next: Annotated[int | None, Field(description="Parameter `before` for the next page; null on the last page.")]


class DeletedAnswer(TypedDict):
    """The number of observations that a request deleted."""

    deleted: int


class Health(TypedDict):
    """The answer of a health check: whether the service is alive, or is ready to answer requests.

    Attributes:
        status: "ok", or "unavailable" if the results store cannot be read.
        systems: Number of systems in the results store; None if the check was only whether the service is alive.
        warnings: Warnings for the operator, one sentence each.
    """

    status: Literal["ok", "unavailable"]
    systems: int | None
    warnings: list[str]
