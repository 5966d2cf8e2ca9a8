"""What is asked."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from costmodel.serving.http.fields import (
    Batch,
    Composition,
    Digest,
    Dimension,
    Granularity,
    Microseconds,
    Name,
    Strict,
    SystemName,
)
from costmodel.serving.http.graphs import WireGraph

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


class BulkItem(Strict):
    """A model: positions in the request's list of layers, or one that was seen before, or a graph."""

    name: Name | None = None
    layers: Annotated[list[Annotated[int, Field(strict=True)]] | None, Field(max_length=100_000)] = None
    model: Digest | None = None
    graph: WireGraph | None = None


class BulkRequest(Strict):
    """Many models on one system; those made of layers that repeat list each layer once."""

    system: SystemName | None = None
    layers: list[dict[str, Any]] = Field(default_factory=list)
    items: Annotated[
        list[dict[str, Any]],
        Field(
            min_length=1, description="Each as BulkItem has it; one that is not has an error, and the others answers."
        ),
    ]
    measured: Annotated[bool, Field(strict=True)] = True


class ObservationRequest(_Source, _Options):
    """A latency that users saw."""

    system: SystemName | None = None
    latency_us: Microseconds
    runs: Annotated[int | None, Field(ge=1, le=2**53, strict=True, description="That it is the average of.")] = None
    observed_at: Annotated[
        str | None,
        Field(
            pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d)?(Z|\+00:00)$", description="ISO 8601 in UTC; now, by default."
        ),
    ] = None
