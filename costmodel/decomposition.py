"""Decomposition of a model into layer sequences: Algorithms 1 and 2 of the DLBricks paper (Li et al., 2019)."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

from costmodel.graph import LayerGraph
from costmodel.inseparable import inseparable
from costmodel.particular import must_be_fed
from costmodel.sequence import LayerSequence, build_sequence

__all__ = [
    "CorpusStatistics",
    "Decomposition",
    "Piece",
    "corpus_statistics",
    "decompose",
    "jaccard",
    "whole_model",
]


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
    """

    model: str
    granularity: int
    pieces: tuple[Piece, ...]

    @cached_property
    def unique(self) -> dict[str, LayerSequence]:
        """Each distinct sequence once, by signature, in order of first appearance."""
        return {piece.sequence.signature: piece.sequence for piece in self.pieces}

    @cached_property
    def counts(self) -> Counter[str]:
        """How often each signature appears."""
        return Counter(piece.sequence.signature for piece in self.pieces)

    @property
    def unique_share(self) -> float:
        """Distinct sequences over all sequences; the paper's figure 5."""
        return len(self.unique) / len(self.pieces)


def decompose(model: str, graph: LayerGraph, granularity: int = 1) -> Decomposition:
    """Cut a graph into runnable sequences of at most `granularity` layers.

    Algorithm 1: from the first layer that is not covered, take the next G layers in execution order, split them
    into runnable sequences, go on behind them. Algorithm 2: a slice that is not runnable becomes its first layer
    alone and, by the same rule, the rest. Layers that can only run together count as one that is as long as they
    are, and may so be more than G.

    Args:
        model: Name, for the result.
        graph: Layers in execution order.
        granularity: G, at least 1.
    """
    if granularity < 1:
        raise ValueError(f"granularity must be at least 1, not {granularity}")
    units = inseparable(graph)
    graph = replace(graph, layers=tuple(layer for unit in units for layer in unit))
    cutter = _Cutter(graph)
    bounds: list[tuple[int, int]] = []
    for slice_ in _slices([len(unit) for unit in units], granularity):
        bounds.extend(cutter.split(slice_))
    owner = {position: piece for piece, (first, last) in enumerate(bounds) for position in range(first, last)}
    pieces = tuple(
        Piece(
            sequence=cutter.sequence(first, last),
            layers=tuple(layer.name for layer in graph.layers[first:last]),
            needs=tuple(sorted({owner[p] for p in cutter.producers(first, last)} - {piece})),
        )
        for piece, (first, last) in enumerate(bounds)
    )
    return Decomposition(model, granularity, pieces)


def whole_model(graph: LayerGraph) -> LayerSequence:
    """The model as one sequence: its signature is the identity of the whole graph of layers."""
    return _Cutter(graph).sequence(0, len(graph.layers))


def _slices(lengths: Sequence[int], granularity: int) -> Iterator[list[int]]:
    """Where the units of each slice begin, and where the last ends: as many as have `granularity` layers, or one."""
    starts = [0]
    for length in lengths:
        if len(starts) > 1 and starts[-1] + length - starts[0] > granularity:
            yield starts
            starts = starts[-1:]
        starts.append(starts[-1] + length)
    if len(starts) > 1:
        yield starts


class _Cutter:
    def __init__(self, graph: LayerGraph) -> None:
        self._graph = graph
        self._producer = {
            name: position for position, layer in enumerate(graph.layers) for name in layer.outputs if name
        }
        self._last_reader: dict[str, int] = {}
        for position, layer in enumerate(graph.layers):
            for name in layer.inputs:
                self._last_reader[name] = position
        for name in graph.outputs:
            self._last_reader[name] = len(graph.layers)

    def split(self, starts: Sequence[int]) -> list[tuple[int, int]]:
        """Algorithm 2, as a loop: its recursion would be as deep as the granularity is large.

        Args:
            starts: Where the units of the slice begin, and where the last ends.
        """
        bounds = []
        end = starts[-1]
        for begin, second in pairwise(starts):
            if self._is_chain(begin, second, end):
                bounds.append((begin, end))
                break
            bounds.append((begin, second))
        return bounds

    def _is_chain(self, begin: int, second: int, end: int) -> bool:
        """Whether every layer behind the first unit reads a layer of the slice, and none an index or a shape of one.

        A layer that reads none is the start of another branch: its data input is missing from the slice. An index
        or a shape that the slice computes from what it is fed would be any number; fed itself, it is made to fit.
        """
        for position in range(second, end):
            layer = self._graph.layers[position]
            made = [slot for slot, name in enumerate(layer.inputs) if begin <= self._producer.get(name, -1) < position]
            if not made or any(must_be_fed(layer.op_type, slot) for slot in made):
                return False
        return True

    def producers(self, begin: int, end: int) -> Iterable[int]:
        """Positions of the layers that make what the slice reads."""
        return (
            self._producer[name]
            for layer in self._graph.layers[begin:end]
            for name in layer.inputs
            if name in self._producer
        )

    def sequence(self, begin: int, end: int) -> LayerSequence:
        layers = self._graph.layers[begin:end]
        outside = [name for layer in layers for name in layer.outputs if self._last_reader.get(name, -1) >= end]
        return build_sequence(layers, self._graph.types, self._graph.constants, outside)


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
