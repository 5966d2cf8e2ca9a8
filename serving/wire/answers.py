"""Answers in JSON."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from costmodel.serving.uploads import UploadedModel
from costmodel.serving.wire.fields import Digest

__all__ = [
    "BulkAnswer", "DeletedAnswer", "DriftAnswer", "Health", "KeptAnswer", "ModelAnswer", "ModelsAnswer",
    "ObservationAnswer", "ObservationsAnswer", "PredictAnswer", "ProblemAnswer", "RankAnswer", "RegressorsAnswer",
    "SystemAnswer", "SystemsAnswer",
]  # fmt: skip

Interval = Annotated[list[float], Field(min_length=2, max_length=2, description="Lowest and highest, in microseconds.")]


Next = Annotated[str | None, Field(description="What to ask the next page for; null on the last one.")]


class PredictorAnswer(BaseModel):
    """Which regressor answered for what is not measured; "none" where all is."""

    name: str
    version: str


class Quantiles(BaseModel):
    """Latencies that users see, in microseconds; none where the noise of the system is not known."""

    p50: float | None = None
    p90: float | None = None
    p99: float | None = None


class Coverage(BaseModel):
    """Shares of the latency; they add up to 1."""

    measured: float
    predicted: float
    extrapolated: float


class LayerAnswer(BaseModel):
    """One sequence of a model."""

    name: str
    op_type: str
    signature: str
    latency_us: float
    interval_us: Interval
    source: Literal["measured", "predicted", "extrapolated", "unpriced"]
    share: float


class PredictAnswer(BaseModel):
    """What a model will cost on a system."""

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
    """An error, as RFC 9457 has it; `detail` is one sentence that says what to do."""

    model_config = ConfigDict(extra="allow")

    type: str
    title: str
    status: int
    detail: str
    request_id: str | None = None


class BulkItemAnswer(BaseModel):
    """What one model will cost, or why that is not known."""

    name: str
    latency_us: float | None = None
    interval_us: Interval | None = None
    coverage: Coverage | None = None
    error: str | None = None


class BulkAnswer(BaseModel):
    """One entry for each item, in their order."""

    system: str
    predictor: PredictorAnswer
    interval_level: float
    failed: int
    items: list[BulkItemAnswer]


class RankedAnswer(BaseModel):
    """One model on one system."""

    model: str
    system: str
    latency_us: float
    interval_us: Interval
    slo_latency_us: float
    slo_interval_us: Interval
    meets: bool | None
    surely: bool | None
    over_us: float | None
    usd_per_million: float | None
    coverage: Coverage
    version: str


class RankError(BaseModel):
    """A model that has no estimate on a system."""

    model: str
    system: str
    error: str


class RankAnswer(BaseModel):
    """What meets the objective first, the cheapest of that, then the fastest."""

    slo_us: float | None
    quantile: str
    best: RankedAnswer | None
    ranking: list[RankedAnswer]
    failed: list[RankError]


class KeptAnswer(BaseModel):
    """A model that was sent and is known from now on."""

    digest: Digest


class ModelAnswer(BaseModel):
    """A model that was sent."""

    digest: Digest
    kind: Literal["onnx", "graph"]
    kept_bytes: int
    used_at: str

    @classmethod
    def of(cls, model: UploadedModel) -> "ModelAnswer":
        """A model as the store of uploads describes it."""
        return cls(
            digest=model.digest, kind="onnx" if model.kind == "onnx" else "graph", kept_bytes=model.nbytes,
            used_at=model.used_at,
        )  # fmt: skip


class ModelsAnswer(BaseModel):
    """A page of the models that were sent."""

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
    """What recent observations say of a system's predictions."""

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
    """A system that is answered for."""

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
    """All systems that are answered for."""

    systems: list[SystemAnswer]
    next: Next


class ObservationAnswer(BaseModel):
    """An observation that is stored."""

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
    """A page of observations, the newest first."""

    observations: list[ObservationAnswer]
    next: Annotated[int | None, Field(description="What to ask the next page for, as `before`; null on the last one.")]


class DeletedAnswer(BaseModel):
    """How many were deleted."""

    deleted: int


class Health(BaseModel):
    """Whether the service can answer."""

    status: Literal["ok", "unavailable"]
    systems: int | None = None
    warnings: list[str] = []
