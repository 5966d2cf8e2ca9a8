"""The report of an evaluation as typed results, and the JSON document that is made of it.

Errors, shares and coverages are fractions; they are None where there was nothing to judge. Attributes are named like
the keys of the JSON document, except the limits of ranges of distances, because `from` is a keyword of Python.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Self

from costmodel.training.evaluation.truth import Truth

__all__ = [
    "ClassErrors",
    "DistanceErrors",
    "DistanceResult",
    "EvaluationReport",
    "FamilyErrors",
    "FamilyFacts",
    "LayerMetrics",
    "ModelMetrics",
    "ModelResult",
    "PredictorResult",
    "SizeErrors",
]


@dataclass(frozen=True)
class LayerMetrics:
    """Metrics of a predictor over layer sequences, averaged over seeds.

    Attributes:
        mape: Mean absolute relative error.
        weighted_mape: Sum of absolute errors divided by the sum of latencies.
        weighted_mape_above_20us: The same over sequences whose latency is above 20 us.
        within_10pct: Share of the sequences with an error of at most 10%.
        kendall_tau: Kendall's rank correlation of predicted and measured latencies.
        interval_coverage: Share of the sequences inside intervals that were calibrated without their family.
        interval_half_width: Mean half-width of these intervals, in log latency.
    """

    mape: float | None
    weighted_mape: float | None
    within_10pct: float | None
    kendall_tau: float | None
    interval_coverage: float | None
    interval_half_width: float | None
    weighted_mape_above_20us: float | None = None


@dataclass(frozen=True)
class ModelMetrics:
    """Metrics of a predictor over whole models, averaged over seeds.

    Attributes:
        mape: Mean absolute relative error.
        within_5pct: Share of the models with an error of at most 5%.
        within_10pct: Share of the models with an error of at most 10%.
        kendall_tau: Kendall's rank correlation of predicted and measured latencies.
        interval_coverage: Share of the models inside intervals that were calibrated without their family.
        interval_half_width: Mean half-width of these intervals, in log latency.
        percentile_95: Error that 95% of the models do not exceed.
        macro_mape: Mean over lineages of the mean absolute relative error of each.
    """

    mape: float | None
    within_5pct: float | None
    within_10pct: float | None
    kendall_tau: float | None
    interval_coverage: float | None
    interval_half_width: float | None
    percentile_95: float | None = None
    macro_mape: float | None = None

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Creates metrics from the result of `to_dict`; metrics that are missing from it are None."""
        return cls(**{field.name: data.get(field.name) for field in fields(cls)})

    def to_dict(self) -> dict[str, float | None]:
        """Returns the metrics as JSON data, to be read back by `from_dict`."""
        return asdict(self)


@dataclass(frozen=True)
class ClassErrors:
    """Errors of a predictor over a class of layer sequences, such as the layers of one operator.

    Attributes:
        layers: Number of sequences in the class.
        latency_us: Sum of the measured latencies of these sequences in microseconds.
        mape: Mean absolute relative error.
        weighted_mape: Sum of absolute errors divided by the sum of latencies.
        within_10pct: Share of the sequences with an error of at most 10%.
    """

    layers: int
    latency_us: float
    mape: float | None
    weighted_mape: float | None
    within_10pct: float | None


@dataclass(frozen=True)
class SizeErrors:
    """Errors of a predictor over the sequences in a range of measured latencies.

    Attributes:
        from_us: Lower limit of the range in microseconds, inclusive.
        to_us: Upper limit of the range in microseconds, exclusive; None if there is no limit.
        errors: Errors of these sequences.
    """

    from_us: float
    to_us: float | None
    errors: ClassErrors

    def to_dict(self) -> dict[str, Any]:
        """Returns the limits of the range and the errors as one flat JSON object."""
        return {"from_us": self.from_us, "to_us": self.to_us, **asdict(self.errors)}


@dataclass(frozen=True)
class DistanceErrors:
    """Errors of the sequences in a range of distances to the training data.

    Attributes:
        from_distance: Lower limit of the range, inclusive.
        to_distance: Upper limit of the range, exclusive; None for sequences with an operator that was never measured.
        errors: Errors of these sequences.
    """

    from_distance: float
    to_distance: float | None
    errors: ClassErrors

    def to_dict(self) -> dict[str, Any]:
        """Returns the limits of the range and the errors as one flat JSON object."""
        return {"from": self.from_distance, "to": self.to_distance, **asdict(self.errors)}


@dataclass(frozen=True)
class DistanceResult:
    """Errors of a predictor by the distance of sequences to the training data.

    Attributes:
        rank_correlation: Spearman's rank correlation of distance and absolute error, from -1 to 1.
        ranges: Errors in each range of distances, the nearest first.
    """

    rank_correlation: float | None
    ranges: tuple[DistanceErrors, ...]


