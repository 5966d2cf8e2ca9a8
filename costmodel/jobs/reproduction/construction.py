"""Compares constructed with end-to-end latency for the measured models of a corpus."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import geometric_mean

import numpy as np

from costmodel.estimate.rules import critical_path
from costmodel.measure.measurement import Timing
from costmodel.store.store import StoredModel

__all__ = ["Construction", "Summary", "constructions", "summarise"]


@dataclass(frozen=True, slots=True)
class Construction:
    """Measured and constructed latency of one model at one granularity on one system.

    Attributes:
        model: Name of the model.
        granularity: Maximum number of layers in a sequence.
        end_to_end_us: Measured latency of the whole model.
        sequential_us: Sum of the latencies of the model's sequences.
        parallel_us: Sum of the latencies of those sequences that lie on the critical path.
        signatures: Signatures of the model's sequences, in execution order.
    """

    model: str
    granularity: int
    end_to_end_us: float
    sequential_us: float
    parallel_us: float
    signatures: tuple[str, ...]

    @property
    def ratio(self) -> float:
        """Returns the sum of the latencies of the sequences divided by the end-to-end latency."""
        return self.sequential_us / self.end_to_end_us

    @property
    def unique_share(self) -> float:
        """Returns unique sequences divided by all sequences of the model; Figure 5 of the DLBricks paper plots it."""
        return len(set(self.signatures)) / len(self.signatures)


@dataclass(frozen=True, slots=True)
class Summary:
    """Statistics of a corpus at one granularity on one system; shares are between 0 and 1.

    Attributes:
        granularity: Maximum number of layers in a sequence.
        models: Number of models.
        geometric_mean: Geometric mean of the models' ratios of constructed to end-to-end latency.
        lowest: Lowest of these ratios.
        highest: Highest of these ratios.
        within_5pct: Share of the models whose ratio is within 5% of 1.
        within_10pct: Share of the models whose ratio is within 10% of 1.
        sequences: Number of sequences in all models.
        unique: Number of unique sequences in all models together.
        speedup: Sum of the models' end-to-end latencies divided by the sum of the times of the unique sequences in
            isolation, call overhead included. Figure 12 of the DLBricks paper plots it.
    """

    granularity: int
    models: int
    geometric_mean: float
    lowest: float
    highest: float
    within_5pct: float
    within_10pct: float
    sequences: int
    unique: int
    speedup: float

    @property
    def unique_share(self) -> float:
        """Returns the number of unique sequences in all models divided by the number of sequences in all models."""
        return self.unique / self.sequences


def constructions(
    models: Iterable[StoredModel], timings: Mapping[str, Timing], names: Iterable[str]
) -> list[Construction]:
    """Returns constructed and end-to-end latency of each model that is measured whole and in all its sequences.

    Args:
        models: Stored models, all lowered in the same way.
        timings: Timings of the measured sequences on one system, by signature.
        names: Names of the corpus's models.
    """
    wanted = set(names)
    found = []
    for model in models:
        signatures = [segment.signature for segment in model.segments]
        if model.name not in wanted or model.whole not in timings or not timings.keys() >= set(signatures):
            continue
        latencies_us = [timings[signature].latency_us for signature in signatures]
        path = critical_path(latencies_us, [segment.predecessors for segment in model.segments])
        found.append(
            Construction(
                model=model.name,
                granularity=model.granularity,
                end_to_end_us=timings[model.whole].latency_us,
                sequential_us=sum(latencies_us),
                parallel_us=sum(latencies_us[position] for position in path),
                signatures=tuple(signatures),
            )
        )
    return found


def summarise(found: Sequence[Construction], timings: Mapping[str, Timing]) -> Summary:
    """Returns the statistics that the DLBricks paper reports, for a corpus at one granularity.

    Args:
        found: Measured and constructed latencies of the corpus's models at that granularity; at least one model.
        timings: Timings of the measured sequences on one system, by signature.
    """
    ratios = np.array([construction.ratio for construction in found])
    errors = np.abs(ratios - 1)
    unique = {signature for construction in found for signature in construction.signatures}
    return Summary(
        granularity=found[0].granularity,
        models=len(found),
        geometric_mean=geometric_mean(ratios.tolist()),
        lowest=float(ratios.min()),
        highest=float(ratios.max()),
        within_5pct=float((errors <= 0.05).mean()),
        within_10pct=float((errors <= 0.10).mean()),
        sequences=sum(len(construction.signatures) for construction in found),
        unique=len(unique),
        speedup=sum(construction.end_to_end_us for construction in found)
        / sum(timings[signature].call_us for signature in unique),
    )
