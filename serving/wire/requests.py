"""Requests in JSON."""

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator

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

__all__ = ["BulkItem", "BulkRequest", "ObservationRequest", "PredictRequest", "RankModel", "RankRequest"]


class _Source(Strict):
    """A model, by what is known of it."""

    model: Digest | None = None
    graph: WireGraph | None = None
    name: Name = "model"

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.model is None) == (self.graph is None):
            raise ValueError("give one of model and graph")
        return self


class _Options(Strict):
    batch: Batch | None = None
    shapes: dict[Name, Annotated[list[Dimension], Field(max_length=32)]] = Field(default_factory=dict)
    granularity: Granularity = 1
    composition: Composition = "sequential"
    measured: Annotated[bool, Field(strict=True, description="Use measurements; else all is predicted.")] = True


class PredictRequest(_Source, _Options):
    """A model that was seen before, or a graph of its layers, and what is asked about it."""

    system: SystemName | None = None
    partial: Annotated[bool, Field(strict=True, description="Answer even if layers have no cost.")] = False


class RankModel(_Source, _Options):
    """One of the models that are ranked."""


class RankRequest(Strict):
    """Models and systems, and what is wanted of them."""

    models: Annotated[list[RankModel], Field(min_length=1, max_length=100)]
    systems: Annotated[
        list[SystemName] | None, Field(max_length=100, description="All that are known, by default.")
    ] = None
    slo_us: Annotated[Microseconds | None, Field(description="The latency that is not to be exceeded.")] = None
    quantile: Literal["p50", "p90", "p99", "quiet"] = "p50"
    usd_per_hour: Annotated[
        dict[SystemName, Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False, strict=True)]],
        Field(description="Prices of systems; those of the catalogue, by default."),
    ] = Field(default_factory=dict)
    versions: Annotated[
        dict[SystemName, Version],
        Field(max_length=100, description="Versions of regressors by system; the champions, by default."),
    ] = Field(default_factory=dict)


class BulkItem(Strict):
    """One of many models: positions in the request's list of layers, a model that was sent before, or a graph."""

    name: Name | None = None
    layers: Annotated[list[Annotated[int, Field(ge=0, lt=2**31, strict=True)]] | None, Field(max_length=100_000)] = None
    model: Digest | None = None
    graph: WireGraph | None = None


class BulkRequest(Strict):
    """Many models on one system; models that share layers list each layer once."""

    system: SystemName | None = None
    layers: Annotated[
        list[dict[str, Any]],
        Described(list[WireSequence | KnownSequence]),
        Field(description="What models are made of; one that is not sound costs its models an answer, and no other."),
    ] = Field(default_factory=list)
    items: Annotated[
        list[dict[str, Any]],
        Described(list[BulkItem]),
        Field(min_length=1, description="The models; one that is not sound has an error, and the others answers."),
    ]
    measured: Annotated[bool, Field(strict=True)] = True


def _a_date(text: str) -> str:
    """A date that the calendar has, not in the future."""
    if datetime.fromisoformat(text) > datetime.now(UTC) + timedelta(minutes=5):
        raise ValueError("it lies in the future: give the time when the latency was seen")
    return text


_Moment = Annotated[str, Field(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d)?(Z|\+00:00)$"), AfterValidator(_a_date)]


class ObservationRequest(_Source, _Options):
    """A latency that users saw."""

    system: SystemName | None = None
    latency_us: Microseconds
    runs: Annotated[
        int | None, Field(ge=1, le=2**53, strict=True, description="How many runs the latency is the average of.")
    ] = None
    observed_at: Annotated[_Moment | None, Field(description="ISO 8601 in UTC; now, by default.")] = None
