"""Constructed against end-to-end latency, for every model of a corpus that a store knows."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from costmodel.measurement import Timing
from costmodel.rules import critical_path
from costmodel.store import StoredModel

__all__ = ["Construction", "Summary", "constructions", "summarise"]


@dataclass(frozen=True, slots=True)
class Construction:
    """One model at one granularity on one system.

    Attributes:
        model: Its name.
        granularity: The most layers in a sequence.
        end_to_end_us: Measured latency of the whole model.
        sequential_us: Sum of the latencies of its sequences.
        parallel_us: The same along the critical path.
        signatures: Of its sequences, in execution order.
    """

    model: str
    granularity: int
    end_to_end_us: float
    sequential_us: float
    parallel_us: float
    signatures: tuple[str, ...]

    @property
    def ratio(self) -> float:
        """Constructed over end to end."""
        return self.sequential_us / self.end_to_end_us

    @property
    def unique_share(self) -> float:
        """Different sequences over all sequences; the paper's figure 5."""
        return len(set(self.signatures)) / len(self.signatures)


@dataclass(frozen=True, slots=True)
class Summary:
    """A corpus at one granularity on one system; shares are fractions.

    Attributes:
        granularity: The most layers in a sequence.
        models: How many.
        geometric_mean: Of constructed / end to end.
        lowest: The lowest of these.
        highest: The highest.
        within_5pct: Share of the models whose ratio lies within 5% of 1.
        within_10pct: Within 10%.
        sequences: In all models.
        unique: Different ones among them.
        speedup: Sum of the models' latencies over that of the unique sequences by themselves, calls included; the
            paper's figure 12.
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
        """Different sequences over all."""
        return self.unique / self.sequences


def constructions(
    models: Iterable[StoredModel], timings: Mapping[str, Timing], names: Iterable[str]
) -> list[Construction]:
    """The models of a corpus that are measured end to end and in all their sequences.

    Args:
        models: Of one lowering.
        timings: Of each measured signature on one system.
        names: Models of the corpus.
    """
    wanted = set(names)
    found = []
    for model in models:
        signatures = [piece.signature for piece in model.pieces]
        if model.name not in wanted or model.whole not in timings or not timings.keys() >= set(signatures):
            continue
        latencies_us = [timings[signature].latency_us for signature in signatures]
        path = critical_path(latencies_us, [piece.needs for piece in model.pieces])
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
    """What the paper says of a corpus; all of one granularity, at least one."""
    ratios = np.array([construction.ratio for construction in found])
    off = np.abs(ratios - 1)
    unique = {signature for construction in found for signature in construction.signatures}
    return Summary(
        granularity=found[0].granularity,
        models=len(found),
        geometric_mean=math.exp(float(np.log(ratios).mean())),
        lowest=float(ratios.min()),
        highest=float(ratios.max()),
        within_5pct=float((off <= 0.05).mean()),
        within_10pct=float((off <= 0.10).mean()),
        sequences=sum(len(construction.signatures) for construction in found),
        unique=len(unique),
        speedup=sum(construction.end_to_end_us for construction in found)
        / sum(timings[signature].call_us for signature in unique),
    )
