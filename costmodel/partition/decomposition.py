"""Decomposition of a model into layer sequences: Algorithms 1 and 2 of the DLBricks paper (Li et al., 2019)."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property

from costmodel.ir.footprint import Footprint, shared_bytes
from costmodel.ir.graph import LayerGraph
from costmodel.ir.sequence import LayerSequence, build_sequence
from costmodel.memory.session import MemoryDemand, memory_demand
from costmodel.partition.cutter import Cutter, Window

__all__ = [
    "CHEAPEST",
    "COVERS",
    "FIXED",
    "CorpusStatistics",
    "Decomposition",
    "Segment",
    "corpus_statistics",
    "decompose",
    "decomposition_of",
    "fixed_cut",
    "jaccard",
    "repeats_by_kind",
    "whole_model",
]

FIXED, CHEAPEST = "fixed", "cheapest"
COVERS = (FIXED, CHEAPEST)


@dataclass(frozen=True, slots=True)
class Segment:
    """A layer sequence in its place in a model.

    Attributes:
        sequence: The layer sequence.
        layers: Names of the layers, as in the layer graph of the model.
        predecessors: Positions, in the decomposition, of the segments whose outputs this segment reads.
    """

    sequence: LayerSequence
    layers: tuple[str, ...]
    predecessors: tuple[int, ...]


@dataclass(frozen=True)
class Decomposition:
    """A model as non-overlapping sequences in execution order.

    Attributes:
        model: Name of the model.
        granularity: The most layers in a sequence; only an atomic group may have more.
        segments: Segments, which together contain every layer of the model exactly once.
        cover: How the model was cut: "fixed" (as by `decompose`) or "cheapest" (as by `costmodel.partition.cover`).
        memory: Memory that a session allocates for the model; None if it is not known.
        shared_bytes: Bytes of weights that segments read again because several of them share weights.
    """

    model: str
    granularity: int
    segments: tuple[Segment, ...]
    cover: str = FIXED
    memory: MemoryDemand | None = None
    shared_bytes: int = 0

    @cached_property
    def unique(self) -> dict[str, LayerSequence]:
        """Distinct sequences by signature, in order of first occurrence."""
        return {segment.sequence.signature: segment.sequence for segment in self.segments}

    @cached_property
    def counts(self) -> Counter[str]:
        """Number of occurrences in the model of each signature."""
        return Counter(segment.sequence.signature for segment in self.segments)

    @cached_property
    def footprint(self) -> Footprint:
        """How much memory the model touches."""
        return Footprint.of((segment.sequence for segment in self.segments), self.shared_bytes)

    @property
    def unique_share(self) -> float:
        """Number of distinct sequences divided by the number of all sequences, as in figure 5 of the DLBricks paper."""
        return len(self.unique) / len(self.segments)


def decompose(model: str, graph: LayerGraph, granularity: int = 1) -> Decomposition:
    """Cuts a graph into runnable sequences of at most `granularity` layers, at fixed positions.

    Args:
        model: Name of the model.
        graph: Layers of the model in execution order.
        granularity: The paper's G: the most layers in a sequence, at least 1; only an atomic group may have more.

    Raises:
        ValueError: `granularity` is less than 1.
    """
    cutter = Cutter(graph)
    return decomposition_of(model, granularity, cutter, fixed_cut(cutter, granularity))


def fixed_cut(cutter: Cutter, granularity: int) -> list[Window]:
    """Returns the windows into which the DLBricks paper cuts a model.

    Algorithm 1: from the first layer that is not covered, take the next G layers in execution order, split them into
    runnable sequences, and continue after them. Algorithm 2: if layers are not runnable together, cut off the first
    one and treat the rest in the same way. An atomic group is not split; a window of one group may have more than G
    layers.

    Args:
        cutter: Layers of the model, and where they may be cut.
        granularity: The paper's G, at least 1.

    Raises:
        ValueError: `granularity` is less than 1.
    """
    if granularity < 1:
        raise ValueError(f"granularity must be at least 1, not {granularity}")
    windows: list[Window] = []
    first = 0
    while first < cutter.units:
        last = cutter.within(first, granularity)
        while cutter.reach(first, last) < last:
            windows.append((first, first + 1))
            first += 1
        windows.append((first, last))
        first = last
    return windows


def decomposition_of(
    model: str, granularity: int, cutter: Cutter, windows: Sequence[Window], cover: str = FIXED
) -> Decomposition:
    """Returns the decomposition of a model into the given windows.

    Args:
        model: Name of the model.
        granularity: The most layers that a window may have.
        cutter: Layers of the model, and where they may be cut.
        windows: Windows in execution order; each layer of the model is in exactly one of them.
        cover: How the windows were chosen, one of `COVERS`.
    """
    owner = {unit: segment for segment, window in enumerate(windows) for unit in range(*window)}
    segments = tuple(
        Segment(
            sequence=cutter.sequence(window),
            layers=tuple(layer.name for layer in cutter.layers(window)),
            predecessors=tuple(sorted({owner[unit] for unit in cutter.read_units(window)} - {segment})),
        )
        for segment, window in enumerate(windows)
    )
    again = shared_bytes(cutter.graph, map(cutter.layers, windows))
    return Decomposition(model, granularity, segments, cover, memory_demand(cutter.graph), again)


def whole_model(graph: LayerGraph) -> LayerSequence:
    """Returns the whole model as one sequence, whose signature identifies the layer graph."""
    return build_sequence(graph.layers, graph.types, graph.constants, graph.outputs)


@dataclass(frozen=True, slots=True)
class CorpusStatistics:
    """Counts of repeated layer sequences in several models.

    Attributes:
        total: Number of sequences in all models, each counted as often as it occurs.
        unique: Number of distinct sequences.
        unique_share: `unique` divided by `total`.
        repeats_by_kind: Number of repeats (occurrences of a sequence after its first) by kind of sequence, such as
            "Conv".
    """

    total: int
    unique: int
    unique_share: float
    repeats_by_kind: Mapping[str, int]


def corpus_statistics(decompositions: Iterable[Decomposition]) -> CorpusStatistics:
    """Counts repeated sequences in one or more decomposed models, as in figures 5 and 6 of the DLBricks paper."""
    counts: Counter[str] = Counter()
    kinds: dict[str, str] = {}
    for decomposition in decompositions:
        counts.update(decomposition.counts)
        kinds.update({signature: sequence.kind for signature, sequence in decomposition.unique.items()})
    total = counts.total()
    return CorpusStatistics(total, len(counts), len(counts) / total, repeats_by_kind(counts, kinds))


def repeats_by_kind(counts: Mapping[str, int], kinds: Mapping[str, str]) -> dict[str, int]:
    """Returns the number of repeats (occurrences of a sequence after its first) by kind, the most frequent kind first.

    Args:
        counts: Number of occurrences of each signature.
        kinds: Kind of sequence (its operators, such as "Conv") of each signature.
    """
    repeats: Counter[str] = Counter()
    for signature, count in counts.items():
        repeats[kinds[signature]] += count - 1
    return {kind: count for kind, count in repeats.most_common() if count}


def jaccard(one: Set[str], other: Set[str]) -> float:
    """Returns the Jaccard similarity of two models' sets of signatures, as in figure 7 of the DLBricks paper."""
    return len(one & other) / len(one | other)
