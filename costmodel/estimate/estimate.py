"""The estimate: the composed latency of a model on a system, with its interval and the source of every part."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from typing_extensions import TypedDict

from costmodel.estimate.cost import SOURCES, Cost, Source
from costmodel.partition.decomposition import FIXED
from costmodel.unknown_fields import known_fields

__all__ = [
    "Coverage", "Estimate", "EstimateDocument", "LayerDocument", "LayerEstimate", "PredictorDocument", "PredictorId",
    "Quantiles",
]  # fmt: skip


class Coverage(TypedDict):
    """Share of the latency from costs of each source; the shares add up to 1, or to 0 if nothing has a cost."""

    measured: float
    predicted: float
    extrapolated: float


class Quantiles(TypedDict, total=False):
    """Quantiles of the latency that users observe, in microseconds; empty if the system's jitter is not known."""

    p50: float
    p90: float
    p99: float


class PredictorDocument(TypedDict):
    """Name and version of the regressor that predicted unmeasured costs; both "none" if no regressor was used."""

    name: str
    version: str


class LayerDocument(TypedDict):
    """The cost of one layer sequence of a model.

    Attributes:
        name: Names of the layers, joined by "+".
        op_type: Operator types of the layers, joined by "+".
        signature: Signature of the sequence.
        latency_us: Latency of the sequence inside the model, in microseconds.
        interval_us: Lower and upper bound of `latency_us`, in microseconds.
        source: Source of the cost: "measured", "predicted", "extrapolated" or "unpriced". An unpriced sequence has
            latency 0 and appears only in partial estimates.
        share: Share of this latency that the model's latency includes under the composition rule, such as 0 for a
            branch off the critical path.
    """

    name: str
    op_type: str
    signature: str
    latency_us: float
    interval_us: tuple[float, float]
    source: Source
    share: float


class EstimateDocument(TypedDict):
    """The estimated latency of a model on a system, as JSON-serialisable data.

    Attributes:
        model: Name of the model.
        system: Name of the system.
        latency_us: Latency of back-to-back runs of the model on the quiet machine, in microseconds.
        interval_us: Lower and upper bound of `latency_us`, in microseconds.
        interval_level: Probability that the interval holds the latency, such as 0.9.
        quantiles_us: Latencies that users of the noisy machine will observe, in microseconds, by quantile.
        composition: Composition rule by which the costs of layers become the latency.
        granularity: Maximum number of layers in a sequence.
        cover: How the layer sequences were chosen: "fixed" or "cheapest".
        coverage: Share of the latency from costs of each source.
        layers: The layer sequences in execution order.
        predictor: Regressor that predicted the costs of sequences that are not measured.
        peak_memory_bytes: Peak resident memory in bytes of a process that loads and runs the model; None if unknown.
        peak_memory_interval_bytes: Lower and upper bound of `peak_memory_bytes` with a probability of 90%; None if
            unknown.
        load_time_us: Time to load the model in a new process, from a file in the page cache, in microseconds; None if
            unknown.
        load_time_interval_us: Lower and upper bound of `load_time_us` with a probability of 90%; None if unknown.
        first_run_us: Latency of the first run after loading, in microseconds; None if unknown.
        first_run_interval_us: Lower and upper bound of `first_run_us` with a probability of 90%; None if unknown.
        beside: Names of the models that run beside this one, each on its own CPUs; `latency_us` is then the latency
            beside them, and the latencies of layers are still those of the model alone.
        slowdown: `latency_us` divided by the latency of the model alone; 1 if no model runs beside it.
        slowdown_interval: Lower and upper bound of `slowdown` with a probability of 90%.
        warnings: Warnings for the user, one sentence each.
    """

    model: str
    system: str
    latency_us: float
    interval_us: tuple[float, float]
    interval_level: float
    quantiles_us: Quantiles
    composition: str
    granularity: int
    cover: str
    coverage: Coverage
    layers: list[LayerDocument]
    predictor: PredictorDocument
    peak_memory_bytes: int | None
    peak_memory_interval_bytes: tuple[int, int] | None
    load_time_us: float | None
    load_time_interval_us: tuple[float, float] | None
    first_run_us: float | None
    first_run_interval_us: tuple[float, float] | None
    beside: list[str]
    slowdown: float
    slowdown_interval: tuple[float, float]
    warnings: list[str]


