"""Tabular encoding: one row of numbers for each layer of a sequence on a system.

A regressor predicts a cost for each layer, and the cost of a sequence is their sum, so that a regressor trained on
single layers also predicts chains of any length (docs/adr/0006).
"""

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, product

import numpy as np

from costmodel.bounded_cache import BoundedCache
from costmodel.errors import ModelError
from costmodel.features.analytical_bound import layer_bound_us
from costmodel.features.fused import operator_of
from costmodel.features.row import footprint_features, layer_features
from costmodel.features.schema import FEATURE_GROUPS, OPERATORS, SCHEMA
from costmodel.features.work import layer_work
from costmodel.ir.footprint import activation_bytes
from costmodel.ir.sequence import LayerSequence
from costmodel.systems.system import System

__all__ = ["Encoded", "Encoder", "concatenated", "encode_all"]

_OPERATOR_COLUMN = {name: column for column, name in enumerate(OPERATORS)}
_NUMBERS = len(SCHEMA.names) - len(FEATURE_GROUPS["operator"])
_FOOTPRINT = tuple(SCHEMA.names.index(name) for name in FEATURE_GROUPS["footprint"])
_MAX_CACHED_LAYERS = 100_000  # each takes about 0.5 kB
# Limit on edges between layers of different sequences. A model of 20,000 layers, each a sequence of its own, has about
# 20,000 edges.
_MAX_EDGES = 1_000_000


@dataclass(frozen=True)
class Encoded:
    """Sequences as rows of features: one row for each layer, the rows of a sequence contiguous.

    Attributes:
        features: float32, shape [num_layers, num_features], columns as in `SCHEMA`.
        bounds_us: Analytical bound of each layer in microseconds, shape [num_layers].
        starts: First row of each sequence, followed by the total number of rows; shape [num_sequences + 1].
        edges: Row of a layer that makes a tensor, and row of a layer that reads the tensor, for each such pair of
            layers once; shape [2, num_edges].
    """

    features: np.ndarray
    bounds_us: np.ndarray
    starts: np.ndarray
    edges: np.ndarray

    def __len__(self) -> int:
        """Number of sequences."""
        return len(self.starts) - 1

    @property
    def lengths(self) -> np.ndarray:
        """Number of layers of each sequence, shape [num_sequences]."""
        return np.diff(self.starts)

    def totals(self, of_layers: np.ndarray) -> np.ndarray:
        """Returns the sums of values given by layer, shape [num_layers], over each sequence, shape [num_sequences]."""
        return np.add.reduceat(of_layers, self.starts[:-1]) if len(self) else np.zeros(0)

    def take(self, sequences: np.ndarray) -> "Encoded":
        """Returns some of the sequences, selected by position or by a mask, with the edges between their layers."""
        chosen = np.flatnonzero(sequences) if sequences.dtype == bool else sequences
        lengths = self.lengths[chosen]
        starts = _starts(lengths)
        layers = np.arange(starts[-1]) + np.repeat(self.starts[chosen] - starts[:-1], lengths)
        position = np.full(len(self.bounds_us), -1)
        position[layers] = np.arange(len(layers))
        edges = position[self.edges]
        return Encoded(self.features[layers], self.bounds_us[layers], starts, edges[:, (edges >= 0).all(axis=0)])


def concatenated(parts: Sequence[Encoded]) -> Encoded:
    """Returns the sequences of several encodings, at least one, in their order."""
    first_rows = np.cumsum([0, *(len(part.bounds_us) for part in parts[:-1])])
    return Encoded(
        features=np.concatenate([part.features for part in parts]),
        bounds_us=np.concatenate([part.bounds_us for part in parts]),
        starts=_starts(np.concatenate([part.lengths for part in parts])),
        edges=np.concatenate([part.edges + row for part, row in zip(parts, first_rows, strict=True)], axis=1),
    )


class Encoder:
    """An encoder of sequences for one system, with a cache of the features that do not depend on a sequence's model.

    Instances are thread-safe.
    """

    def __init__(self, system: System, most: int = _MAX_CACHED_LAYERS) -> None:
        """Creates an encoder for a system.

        Args:
            system: System that the sequences would run on.
            most: Maximum number of layers whose features are cached.
        """
        self.system = system
        self._recent: BoundedCache[str, _Rows] = BoundedCache(most, _Rows.__len__)

    def encode(
        self,
        sequences: Iterable[LayerSequence],
        footprints: Iterable[Iterable[float]] | None = None,
        predecessors: Iterable[Iterable[int]] = (),
    ) -> Encoded:
        """Encodes sequences as `encode_all` does, for the encoder's system, with edges between the segments of a model.

        Args:
            sequences: Sequences to encode.
            footprints: For each sequence, the footprint of its model; see `encode_all`.
            predecessors: If the sequences are the segments of one model: for each, the positions of the sequences whose
                outputs it reads. Edges then also connect layers of different sequences. Which layer reads which output
                is not known, so each layer that reads an input of its sequence is connected to each layer that makes an
                output of a predecessor.

        Raises:
            ModelError: There would be more than 1,000,000 edges between layers of different sequences.
        """
        sequences = list(sequences)
        return _assemble(sequences, list(map(self._rows_of, sequences)), self.system, footprints, predecessors)

    def _rows_of(self, sequence: LayerSequence) -> "_Rows":
        rows = self._recent.get(sequence.signature)
        if rows is None:
            rows = _Rows.of(sequence, self.system)
            self._recent.put(sequence.signature, rows)
        return rows


