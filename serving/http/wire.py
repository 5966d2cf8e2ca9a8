"""What goes over the wire: requests and answers, checked where they arrive."""

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from costmodel.graph import ITEM_BYTES, OPAQUE, TensorType
from costmodel.sequence import LayerSequence, SequenceLayer, Value
from costmodel.shapes import MAX_TENSOR_BYTES

__all__ = [
    "Accuracy", "BulkAnswer", "BulkItem", "BulkRequest", "DriftAnswer", "Health", "ModelAnswer", "ModelsAnswer",
    "ObservationAnswer", "ObservationRequest", "PredictAnswer", "PredictRequest", "ProblemAnswer", "RankAnswer",
    "RankRequest", "SystemAnswer", "SystemsAnswer", "WireGraph", "WireSequence",
]  # fmt: skip

_MOST_LAYERS_IN_SEQUENCE = 1000

Name = Annotated[str, Field(min_length=1, max_length=256)]
SystemName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
Version = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")]
Digest = Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$", description="Content hash of a model seen before.")]
Signature = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
Dimension = Annotated[int, Field(ge=0, le=2**31 - 1, strict=True)]
Batch = Annotated[int, Field(ge=1, le=2**31 - 1, strict=True)]
Granularity = Annotated[int, Field(ge=1, le=1000, strict=True)]
Composition = Annotated[
    str,
    Field(
        pattern=r"^(sequential|parallel|workers:[1-9][0-9]{0,3})$",
        description="sequential (sum), parallel (critical path) or workers:N.",
    ),
]
Microseconds = Annotated[float, Field(ge=1e-3, le=1e15, allow_inf_nan=False, strict=True)]


def _known_type(dtype: str) -> str:
    if dtype not in _DTYPES:
        raise ValueError(f"{dtype!r} is no element type")
    return dtype


_DTYPES = frozenset(ITEM_BYTES) | OPAQUE
DType = Annotated[str, AfterValidator(_known_type), Field(json_schema_extra={"enum": sorted(_DTYPES)})]
Text = Annotated[str, Field(max_length=4096)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


# Graphs and sequences


class WireLayer(_Strict):
    """One node as the runtime executes it."""

    name: Text
    op: Annotated[str, Field(min_length=1, max_length=128)]
    domain: Annotated[str, Field(max_length=128)] = ""
    since: Annotated[int, Field(ge=0, le=10_000, strict=True)] = 1
    attrs: dict[str, dict[str, Any]] = {}
    inputs: Annotated[list[Text], Field(alias="in", max_length=10_000)]
    outputs: Annotated[list[Text], Field(alias="out", min_length=1, max_length=10_000)]
    captured: Annotated[int, Field(ge=0, le=10_000, strict=True)] = 0
    sources: list[Text] = []


WireType = tuple[DType, Annotated[list[Dimension], Field(max_length=32)], Annotated[bool, Field(strict=True)]]


class WireGraph(_Strict):
    """The layers of a model in execution order, as `costmodel lower --json` prints them: without weights."""

    layers: Annotated[list[WireLayer], Field(min_length=1)]
    types: Annotated[dict[str, WireType], Field(description="dtype, shape and whether blocked, of each value.")]
    constants: Annotated[
        dict[str, list[Any] | None], Field(description="Data of small integer ones; null for weights.")
    ] = {}
    inputs: list[Text] = []
    outputs: list[Text] = []
    opset: Annotated[int, Field(ge=1, le=10_000, strict=True)] = 21
    data_dependent: list[Text] = []

    @model_validator(mode="after")
    def _hangs_together(self) -> Self:
        made = set(self.inputs) | self.constants.keys()
        for layer in self.layers:
            if not any(layer.outputs):
                raise ValueError(f"the layer {layer.name} has no output")
            if layer.captured > len(layer.inputs):
                raise ValueError(f"the layer {layer.name} captures more values than it reads")
            for name in layer.inputs:
                if name and name not in made:
                    raise ValueError(f"the layer {layer.name} reads {name}, which nothing before it makes")
            for name in filter(None, layer.outputs):
                if name in made:
                    raise ValueError(f"{name} is made twice")
                made.add(name)
        missing = made - self.types.keys()
        if missing:
            raise ValueError(f"{min(missing)} has no type")
        for name, (dtype, shape, _) in self.types.items():
            _check_size(name, dtype, shape)
        for name in self.outputs:
            if name not in made:
                raise ValueError(f"the output {name} is made by no layer")
        return self


class WireSequenceLayer(_Strict):
    """One layer of a sequence; inputs and outputs are positions in the sequence's values, -1 where absent."""

    op: Annotated[str, Field(min_length=1, max_length=128)]
    domain: Annotated[str, Field(max_length=128)] = ""
    since: Annotated[int, Field(ge=0, le=10_000, strict=True)] = 1
    attrs: dict[str, dict[str, Any]] = {}
    inputs: Annotated[list[Annotated[int, Field(ge=-1, strict=True)]], Field(alias="in")]
    outputs: Annotated[list[Annotated[int, Field(ge=-1, strict=True)]], Field(alias="out", min_length=1)]
    captured: Annotated[int, Field(ge=0, strict=True)] = 0


class WireSequence(_Strict):
    """A layer sequence in canonical form, as `costmodel decompose --json` and exports have it."""

    layers: Annotated[list[WireSequenceLayer], Field(min_length=1, max_length=_MOST_LAYERS_IN_SEQUENCE)]
    values: list[
        tuple[
            DType, Annotated[list[Dimension], Field(max_length=32)], Literal[0, 1],
            Literal["input", "constant", "internal"], list[Any] | None,
        ]
    ]  # fmt: skip
    outputs: Annotated[list[Annotated[int, Field(ge=0, strict=True)]], Field(min_length=1)]

    def to_sequence(self) -> LayerSequence:
        """As the domain has it.

        Raises:
            ValueError: It does not hang together.
        """
        mentioned = {i for layer in self.layers for i in (*layer.inputs, *layer.outputs)} - {-1}
        if not mentioned.union(self.outputs) <= set(range(len(self.values))):
            raise ValueError("mentions values that it does not have")
        if any(all(i < 0 for i in layer.outputs) for layer in self.layers):
            raise ValueError("has a layer without outputs")
        for place, (dtype, shape, *_) in enumerate(self.values):
            _check_size(f"value {place}", dtype, shape)
        return LayerSequence(
            tuple(
                SequenceLayer(
                    layer.op, layer.domain, layer.since, layer.attrs, tuple(layer.inputs), tuple(layer.outputs),
                    layer.captured,
                )
                for layer in self.layers
            ),
            tuple(
                Value(
                    TensorType(dtype, tuple(shape), bool(blocked)), role, None if data is None else tuple(data)
                )
                for dtype, shape, blocked, role, data in self.values
            ),
            tuple(self.outputs),
        )  # fmt: skip


class KnownSequence(_Strict):
    """A layer sequence that the store has."""

    signature: Signature


def _check_size(what: str, dtype: str, shape: list[int]) -> None:
    kind = TensorType(dtype, tuple(shape))
    if kind.elements * ITEM_BYTES.get(dtype, 8) > MAX_TENSOR_BYTES:
        raise ValueError(f"{what} has the absurd shape {shape}: no machine holds it")


# Requests


class _Source(_Strict):
    """A model, by what is known of it."""

    model: Digest | None = None
    graph: WireGraph | None = None
    name: Name = "model"

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.model is None) == (self.graph is None):
            raise ValueError("give one of model and graph")
        return self


