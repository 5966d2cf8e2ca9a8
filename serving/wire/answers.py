"""Models of the JSON answers."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from costmodel.serving.uploads import UploadedModel
from costmodel.serving.wire.fields import Digest

__all__ = [
    "BulkAnswer",
    "DeletedAnswer",
    "DriftAnswer",
    "Health",
    "ModelAnswer",
    "ModelsAnswer",
    "ObservationAnswer",
    "ObservationsAnswer",
    "PredictAnswer",
    "ProblemAnswer",
    "RankAnswer",
    "RegressorsAnswer",
    "StoredModelAnswer",
    "SystemAnswer",
    "SystemsAnswer",
]  # fmt: skip

Interval = Annotated[
    list[float], Field(min_length=2, max_length=2, description="Lower and upper bound in microseconds.")
]


Next = Annotated[str | None, Field(description="Parameter `after` for the next page; null on the last page.")]


class PredictorAnswer(BaseModel):
    """The regressor that predicted the layers without measurements; "none" if no regressor was used."""

    name: str
    version: str


class Quantiles(BaseModel):
    """Quantiles of the latency that users observe, in microseconds; null if the jitter of the system is not known."""

    p50: float | None = None
    p90: float | None = None
    p99: float | None = None


class Coverage(BaseModel):
    """Shares of the latency by source of the costs; they add up to 1."""

    measured: float
    predicted: float
    extrapolated: float


class LayerAnswer(BaseModel):
    """The cost of one layer sequence of a model."""

    name: str
    op_type: str
    signature: str
    latency_us: float
    interval_us: Interval
    source: Literal["measured", "predicted", "extrapolated", "unpriced"]
    share: float


class PredictAnswer(BaseModel):
    """The estimated latency of a model on a system."""

    model: str
    digest: Digest
    system: str
    latency_us: float
    interval_us: Interval
    interval_level: float
    quantiles_us: Quantiles
    composition: str
    granularity: int
    cover: str
    coverage: Coverage
    layers: list[LayerAnswer]
    predictor: PredictorAnswer
    warnings: list[str]


class ProblemAnswer(BaseModel):
    """An error as problem details (RFC 9457); `detail` is one sentence that says what to do."""

    model_config = ConfigDict(extra="allow")

    type: str
    title: str
    status: int
    detail: str
    request_id: str | None = None


class BulkItemAnswer(BaseModel):
    """The estimated latency of one model of a bulk request, or the reason why there is none."""

    name: str
    latency_us: float | None = None
    interval_us: Interval | None = None
    coverage: Coverage | None = None
    error: str | None = None


class BulkAnswer(BaseModel):
    """The answer to a bulk request: one entry for each item, in the order of the request."""

    system: str
    predictor: PredictorAnswer
    interval_level: float
    failed: int
    items: list[BulkItemAnswer]


class RankedAnswer(BaseModel):
    """One model on one system in a ranking."""

    model: str
    system: str
    latency_us: float
    interval_us: Interval
    slo_latency_us: float
    slo_interval_us: Interval
    meets: bool | None
    within_interval: bool | None
    exceeds_by_us: float | None
    usd_per_million: float | None
    coverage: Coverage
    version: str


class RankError(BaseModel):
    """A model that has no estimate on a system, and the reason."""

    model: str
    system: str
    error: str


class RankAnswer(BaseModel):
    """A ranking of models on systems; those that meet the objective come first, the cheapest before the fastest."""

    slo_us: float | None
    quantile: str
    best: RankedAnswer | None
    ranking: list[RankedAnswer]
    failed: list[RankError]


class StoredModelAnswer(BaseModel):
    """The digest under which an uploaded model is stored."""

    digest: Digest


class ModelAnswer(BaseModel):
    """An uploaded model."""

    digest: Digest
    kind: Literal["onnx", "graph"]
    stored_bytes: int
    used_at: str

    @classmethod
    def of(cls, model: UploadedModel) -> "ModelAnswer":
        """Returns the answer for an uploaded model."""
        return cls(
            digest=model.digest, kind="onnx" if model.kind == "onnx" else "graph", stored_bytes=model.nbytes,
            used_at=model.used_at,
        )  # fmt: skip


class ModelsAnswer(BaseModel):
    """A page of the uploaded models."""

    models: list[ModelAnswer]
    next: Next


class RegressorAnswer(BaseModel):
    """A trained regressor."""

    system: str
    version: str
    name: str | None
    champion: bool
    usable: bool
    model_mape: float | None
    rows: int | None
    trained_at: str | None
    age_s: float | None


class RegressorsAnswer(BaseModel):
    """A page of the trained regressors."""

    regressors: list[RegressorAnswer]
    next: Next


class DriftAnswer(BaseModel):
    """The drift of a system: how far recent observations are from its predictions."""

    system: str
    observations: int
    owners: int
    models: int
    ratio: float | None
    error: float | None
    covered: float | None
    drifted: bool
    latest_at: str | None


class SystemAnswer(BaseModel):
    """A system of the results store."""

    name: str
    runtime: str
    runtime_version: str
    settings: dict[str, Any]
    host: dict[str, Any] | None
    capabilities: dict[str, float]
    asserted: bool
    measurements: int
    champion: PredictorAnswer | None
    accuracy: dict[str, Any] | None
    usd_per_hour: float | None
    drift: DriftAnswer
    warnings: list[str]


class SystemsAnswer(BaseModel):
    """A page of the systems of the results store."""

    systems: list[SystemAnswer]
    next: Next


class ObservationAnswer(BaseModel):
    """A stored observation."""

    id: int
    system: str
    model: str
    digest: Digest
    latency_us: float
    runs: int | None
    predicted_us: float
    interval_us: Interval
    version: str
    observed_at: str
    stored_at: str
    idempotency_key: str | None
    ratio: float
    covered: bool


class ObservationsAnswer(BaseModel):
    """A page of observations, newest first."""

    observations: list[ObservationAnswer]
    next: Annotated[int | None, Field(description="Parameter `before` for the next page; null on the last page.")]


class DeletedAnswer(BaseModel):
    """The number of deleted observations."""

    deleted: int


class Health(BaseModel):
    """Whether the service is alive or ready."""

    status: Literal["ok", "unavailable"]
    systems: int | None = None
    warnings: list[str] = []
