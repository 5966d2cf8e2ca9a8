"""Tabular encoding: one row of numbers for each layer of a sequence on a system.

The cost of a sequence is the sum of what a regressor says of its layers, so that one trained on single layers answers
for chains of any length (docs/adr/0006).
"""

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, product

import numpy as np

from costmodel.errors import ModelError
from costmodel.features.bound import layer_bound_us
from costmodel.features.row import footprint_features, layer_numbers
from costmodel.features.schema import GROUPS, OPERATORS, SCHEMA
from costmodel.features.work import layer_work
from costmodel.recent import Recent
from costmodel.sequence import LayerSequence
from costmodel.systems import System

__all__ = ["Encoded", "Encoder", "encode_all"]

_OPERATOR_COLUMN = {name: column for column, name in enumerate(OPERATORS)}
_NUMBERS = len(SCHEMA.names) - len(GROUPS["operator"])
_FOOTPRINT = tuple(SCHEMA.names.index(name) for name in GROUPS["footprint"])
_MOST_REMEMBERED = 100_000  # layers; each takes about 0.5 kB
_MOST_EDGES = 1_000_000  # between sequences; a model of 20,000 layers, each a sequence, has about as many as layers


@dataclass(frozen=True)
class Encoded:
    """Sequences as rows of features, one for each layer, those of a sequence together.

    Attributes:
        features: float32, shape [num_layers, num_features], columns as in `SCHEMA`.
        bounds_us: Analytical bounds of the layers, shape [num_layers].
        starts: First row of each sequence, and the number of rows at the end; shape [num_sequences + 1].
        edges: Rows of a layer that makes a tensor and of one that reads it, each pair once; shape [2, num_edges].
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
        """Layers of each sequence, shape [num_sequences]."""
        return np.diff(self.starts)

    def totals(self, of_layers: np.ndarray) -> np.ndarray:
        """Sums over the layers of each sequence, shape [num_sequences]."""
        return np.add.reduceat(of_layers, self.starts[:-1]) if len(self) else np.zeros(0)

    def take(self, sequences: np.ndarray) -> "Encoded":
        """Some of the sequences, by position or as a mask."""
        chosen = np.flatnonzero(sequences) if sequences.dtype == bool else sequences
        lengths = self.lengths[chosen]
        starts = _starts(lengths)
        layers = np.arange(starts[-1]) + np.repeat(self.starts[chosen] - starts[:-1], lengths)
        place = np.full(len(self.bounds_us), -1)
        place[layers] = np.arange(len(layers))
        edges = place[self.edges]
        return Encoded(self.features[layers], self.bounds_us[layers], starts, edges[:, (edges >= 0).all(axis=0)])


class Encoder:
    """Encodes sequences on one system; what they are by themselves, wherever they run, it works out once.

    Threads may share it.
    """

    def __init__(self, system: System, most: int = _MOST_REMEMBERED) -> None:
        """Of a system.

        Args:
            system: Where the sequences would run.
            most: Layers to remember.
        """
        self.system = system
        self._recent: Recent[str, _Rows] = Recent(most, _Rows.__len__)

    def encode(
        self,
        sequences: Iterable[LayerSequence],
        footprints: Iterable[float] | None = None,
        needs: Iterable[Iterable[int]] = (),
    ) -> Encoded:
        """As `encode_all`."""
        sequences = list(sequences)
        return _assembled(sequences, list(map(self._rows_of, sequences)), self.system, footprints, needs)

    def _rows_of(self, sequence: LayerSequence) -> "_Rows":
        rows = self._recent.get(sequence.signature)
        if rows is None:
            rows = _Rows.of(sequence, self.system)
            self._recent.put(sequence.signature, rows)
        return rows


def encode_all(
    sequences: Iterable[LayerSequence],
    system: System,
    footprints: Iterable[float] | None = None,
    needs: Iterable[Iterable[int]] = (),
) -> Encoded:
    """The layers of sequences as features, and their bounds.

    Args:
        sequences: What to encode.
        system: Where it would run.
        footprints: For each sequence, the bytes of weights that the model reads which it is part of: they decide from
            which cache its own come. None, or fewer than its own: it is taken for the model.
        needs: For each sequence, positions of those whose results it reads, where they are pieces of one model: there
            are edges between them then. Which of several results it is that a layer reads is not known: it is all.

    Raises:
        ModelError: There would be more edges between sequences than can be worked with.
    """
    sequences = list(sequences)
    return _assembled(sequences, [_Rows.of(sequence, system) for sequence in sequences], system, footprints, needs)


@dataclass(frozen=True, slots=True)
class _Rows:
    """What a sequence is by itself, on one system; the footprint around it is added where it is used.

    Attributes:
        numbers: The columns before those of operators, float32 [num_layers, _NUMBERS], as bytes, which are joined in no
            time; 0 where the footprint goes.
        operators: Column of the operator of each layer, among those of operators.
        bounds_us: Of each layer.
        weight_bytes: Of all layers.
        edges: Between its layers.
    """

    numbers: bytes
    operators: tuple[int, ...]
    bounds_us: tuple[float, ...]
    weight_bytes: int
    edges: tuple[tuple[int, int], ...]

    def __len__(self) -> int:
        return len(self.operators)

    @classmethod
    def of(cls, sequence: LayerSequence, system: System) -> "_Rows":
        works = [layer_work(sequence, layer) for layer in sequence.layers]
        bounds = [layer_bound_us(work, system) for work in works]
        numbers = array("f")
        for layer, work, bound in zip(sequence.layers, works, bounds, strict=True):
            numbers.extend(layer_numbers(sequence, layer, work, bound, system))
        return cls(
            numbers=numbers.tobytes(),
            operators=tuple(_OPERATOR_COLUMN.get(layer.op_type, len(OPERATORS)) for layer in sequence.layers),
            bounds_us=tuple(bounds),
            weight_bytes=sum(work.weight_bytes for work in works),
            edges=tuple(_edges(sequence)) if len(works) > 1 else (),
        )


def _assembled(
    sequences: Sequence[LayerSequence],
    parts: Sequence[_Rows],
    system: System,
    footprints: Iterable[float] | None,
    needs: Iterable[Iterable[int]],
) -> Encoded:
    starts = _starts([len(part) for part in parts])
    layers = int(starts[-1])
    features = np.zeros((layers, len(SCHEMA.names)), dtype=np.float32)
    features[:, :_NUMBERS] = np.frombuffer(b"".join([part.numbers for part in parts]), np.float32).reshape(-1, _NUMBERS)
    operators = np.fromiter(chain.from_iterable(part.operators for part in parts), np.int64, layers)
    features[np.arange(layers), _NUMBERS + operators] = 1.0
    weights = np.array([part.weight_bytes for part in parts], dtype=np.float64)
    around = np.zeros(len(parts)) if footprints is None else np.fromiter(footprints, np.float64, len(parts))
    for column, values in zip(_FOOTPRINT, footprint_features(np.maximum(around, weights), system), strict=True):
        features[:, column] = np.repeat(values, np.diff(starts))
    edges = [
        (start + one, start + other)
        for start, part in zip(starts.tolist(), parts, strict=False)
        if part.edges
        for one, other in part.edges
    ]
    edges += _edges_between(sequences, needs, starts.tolist())
    return Encoded(
        features=features,
        bounds_us=np.fromiter(chain.from_iterable(part.bounds_us for part in parts), np.float64, layers),
        starts=starts,
        edges=np.array(edges, dtype=np.int64).reshape(-1, 2).T,
    )


def _starts(lengths: Sequence[int] | np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def _edges(sequence: LayerSequence) -> Iterable[tuple[int, int]]:
    maker = {index: place for place, layer in enumerate(sequence.layers) for index in layer.outputs if index >= 0}
    for place, layer in enumerate(sequence.layers):
        for one in dict.fromkeys(maker[index] for index in layer.inputs if index in maker):
            yield one, place


def _edges_between(
    sequences: Sequence[LayerSequence], needs: Iterable[Iterable[int]], starts: Sequence[int]
) -> list[tuple[int, int]]:
    """Edges from every layer whose result leaves a sequence to every layer that reads from outside, where one needs it.

    Raises:
        ModelError: There are more of them than an encoding may have: long sequences that read each other in full.
    """
    edges: list[tuple[int, int]] = []
    leaving: dict[int, list[int]] = {}
    for place, read in enumerate(needs):
        sequence = sequences[place]
        arriving = {index for index, value in enumerate(sequence.values) if value.role == "input"}
        readers = [
            starts[place] + row for row, layer in enumerate(sequence.layers) if arriving.intersection(layer.inputs)
        ]
        for needed in read:
            if needed not in leaving:
                leaving[needed] = [starts[needed] + row for row in _rows_that_leave(sequences[needed])]
            if len(edges) + len(leaving[needed]) * len(readers) > _MOST_EDGES:
                raise ModelError(
                    f"the sequences exchange more than {_MOST_EDGES} values between their layers: ask for a smaller "
                    "granularity"
                )
            edges.extend(product(leaving[needed], readers))
    return edges


def _rows_that_leave(sequence: LayerSequence) -> list[int]:
    """Layers of a sequence that make one of its outputs."""
    outputs = set(sequence.outputs)
    return [row for row, layer in enumerate(sequence.layers) if outputs.intersection(layer.outputs)]
