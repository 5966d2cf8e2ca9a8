"""Decomposition of a model into layer sequences: Algorithms 1 and 2 of the DLBricks paper (Li et al., 2019)."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from costmodel.cutter import Cutter, Window
from costmodel.graph import LayerGraph
from costmodel.groups import read_bytes
from costmodel.sequence import LayerSequence, build_sequence

__all__ = [
    "CHEAPEST",
    "COVERS",
    "FIXED",
    "CorpusStatistics",
    "Decomposition",
    "Piece",
    "corpus_statistics",
    "decompose",
    "decomposition_of",
    "fixed_cut",
    "jaccard",
    "whole_model",
]

FIXED, CHEAPEST = "fixed", "cheapest"
COVERS = (FIXED, CHEAPEST)


@dataclass(frozen=True, slots=True)
class Piece:
    """One sequence at its place in a model.

    Attributes:
        sequence: What runs.
        layers: Names of its layers, as in the graph.
        needs: Positions, in the decomposition, of the pieces whose results it reads.
    """

    sequence: LayerSequence
    layers: tuple[str, ...]
    needs: tuple[int, ...]


@dataclass(frozen=True)
class Decomposition:
    """A model as non-overlapping sequences in execution order.

    Attributes:
        model: Name of the model.
        granularity: The most layers that a sequence has, unless they can only run together.
        pieces: Together they hold every layer of the model exactly once.
        cover: How they were chosen: "fixed", as `decompose` cuts, or "cheapest", as `costmodel.cover` does.
    """

    model: str
    granularity: int
    pieces: tuple[Piece, ...]
    cover: str = FIXED

    @cached_property
    def unique(self) -> dict[str, LayerSequence]:
        """Each distinct sequence once, by signature, in order of first appearance."""
        return {piece.sequence.signature: piece.sequence for piece in self.pieces}

    @cached_property
    def counts(self) -> Counter[str]:
        """How often each signature appears."""
        return Counter(piece.sequence.signature for piece in self.pieces)

    @cached_property
    def read_bytes(self) -> int:
        """Bytes of weights that a run of the model reads: its footprint."""
        return sum(count * read_bytes(self.unique[signature]) for signature, count in self.counts.items())

    @property
    def unique_share(self) -> float:
        """Distinct sequences over all sequences; the paper's figure 5."""
        return len(self.unique) / len(self.pieces)


def decompose(model: str, graph: LayerGraph, granularity: int = 1) -> Decomposition:
    """Cut a graph into runnable sequences of at most `granularity` layers, at fixed places.

    Args:
        model: Name, for the result.
        graph: Layers in execution order.
        granularity: G, at least 1.
    """
    cutter = Cutter(graph)
    return decomposition_of(model, granularity, cutter, fixed_cut(cutter, granularity))


def fixed_cut(cutter: Cutter, granularity: int) -> list[Window]:
    """Where the paper cuts.

    Algorithm 1: from the first layer that is not covered, take the next G layers in execution order, split them
    into runnable sequences, go on behind them. Algorithm 2: a slice that is not runnable becomes its first layer
    alone and, by the same rule, the rest. Layers that can only run together count as one that is as long as they
    are, and may so be more than G.

    Args:
        cutter: Of the model.
        granularity: G, at least 1.
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
    """A model cut into windows.

    Args:
        model: Name, for the result.
        granularity: The most layers that a window may have.
        cutter: Of the model.
        windows: In execution order, each unit in exactly one of them.
        cover: How they were chosen, one of `COVERS`.
    """
    owner = {unit: piece for piece, window in enumerate(windows) for unit in range(*window)}
    pieces = tuple(
        Piece(
            sequence=cutter.sequence(window),
            layers=tuple(layer.name for layer in cutter.layers(window)),
            needs=tuple(sorted({owner[unit] for unit in cutter.read_units(window)} - {piece})),
        )
        for piece, window in enumerate(windows)
    )
    return Decomposition(model, granularity, pieces, cover)


def whole_model(graph: LayerGraph) -> LayerSequence:
    """The model as one sequence: its signature is the identity of the whole graph of layers."""
    return build_sequence(graph.layers, graph.types, graph.constants, graph.outputs)


@dataclass(frozen=True, slots=True)
class CorpusStatistics:
    """What deduplication buys over several models.

    Attributes:
        total: Sequences in all models.
        unique: Distinct sequences among them.
        unique_share: unique / total.
        repeats_by_kind: For each kind of sequence, how many occurrences beyond the first there are.
    """

    total: int
    unique: int
    unique_share: float
    repeats_by_kind: Mapping[str, int]


def corpus_statistics(decompositions: Iterable[Decomposition]) -> CorpusStatistics:
    """Statistics over at least one decomposition; the paper's figures 5 and 6."""
    counts: Counter[str] = Counter()
    kinds: dict[str, str] = {}
    for decomposition in decompositions:
        counts.update(decomposition.counts)
        kinds.update({signature: sequence.kind for signature, sequence in decomposition.unique.items()})
    repeats: Counter[str] = Counter()
    for signature, count in counts.items():
        repeats[kinds[signature]] += count - 1
    total = sum(counts.values())
    by_kind = {kind: count for kind, count in repeats.most_common() if count}
    return CorpusStatistics(total, len(counts), len(counts) / total, by_kind)


def jaccard(one: Decomposition, other: Decomposition) -> float:
    """Similarity of two models on their sets of signatures; the paper's figure 7."""
    first, second = set(one.unique), set(other.unique)
    return len(first & second) / len(first | second)