class _Options(_Strict):
    batch: Batch | None = None
    shapes: dict[Name, Annotated[list[Dimension], Field(max_length=32)]] = {}
    granularity: Granularity = 1
    composition: Composition = "sequential"
    partial: Annotated[bool, Field(strict=True, description="Answer even if layers have no cost.")] = False
    measured: Annotated[bool, Field(strict=True, description="Use measurements; else all is predicted.")] = True


class PredictRequest(_Source, _Options):
    """A model that was seen before, or a graph of its layers, and what is asked about it."""

    system: SystemName | None = None


class RankModel(_Source, _Options):
    """One of the models that are ranked."""


class RankRequest(_Strict):
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
    ] = {}


class BulkItem(_Strict):
    """A model: positions in the request's list of layers, or one that was seen before, or a graph."""

    name: Name | None = None
    layers: Annotated[list[Annotated[int, Field(strict=True)]] | None, Field(max_length=100_000)] = None
    model: Digest | None = None
    graph: WireGraph | None = None


class BulkRequest(_Strict):
    """Many models on one system; those made of layers that repeat list each layer once."""

    system: SystemName | None = None
    layers: list[dict[str, Any]] = []
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


# Answers

Interval = Annotated[list[float], Field(min_length=2, max_length=2, description="Lowest and highest, in microseconds.")]


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


class Accuracy(BaseModel):
    """Of a regressor, on models of families that took no part in training."""

    model_config = ConfigDict(extra="allow")


class ModelAnswer(BaseModel):
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


class ModelsAnswer(BaseModel):
    """The trained regressors of all systems."""

    models: list[ModelAnswer]


class DriftAnswer(BaseModel):
    """What recent observations say of a system's predictions."""

    system: str
    observations: int
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


class ObservationAnswer(BaseModel):
    """What was stored."""

    system: str
    model: str
    digest: Digest
    latency_us: float
    runs: int | None
    predicted_us: float
    interval_us: Interval
    version: str
    observed_at: str
    ratio: float
    covered: bool


class Health(BaseModel):
    """Whether the service can answer."""

    status: Literal["ok", "starting"]
    systems: int
    warnings: list[str] = []