def encode_all(
    sequences: Iterable[LayerSequence], system: System, footprints: Iterable[Iterable[float]] | None = None
) -> Encoded:
    """Encodes the layers of sequences as features, with their analytical bounds and the edges between them.

    Args:
        sequences: Sequences to encode.
        system: System that the sequences would run on.
        footprints: For each sequence, the `Footprint` of its model, which determines what the sequence finds in the
            caches. If there are no footprints, each sequence is taken to be the whole model.
    """
    sequences = list(sequences)
    return _assemble(sequences, [_Rows.of(sequence, system) for sequence in sequences], system, footprints, ())


@dataclass(frozen=True, slots=True)
class _Rows:
    """The part of the encoding of one sequence on one system that does not depend on the model around it.

    Attributes:
        numbers: Features before the operator columns, float32 of shape [num_layers, _NUMBERS], as bytes, which are fast
            to join; the footprint columns are 0.
        operators: Index of each layer's operator among the operator columns.
        bounds_us: Analytical bound of each layer in microseconds.
        footprint: Bytes of weights and of activations that all layers together read and write.
        edges: Pairs of positions of layers in the sequence: one that makes a tensor, and one that reads it.
    """

    numbers: bytes
    operators: tuple[int, ...]
    bounds_us: tuple[float, ...]
    footprint: tuple[float, float]
    edges: tuple[tuple[int, int], ...]

    def __len__(self) -> int:
        return len(self.operators)

    @classmethod
    def of(cls, sequence: LayerSequence, system: System) -> "_Rows":
        works = [layer_work(sequence, layer) for layer in sequence.layers]
        bounds = [layer_bound_us(work, system) for work in works]
        numbers = array("f")
        for layer, work, bound in zip(sequence.layers, works, bounds, strict=True):
            numbers.extend(layer_features(sequence, layer, work, bound, system))
        return cls(
            numbers=numbers.tobytes(),
            operators=tuple(_OPERATOR_COLUMN.get(operator_of(layer), len(OPERATORS)) for layer in sequence.layers),
            bounds_us=tuple(bounds),
            footprint=(sum(work.weight_bytes for work in works), activation_bytes(sequence)),
            edges=tuple(_edges(sequence)) if len(works) > 1 else (),
        )


def _assemble(
    sequences: Sequence[LayerSequence],
    parts: Sequence[_Rows],
    system: System,
    footprints: Iterable[Iterable[float]] | None,
    predecessors: Iterable[Iterable[int]],
) -> Encoded:
    starts = _starts([len(part) for part in parts])
    layers = int(starts[-1])
    features = np.zeros((layers, len(SCHEMA.names)), dtype=np.float32)
    features[:, :_NUMBERS] = np.frombuffer(b"".join([part.numbers for part in parts]), np.float32).reshape(-1, _NUMBERS)
    operators = np.fromiter(chain.from_iterable(part.operators for part in parts), np.int64, layers)
    features[np.arange(layers), _NUMBERS + operators] = 1.0
    around = [part.footprint for part in parts] if footprints is None else list(footprints)
    for column, values in zip(
        _FOOTPRINT, footprint_features(np.array(around, dtype=np.float64).reshape(-1, 2), system), strict=True
    ):
        features[:, column] = np.repeat(values, np.diff(starts))
    edges = [
        (start + one, start + other)
        for start, part in zip(starts.tolist(), parts, strict=False)
        if part.edges
        for one, other in part.edges
    ]
    edges += _edges_between(sequences, predecessors, starts.tolist())
    return Encoded(
        features=features,
        bounds_us=np.fromiter(chain.from_iterable(part.bounds_us for part in parts), np.float64, layers),
        starts=starts,
        edges=np.array(edges, dtype=np.int64).reshape(-1, 2).T,
    )


def _starts(lengths: Sequence[int] | np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def _edges(sequence: LayerSequence) -> Iterable[tuple[int, int]]:
    maker = {index: position for position, layer in enumerate(sequence.layers) for index in layer.outputs if index >= 0}
    for position, layer in enumerate(sequence.layers):
        for one in dict.fromkeys(maker[index] for index in layer.inputs if index in maker):
            yield one, position


def _edges_between(
    sequences: Sequence[LayerSequence], predecessors: Iterable[Iterable[int]], starts: Sequence[int]
) -> list[tuple[int, int]]:
    """Returns edges between layers of different sequences, as pairs of rows.

    Between a sequence and one that reads its outputs, each layer that makes an output of the first is connected to
    each layer that reads an input of the second.

    Args:
        sequences: The segments of one model.
        predecessors: For each sequence, the positions of the sequences whose outputs it reads.
        starts: First row of each sequence.

    Raises:
        ModelError: There would be more than `_MAX_EDGES` edges, as between long sequences with many inputs and outputs.
    """
    edges: list[tuple[int, int]] = []
    output_rows: dict[int, list[int]] = {}
    for position, read in enumerate(predecessors):
        sequence = sequences[position]
        inputs = {index for index, value in enumerate(sequence.values) if value.role == "input"}
        readers = [
            starts[position] + row for row, layer in enumerate(sequence.layers) if inputs.intersection(layer.inputs)
        ]
        for predecessor in read:
            if predecessor not in output_rows:
                output_rows[predecessor] = [starts[predecessor] + row for row in _output_rows(sequences[predecessor])]
            if len(edges) + len(output_rows[predecessor]) * len(readers) > _MAX_EDGES:
                raise ModelError(
                    f"the sequences exchange more than {_MAX_EDGES} values between their layers: ask for a smaller "
                    "granularity"
                )
            edges.extend(product(output_rows[predecessor], readers))
    return edges


def _output_rows(sequence: LayerSequence) -> list[int]:
    """Returns the positions, in a sequence, of the layers that make its outputs."""
    outputs = set(sequence.outputs)
    return [row for row, layer in enumerate(sequence.layers) if outputs.intersection(layer.outputs)]