@dataclass(frozen=True)
class ModelResult:
    """Latencies of a model that was predicted while its family was held out, averaged over seeds.

    Attributes:
        model: Name of the model.
        family: Family of the model.
        latency_us: Measured end-to-end latency in microseconds.
        sum_us: Sum of the measured costs of the model's layers in microseconds, without context correction.
        predicted_us: Estimate with measured costs for the layers that also occur in another family, in microseconds.
        unseen_us: Estimate with all costs predicted, in microseconds.
        known_share: Share of the model's layers that also occur in another family.
        latency_error: Relative standard error of `latency_us`; None if too few models were measured more than once.
    """

    model: str
    family: str
    latency_us: float
    sum_us: float
    predicted_us: float
    unseen_us: float
    known_share: float
    latency_error: float | None = None


@dataclass(frozen=True)
class PredictorResult:
    """Results of one predictor.

    Attributes:
        layer: Metrics over layer sequences.
        model: Metrics over models, with measured costs for the layers that also occur in another family.
        model_unseen: Metrics over models, with all costs predicted.
        operators: Errors of single layers by operator, starting with the operator that takes the most time in total.
        sizes: Errors of sequences in each range of latencies, the fastest first.
        distances: Errors of sequences by their distance to the training data.
        models: Latencies of each measured model.
    """

    layer: LayerMetrics
    model: ModelMetrics
    model_unseen: ModelMetrics
    operators: Mapping[str, ClassErrors]
    sizes: tuple[SizeErrors, ...]
    distances: DistanceResult
    models: tuple[ModelResult, ...]

    @property
    def parts(self) -> dict[str, LayerMetrics | ModelMetrics]:
        """Metrics by what they are computed over: "layer", "model" or "model_unseen"."""
        return {"layer": self.layer, "model": self.model, "model_unseen": self.model_unseen}

    def to_dict(self) -> dict[str, Any]:
        """Returns the predictor's entry in the JSON document of a report."""
        return {
            **{part: asdict(metrics) for part, metrics in self.parts.items()},
            "operators": {operator: asdict(errors) for operator, errors in self.operators.items()},
            "sizes": [size.to_dict() for size in self.sizes],
            "distances": {
                "rank_correlation": self.distances.rank_correlation,
                "ranges": [of_range.to_dict() for of_range in self.distances.ranges],
            },
            "models": [asdict(model) for model in self.models],
        }


@dataclass(frozen=True)
class FamilyFacts:
    """Numbers of models and sequences of one family in a data set.

    Attributes:
        models: Number of models that were measured whole.
        sequences: Number of measured layer sequences.
        shared_with_other_families: Share of these sequences that also occur in another family.
    """

    models: int
    sequences: int
    shared_with_other_families: float


@dataclass(frozen=True)
class EvaluationReport:
    """Results of predictors on held-out lineages.

    Attributes:
        system: Name of the system.
        split: Description for people of how families were held out.
        seeds: Seeds that results are averaged over; predictors that use no random numbers have the first.
        noise_floor_mape: Mean relative difference of repeated measurements; None if too few were repeated.
        predictors: Results of each predictor, by its name.
        champion: Name of the predictor with the smallest error that is not a baseline.
        rows: Number of measured sequences in the data set.
        borrowed_rows: How many of them were measured with fewer threads; they are trained on only.
        noise_floor_above_20us: Mean difference of repeated measurements of sequences above 20 us, weighted by time;
            None if too few were repeated.
        families: Number of models and sequences of each family, by its name.
        measured: Metrics over models of the sums of measured layers.
        truth: How uncertain the measured latencies of models are, and the champion's errors, with all costs predicted,
            without that uncertainty; None if too few models were measured more than once.
    """

    system: str
    split: str
    seeds: tuple[int, ...]
    noise_floor_mape: float | None
    predictors: Mapping[str, PredictorResult]
    champion: str
    rows: int
    families: Mapping[str, FamilyFacts]
    measured: ModelMetrics
    truth: Truth | None = None
    borrowed_rows: int = 0
    noise_floor_above_20us: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Returns the JSON document that `costmodel evaluate --json` prints."""
        return {
            "system": self.system,
            "split": self.split,
            "seeds": list(self.seeds),
            "noise_floor_mape": self.noise_floor_mape,
            "predictors": {name: result.to_dict() for name, result in self.predictors.items()},
            "champion": self.champion,
            "rows": self.rows,
            "borrowed_rows": self.borrowed_rows,
            "noise_floor_above_20us": self.noise_floor_above_20us,
            "families": {family: asdict(facts) for family, facts in self.families.items()},
            "measured": asdict(self.measured),
            "truth": asdict(self.truth) if self.truth is not None else None,
        }


@dataclass(frozen=True)
class FamilyErrors:
    """Mean absolute relative errors of the models of one family.

    Attributes:
        family: Name of the family.
        models: Number of the family's models.
        unseen: Error with all costs predicted.
        predicted: Error with measured costs for the layers that also occur in another family.
        sum: Error of the sum of the measured costs of a model's layers.
    """

    family: str
    models: int
    unseen: float
    predicted: float
    sum: float
