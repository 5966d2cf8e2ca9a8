"""JSON requests of the HTTP API, as pydantic classes that parse and validate them."""

from datetime import datetime
from typing import Annotated, Any, Self

from pydantic import AfterValidator, Field, model_validator

from costmodel.serving.ranking import Quantile
from costmodel.serving.tuning.question import Objective
from costmodel.serving.wire.fields import (
    Batch,
    Composition,
    Described,
    Digest,
    Dimension,
    Granularity,
    Microseconds,
    Name,
    Strict,
    SystemName,
    Version,
)
from costmodel.serving.wire.graphs import KnownSequence, WireGraph, WireSequence
from costmodel.traffic.capacity import MAX_REPLICAS
from costmodel.traffic.objective import MAX_BATCH, MAX_RATE_PER_S
from costmodel.traffic.scenarios import Scenario

__all__ = [
    "BesideRequest", "BulkItem", "BulkRequest", "CapacityRequest", "ObservationRequest", "PredictRequest", "RankModel",
    "RankRequest", "Traffic", "TuneRequest", "Tuning",
]  # fmt: skip


class _Source(Strict):
    """The model that a request is about, given either by its digest or as a graph of layers."""

    model: Digest | None = None
    graph: WireGraph | None = None
    name: Name = "model"

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.model is None) == (self.graph is None):
            raise ValueError("give one of model and graph")
        return self


Values = Annotated[
    dict[Name, Annotated[float, Field(ge=-1e12, le=1e12, allow_inf_nan=False)]],
    Field(max_length=64, description="Values of inputs that control what the model does, such as a flag."),
]


class _Options(Strict):
    """Options of a prediction, such as input shapes and granularity."""

    batch: Batch | None = None
    shapes: dict[Name, Annotated[list[Dimension], Field(max_length=32)]] = Field(default_factory=dict)
    values: Values = Field(default_factory=dict)
    granularity: Granularity = 1
    composition: Composition = "sequential"
    measured: Annotated[
        bool, Field(strict=True, description="Use measurements; if false, all costs are predicted.")
    ] = True


class BesideRequest(Strict):
    """A model that runs at the same time as another one, on CPUs of its own, given by its digest."""

    model: Digest
    name: Name = "model"
    batch: Batch | None = None
    shapes: dict[Name, Annotated[list[Dimension], Field(max_length=32)]] = Field(default_factory=dict)


class _Neighbours(Strict):
    """The models that run at the same time as the one that a request is about."""

    beside: Annotated[
        list[BesideRequest],
        Field(max_length=8, description="Models that run at the same time, again and again, each on CPUs of its own."),
    ] = Field(default_factory=list)


class PredictRequest(_Source, _Options, _Neighbours):
    """A request to predict the latency of a model, given by the digest of an uploaded one or as a graph of layers."""

    system: SystemName | None = None
    partial: Annotated[bool, Field(strict=True, description="Answer even if some layers have no cost.")] = False


class RankModel(_Source, _Options, _Neighbours):
    """One model of a ranking request, with the options of its predictions."""


class RankRequest(Strict):
    """A request to rank models on systems by price and by whether they fit and meet a latency objective."""

    models: Annotated[list[RankModel], Field(min_length=1, max_length=100)]
    systems: Annotated[
        list[SystemName] | None, Field(max_length=100, description="Systems to rank; by default all in the store.")
    ] = None
    slo_us: Annotated[Microseconds | None, Field(description="Latency objective in microseconds.")] = None
    quantile: Quantile = "p50"
    memory_bytes: Annotated[
        int | None, Field(ge=1, lt=2**62, strict=True, description="Memory in bytes that a process may take.")
    ] = None
    arrivals_per_s: Annotated[
        float | None,
        Field(
            ge=1e-6,
            le=MAX_RATE_PER_S,
            allow_inf_nan=False,
            strict=True,
            description="Requests a second to carry within the objective, on as many replicas as it takes.",
        ),
    ] = None
    usd_per_hour: Annotated[
        dict[SystemName, Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False, strict=True)]],
        Field(description="Prices of systems in US dollars per hour; by default those of the catalogue."),
    ] = Field(default_factory=dict)
    versions: Annotated[
        dict[SystemName, Version],
        Field(max_length=100, description="Versions of regressors by system; by default the champions."),
    ] = Field(default_factory=dict)