@dataclass(frozen=True, slots=True)
class PredictorId:
    """Name and version of the regressor that predicted costs; both "none" if every cost was measured."""

    name: str = "none"
    version: str = "none"

    def to_dict(self) -> PredictorDocument:
        """Returns name and version as JSON-serialisable data."""
        return {"name": self.name, "version": self.version}


@dataclass(frozen=True, slots=True)
class LayerEstimate:
    """One layer sequence of an estimate, with its cost.

    Attributes:
        name: Names of the sequence's layers, joined by "+".
        op_type: Operator types of the layers, joined by "+".
        signature: Signature of the sequence.
        cost: Cost of the sequence inside the model.
        share: Share of the cost that the model's latency includes under the composition rule, such as 0 for a branch
            off the critical path.
    """

    name: str
    op_type: str
    signature: str
    cost: Cost
    share: float = 1.0


@dataclass(frozen=True, slots=True)
class Estimate:
    """The estimated latency of a model on a system.

    Attributes:
        model: Name of the model.
        system: Name of the system.
        latency_us: Latency of back-to-back runs of the model on the quiet machine, in microseconds.
        interval_us: Lower and upper bound, in microseconds, between which the latency lies with probability
            `interval_level`.
        interval_level: Probability that `interval_us` holds the latency, such as 0.9.
        jitter: Factors from `latency_us` to the quantiles that users of the noisy machine observe: "p50", "p90", "p99".
        composition: Name of the composition rule; see `costmodel.estimate.rules`.
        granularity: Maximum number of layers in a sequence.
        layers: The layer sequences in execution order.
        predictor: Regressor that predicted the costs of the sequences that are not measured.
        warnings: Warnings for the user, one sentence each.
        cover: How the sequences were chosen, one of `costmodel.partition.decomposition.COVERS`.
        peak_memory_bytes: Peak resident memory in bytes of a process that loads and runs the model; None if unknown.
        peak_memory_interval_bytes: Lower and upper bound of `peak_memory_bytes` with a probability of 90%; None if
            unknown.
        load_time_us: Time to load the model in a new process, from a file in the page cache, in microseconds; None if
            unknown.
        load_time_interval_us: Lower and upper bound of `load_time_us` with a probability of 90%; None if unknown.
        first_run_us: Latency of the first run after loading, in microseconds; None if unknown.
        first_run_interval_us: Lower and upper bound of `first_run_us` with a probability of 90%; None if unknown.
        beside: Names of the models that run beside this one, each on its own CPUs; `latency_us` and `interval_us` are
            then those beside them, and the costs of the layers those of the model alone.
        slowdown: `latency_us` divided by the latency of the model alone; 1 if no model runs beside it.
        slowdown_interval: Lower and upper bound of `slowdown` with a probability of 90%.
    """

    model: str
    system: str
    latency_us: float
    interval_us: tuple[float, float]
    interval_level: float
    jitter: Mapping[str, float]
    composition: str
    granularity: int
    layers: Sequence[LayerEstimate]
    predictor: PredictorId
    warnings: Sequence[str] = ()
    cover: str = FIXED
    peak_memory_bytes: int | None = None
    peak_memory_interval_bytes: tuple[int, int] | None = None
    load_time_us: float | None = None
    load_time_interval_us: tuple[float, float] | None = None
    first_run_us: float | None = None
    first_run_interval_us: tuple[float, float] | None = None
    beside: Sequence[str] = ()
    slowdown: float = 1.0
    slowdown_interval: tuple[float, float] = (1.0, 1.0)

    @property
    def quantiles_us(self) -> dict[str, float]:
        """Latencies that users of the noisy machine will observe, in microseconds, by quantile: "p50", "p90", "p99"."""
        return {name: self.latency_us * factor for name, factor in self.jitter.items()}

    @property
    def coverage(self) -> Coverage:
        """Share of the latency from costs of each source; the shares add up to 1, or to 0 if nothing has a cost."""
        us = dict.fromkeys(SOURCES, 0.0)
        for layer in self.layers:
            us[layer.cost.source] += layer.share * layer.cost.latency_us
        total = sum(us.values()) or 1.0
        return {
            "measured": us["measured"] / total, "predicted": us["predicted"] / total,
            "extrapolated": us["extrapolated"] / total,
        }  # fmt: skip

    @property
    def unpriced(self) -> tuple[str, ...]:
        """Names of the sequences without a cost; only a partial estimate has any."""
        return tuple(layer.name for layer in self.layers if layer.cost.source == "unpriced")

    def to_dict(self) -> EstimateDocument:
        """Returns the estimate as the JSON document that `costmodel predict --json` prints."""
        return {
            "model": self.model,
            "system": self.system,
            "latency_us": self.latency_us,
            "interval_us": self.interval_us,
            "interval_level": self.interval_level,
            "quantiles_us": cast(Quantiles, self.quantiles_us),
            "composition": self.composition,
            "granularity": self.granularity,
            "cover": self.cover,
            "coverage": self.coverage,
            "layers": [
                {
                    "name": layer.name,
                    "op_type": layer.op_type,
                    "signature": layer.signature,
                    "latency_us": layer.cost.latency_us,
                    "interval_us": layer.cost.interval_us,
                    "source": layer.cost.source,
                    "share": layer.share,
                }
                for layer in self.layers
            ],
            "predictor": self.predictor.to_dict(),
            "peak_memory_bytes": self.peak_memory_bytes,
            "peak_memory_interval_bytes": self.peak_memory_interval_bytes,
            "load_time_us": self.load_time_us,
            "load_time_interval_us": self.load_time_interval_us,
            "first_run_us": self.first_run_us,
            "first_run_interval_us": self.first_run_interval_us,
            "beside": list(self.beside),
            "slowdown": self.slowdown,
            "slowdown_interval": self.slowdown_interval,
            "warnings": list(self.warnings),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Estimate":
        """Returns the estimate from the output of `to_dict`."""

        def interval(of: Mapping[str, Any]) -> tuple[float, float]:
            low, high = of["interval_us"]
            return low, high

        def bounds(of: Mapping[str, Any], name: str) -> tuple[Any, Any] | None:
            found = of.get(name)
            return None if found is None else (found[0], found[1])

        latency_us = data["latency_us"]
        quantiles = {name: us for name, us in data["quantiles_us"].items() if us is not None}
        return cls(
            model=data["model"],
            system=data["system"],
            latency_us=latency_us,
            interval_us=interval(data),
            interval_level=data["interval_level"],
            jitter={name: us / latency_us if latency_us else 1.0 for name, us in quantiles.items()},
            composition=data["composition"],
            granularity=data["granularity"],
            layers=tuple(
                LayerEstimate(
                    layer["name"], layer["op_type"], layer["signature"],
                    Cost(layer["latency_us"], interval(layer), layer["source"], layer["op_type"]), layer["share"],
                )
                for layer in data["layers"]
            ),
            predictor=PredictorId(**known_fields(PredictorId, data["predictor"])),
            warnings=tuple(data["warnings"]),
            cover=data["cover"],
            peak_memory_bytes=data.get("peak_memory_bytes"),
            peak_memory_interval_bytes=bounds(data, "peak_memory_interval_bytes"),
            load_time_us=data.get("load_time_us"),
            load_time_interval_us=bounds(data, "load_time_interval_us"),
            first_run_us=data.get("first_run_us"),
            first_run_interval_us=bounds(data, "first_run_interval_us"),
            beside=tuple(data.get("beside", ())),
            slowdown=data.get("slowdown", 1.0),
            slowdown_interval=(1.0, 1.0) if (slow := data.get("slowdown_interval")) is None else (slow[0], slow[1]),
        )  # fmt: skip
