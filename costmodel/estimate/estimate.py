"""The estimate: the composed latency of a model on a system, with its interval and the source of every part."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from costmodel.estimate.cost import SOURCES, Cost
from costmodel.partition.decomposition import FIXED
from costmodel.unknown_fields import known_fields

__all__ = ["Estimate", "LayerEstimate", "PredictorId"]


@dataclass(frozen=True, slots=True)
class PredictorId:
    """Name and version of the regressor that answered; both "none" when everything was measured."""

    name: str = "none"
    version: str = "none"


@dataclass(frozen=True, slots=True)
class LayerEstimate:
    """One row of an estimate: a sequence with its cost.

    Attributes:
        name: Names of its layers.
        op_type: Their operators.
        signature: Identity of the sequence.
        cost: Its cost inside the model.
        share: Share of the cost that the model's latency includes; 0 for a branch off the critical path.
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
        latency_us: Latency of back-to-back runs on the quiet machine, in microseconds.
        interval_us: Interval that holds the latency with probability `interval_level`.
        interval_level: Probability that the interval is made for, such as 0.9.
        jitter: Factor from the quiet latency to each quantile that users see: "p50", "p90", "p99".
        composition: Name of the composition rule; see `costmodel.estimate.rules`.
        granularity: Maximum number of layers in a sequence.
        layers: The sequences in execution order.
        predictor: Regressor that priced the sequences that are not measured.
        warnings: Warnings for the user, one sentence each.
        cover: How the sequences were chosen, one of `costmodel.partition.decomposition.COVERS`.
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

    @property
    def quantiles_us(self) -> dict[str, float]:
        """Latencies that users of the noisy machine will observe, by quantile."""
        return {name: self.latency_us * factor for name, factor in self.jitter.items()}

    @property
    def coverage(self) -> dict[str, float]:
        """Share of the latency by source; they add up to 1, unless nothing at all has a cost."""
        by_source = {source: 0.0 for source in SOURCES if source != "unpriced"}
        for layer in self.layers:
            if layer.cost.source in by_source:
                by_source[layer.cost.source] += layer.share * layer.cost.latency_us
        total = sum(by_source.values())
        return {source: latency_us / total if total else 0.0 for source, latency_us in by_source.items()}

    @property
    def unpriced(self) -> tuple[str, ...]:
        """Layers without a cost; only a partial estimate has any."""
        return tuple(layer.name for layer in self.layers if layer.cost.source == "unpriced")

    def to_dict(self) -> dict[str, Any]:
        """Returns the document that `costmodel predict --json` prints."""
        return {
            "model": self.model,
            "system": self.system,
            "latency_us": self.latency_us,
            "interval_us": list(self.interval_us),
            "interval_level": self.interval_level,
            "quantiles_us": self.quantiles_us,
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
                    "interval_us": list(layer.cost.interval_us),
                    "source": layer.cost.source,
                    "share": layer.share,
                }
                for layer in self.layers
            ],
            "predictor": {"name": self.predictor.name, "version": self.predictor.version},
            "warnings": list(self.warnings),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Estimate":
        """Reads what `to_dict` wrote."""

        def interval(of: Mapping[str, Any]) -> tuple[float, float]:
            low, high = of["interval_us"]
            return low, high

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
        )  # fmt: skip