class Traffic(Strict):
    """The traffic that a request about capacity is about."""

    scenario: Scenario = "server"
    percentile: Annotated[
        float, Field(ge=50, le=99.9, description="Percentile of the latency that the objective limits.")
    ] = 99.0
    slo_us: Annotated[
        Microseconds | None,
        Field(description="Latency objective in microseconds; required in the scenario server, refused in offline."),
    ] = None
    arrivals_per_s: Annotated[
        float | None,
        Field(ge=1e-6, le=MAX_RATE_PER_S, allow_inf_nan=False, description="Requests a second that are to be carried."),
    ] = None
    replicas: Annotated[
        int | None,
        Field(ge=1, le=MAX_REPLICAS, description="Number of replicas; by default as many as the arrivals need."),
    ] = None
    max_batch: Annotated[
        int, Field(ge=1, le=MAX_BATCH, description="Largest number of requests that are joined to a batch.")
    ] = 1
    max_wait_us: Annotated[
        float, Field(ge=0, le=1e9, allow_inf_nan=False, description="Longest wait for a batch in microseconds.")
    ] = 0.0
    usd_per_hour: Annotated[
        float | None,
        Field(ge=0, le=1e9, allow_inf_nan=False, description="Price of one machine; by default the catalogue's."),
    ] = None


class CapacityRequest(_Source, Traffic):
    """A request for the traffic that a model carries on a system within a latency objective."""

    system: SystemName | None = None
    shapes: Annotated[
        dict[Name, Annotated[list[Dimension], Field(max_length=32)]],
        Field(description="Input shapes of one request; in batches the first axis of rank 2 or more is multiplied."),
    ] = Field(default_factory=dict)
    values: Values = Field(default_factory=dict)
    granularity: Granularity = 1
    measured: Annotated[
        bool, Field(strict=True, description="Use measurements; if false, all costs are predicted.")
    ] = True


class Tuning(Strict):
    """The aim for which the settings of a model are chosen."""

    objective: Annotated[Objective, Field(description="What is to be best.")] = "latency"
    percentile: Annotated[
        float, Field(ge=50, le=99.9, description="Percentile of the latency that the objective limits.")
    ] = 99.0
    slo_us: Annotated[
        Microseconds | None, Field(description="Latency in microseconds that a run must not exceed at the percentile.")
    ] = None
    max_batch: Annotated[
        int, Field(ge=1, le=MAX_BATCH, description="Largest batch size for throughput and cost, where it is open.")
    ] = 1
    int8: Annotated[Digest | None, Field(description="The int8 version of the model, which was uploaded.")] = None
    usd_per_hour: Annotated[
        float | None,
        Field(ge=0, le=1e9, allow_inf_nan=False, description="Price of the machine; by default the catalogue's."),
    ] = None


class TuneRequest(_Source, Tuning):
    """A request for the settings under which a model runs best on the host of a system."""

    system: SystemName | None = None
    shapes: Annotated[
        dict[Name, Annotated[list[Dimension], Field(max_length=32)]],
        Field(description="Input shapes of one sample; in batches the first axis of rank 2 or more is multiplied."),
    ] = Field(default_factory=dict)
    values: Values = Field(default_factory=dict)
    measured: Annotated[
        bool, Field(strict=True, description="Use measurements; if false, all costs are predicted.")
    ] = True


class BulkItem(Strict):
    """One model of a request about many models.

    It is given by indices into the list of layers of the request, by the digest of an uploaded model, or as a graph of
    layers.
    """

    name: Name | None = None
    layers: Annotated[list[Annotated[int, Field(ge=0, lt=2**31, strict=True)]] | None, Field(max_length=100_000)] = None
    model: Digest | None = None
    graph: WireGraph | None = None


class BulkRequest(Strict):
    """A request to predict the latencies of many models on one system; layers that models share are listed once."""

    system: SystemName | None = None
    layers: Annotated[
        list[dict[str, Any]],
        Described(list[WireSequence | KnownSequence]),
        Field(description="Layers that the items refer to; an invalid layer makes only the items that use it fail."),
    ] = Field(default_factory=list)
    items: Annotated[
        list[dict[str, Any]],
        Described(list[BulkItem]),
        Field(
            min_length=1, description="The models; an invalid one has an error in the answer, the others are answered."
        ),
    ]
    measured: Annotated[bool, Field(strict=True)] = True


def _checked_date(text: str) -> str:
    """Returns a time in ISO 8601 unchanged, if there is such a time.

    Raises:
        ValueError: There is no such date or time.
    """
    datetime.fromisoformat(text)
    return text


_Moment = Annotated[
    str, Field(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d)?(Z|\+00:00)$"), AfterValidator(_checked_date)
]


class ObservationRequest(_Source, _Options):
    """A request to store a latency that users observed for one model on one system."""

    system: SystemName | None = None
    latency_us: Microseconds
    runs: Annotated[
        int | None, Field(ge=1, le=2**53, strict=True, description="Number of runs that the latency is the average of.")
    ] = None
    observed_at: Annotated[
        _Moment | None, Field(description="Time of the observation, ISO 8601 in UTC; by default now.")
    ] = None
