"""Summaries of the results of an evaluation: accuracy of its estimates, and the comparison that its spec asks for."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import geometric_mean
from typing import Literal

from costmodel.jobs.evaluation.results import Case
from costmodel.jobs.evaluation.spec import CompareSpec

__all__ = ["AccuracyRow", "ComparisonRow", "accuracy_rows", "comparison_rows"]


@dataclass(frozen=True, slots=True)
class AccuracyRow:
    """How far estimates are from the measured latencies of whole models, on one system.

    Attributes:
        system: Name of the system.
        batch: Batch size; None for that of each model's file.
        granularity: Maximum number of layers in a sequence.
        kind: Kind of estimate: "composed" or "predicted".
        models: Number of models that are measured and estimated.
        geometric_mean: Geometric mean of estimated latency / measured latency.
        within_5pct: Share of the models whose estimate is within 5% of the measured latency.
        within_10pct: Share of the models whose estimate is within 10% of the measured latency.
    """

    system: str
    batch: int | None
    granularity: int
    kind: Literal["composed", "predicted"]
    models: int
    geometric_mean: float
    within_5pct: float
    within_10pct: float


@dataclass(frozen=True, slots=True)
class ComparisonRow:
    """How measured latencies at one value compare with those at the base.

    Attributes:
        what: What is compared, such as "threads 2 against 1".
        models: Number of models that are measured at both.
        geometric_mean: Geometric mean of latency / latency at the base.
        lowest: Lowest ratio.
        highest: Highest ratio.
    """

    what: str
    models: int
    geometric_mean: float
    lowest: float
    highest: float


def accuracy_rows(cases: Sequence[Case]) -> Iterator[AccuracyRow]:
    """Yields a row for each system, batch size, granularity and kind of estimate with a model that is measured."""
    for key in dict.fromkeys((case.system, case.batch, case.granularity) for case in cases):
        of_key = [case for case in cases if (case.system, case.batch, case.granularity) == key]
        kinds: tuple[Literal["composed", "predicted"], ...] = ("composed", "predicted")
        for kind in kinds:
            ratios = [
                case.latencies[kind].latency_us / case.measured.latency_us
                for case in of_key
                if case.measured is not None and kind in case.latencies
            ]
            if ratios:
                errors = [abs(ratio - 1) for ratio in ratios]
                within_5pct, within_10pct = (
                    sum(error <= limit for error in errors) / len(errors) for limit in (0.05, 0.1)
                )
                yield AccuracyRow(*key, kind, len(ratios), geometric_mean(ratios), within_5pct, within_10pct)


def comparison_rows(cases: Sequence[Case], compare: CompareSpec) -> Iterator[ComparisonRow]:
    """Yields the comparisons that a spec asks for, each over all models that are measured at both values."""
    measured_us = {
        (case.model, case.here or case.system, case.threads, case.level, case.batch): case.measured.latency_us
        for case in cases
        if case.measured is not None
    }
    if compare.by == "suffix":
        ratios = [
            us / measured_us[base]
            for (model, *rest), us in measured_us.items()
            if model.endswith(compare.suffix) and (base := (model.removesuffix(compare.suffix), *rest)) in measured_us
        ]
        if ratios:
            yield _comparison(f"models with {compare.suffix} against those without", ratios)
        return
    position = {"threads": 2, "level": 3, "batch": 4}[compare.by]
    values = list(dict.fromkeys(getattr(case, compare.by) for case in cases))
    for value in values[1:]:
        ratios = []
        for key, us in measured_us.items():
            base_key = (*key[:position], values[0], *key[position + 1 :])
            if key[position] == value and base_key in measured_us:
                ratios.append(us / measured_us[base_key])
        if ratios:
            yield _comparison(f"{compare.by} {value} against {values[0]}", ratios)


def _comparison(what: str, ratios: Sequence[float]) -> ComparisonRow:
    return ComparisonRow(what, len(ratios), geometric_mean(ratios), min(ratios), max(ratios))
