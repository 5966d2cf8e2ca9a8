"""Tabular encoding: one row of numbers for each layer of a sequence on a system.

Sizes are logarithms, because costs span six orders of magnitude. The cost of a sequence is the sum of what a regressor
says of its layers, so that one trained on single layers answers for chains of any length (docs/adr/0006).
"""

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from costmodel.features.bound import layer_bound_us
from costmodel.features.layout import walk_of
from costmodel.features.schema import OPERATORS, SCHEMA
from costmodel.features.work import Work, layer_work, window_area
from costmodel.graph import ITEM_BYTES, TensorType
from costmodel.sequence import LayerSequence, SequenceLayer
from costmodel.systems import System

__all__ = ["Encoded", "encode_all", "encode_sequence"]

_OPERATOR_COLUMN = {name: column for column, name in enumerate(OPERATORS)}
# Rows of a matrix product, and positions along a row of an image, that the kernels of ONNX Runtime's MLAS compute at
# once; what is left over costs as much as a whole tile.
_PRODUCT_TILE = 12
_IMAGE_TILE = 6
_VECTORS_IN_TILE = 4
# Activations that are fused into a layer, the cheap ones first; none is 0, what is not listed is as dear as the last.
_ACTIVATIONS = {
    name: float(place)
    for place, name in enumerate(("", "Relu", "LeakyRelu", "Clip", "HardSigmoid", "HardSwish", "Sigmoid", "Tanh"))
}
_USUAL_L3_BYTES = 32 << 20
_CACHES = 2  # weights that fill the last cache this often come from memory, all of them


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
    """
    sequences = list(sequences)
    around = itertools.repeat(0.0) if footprints is None else footprints
    starts = _starts([len(sequence.layers) for sequence in sequences])
    rows = [
        row
        for sequence, footprint in zip(sequences, around, strict=False)
        for row in encode_sequence(sequence, system, footprint)
    ]
    edges = [
        (start + one, start + other)
        for start, sequence in zip(starts.tolist(), sequences, strict=False)
        for one, other in _edges(sequence)
    ]
    edges += _edges_between(sequences, needs, starts.tolist())
    return Encoded(
        features=np.array([row for row, _ in rows], dtype=np.float32).reshape(len(rows), len(SCHEMA.names)),
        bounds_us=np.array([bound for _, bound in rows], dtype=np.float64),
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
) -> Iterable[tuple[int, int]]:
    for place, read in enumerate(needs):
        sequence = sequences[place]
        arriving = {index for index, value in enumerate(sequence.values) if value.role == "input"}
        readers = [
            starts[place] + row for row, layer in enumerate(sequence.layers) if arriving.intersection(layer.inputs)
        ]
        for needed in read:
            leaving = set(sequences[needed].outputs)
            for row, layer in enumerate(sequences[needed].layers):
                if leaving.intersection(layer.outputs):
                    yield from ((starts[needed] + row, reader) for reader in readers)


def encode_sequence(sequence: LayerSequence, system: System, footprint: float = 0.0) -> list[tuple[list[float], float]]:
    """For each layer its features in the order of `SCHEMA`, and its bound in microseconds.

    Args:
        sequence: What to encode.
        system: Where it would run.
        footprint: Bytes of weights that the whole model reads; at least those of the sequence are taken.
    """
    works = [layer_work(sequence, layer) for layer in sequence.layers]
    footprint = max(footprint, sum(work.weight_bytes for work in works))
    return [
        _encode_layer(sequence, layer, work, system, footprint)
        for layer, work in zip(sequence.layers, works, strict=True)
    ]


def _encode_layer(
    sequence: LayerSequence, layer: SequenceLayer, work: Work, system: System, footprint: float
) -> tuple[list[float], float]:
    assert system.host is not None
    bound = layer_bound_us(work, system)
    operator = [0.0] * (len(OPERATORS) + 1)
    operator[_OPERATOR_COLUMN.get(layer.op_type, len(OPERATORS))] = 1.0
    row = [
        *_work_features(work, bound, system),
        *_shape_features(sequence, layer, work, max(4, system.host.vector_bits // 32)),
        *_window_features(sequence, layer),
        *_layout_features(sequence, layer, work),
        *_system_features(work, system, footprint),
        *operator,
    ]
    return row, bound


def _work_features(work: Work, bound: float, system: System) -> list[float]:
    memory_us = work.moved_bytes / (system.capabilities["memory_gbps"] * 1e3)
    return [
        math.log(bound),
        math.log1p(work.multiply_flops),
        math.log1p(work.other_flops),
        math.log1p(work.scalar_calls),
        math.log1p(work.input_bytes),
        math.log1p(work.weight_bytes),
        math.log1p(work.output_bytes),
        math.log1p(work.moved_bytes),
        math.log1p(work.flops / max(1, work.moved_bytes)),
        min(1.0, memory_us / bound),
    ]


def _shape_features(sequence: LayerSequence, layer: SequenceLayer, work: Work, lanes: int) -> list[float]:
    data, made = _ends(sequence, layer)
    product = work.contraction
    batch, rows, columns, depth = (product.batch, product.rows, product.columns, product.depth) if product else [1] * 4
    width = made.shape[-1] if made.shape else 1
    return [
        _log(batch),
        _log(rows),
        _log(columns),
        _log(depth),
        _waste(rows, _PRODUCT_TILE),
        _waste(columns, lanes),
        _waste(columns, lanes * _VECTORS_IN_TILE),
        _waste(depth, lanes),
        float(len(data.shape)),
        _log(data.shape[1] if len(data.shape) > 1 else 1),
        _log(made.shape[1] if len(made.shape) > 1 else 1),
        _log(math.prod(data.shape[2:])),
        _log(math.prod(made.shape[2:])),
        _log(width),
        _waste(width, _IMAGE_TILE),
        _log(data.shape[-1] if data.shape else 1),
        float(sum(i >= 0 for i in layer.inputs)),
        float(ITEM_BYTES.get(data.dtype, 0)),
        float("float" in data.dtype),
        float(data.blocked),
        float(made.blocked),
        float(layer.since),
    ]


def _window_features(sequence: LayerSequence, layer: SequenceLayer) -> list[float]:
    data, made = _ends(sequence, layer)
    attributes = layer.attributes
    kernel = attributes.get("kernel_shape", {}).get("ints", [1])
    strides = attributes.get("strides", {}).get("ints", [1])
    dilations = attributes.get("dilations", {}).get("ints", [1])
    pads = attributes.get("pads", {}).get("ints", [0])
    group = attributes.get("group", {"i": 1})["i"]
    in_channels = data.shape[1] if len(data.shape) > 1 else 1
    windowed = "kernel_shape" in attributes
    area = window_area(layer, data)
    wide = data.shape[-1] if data.shape else 1
    return [
        _log(area),
        float(min(kernel[-1], wide)),
        float(min(strides[-1], wide)),
        float(dilations[-1]),
        sum(pads) / max(1, sum(made.shape[2:])) if windowed else 0.0,
        _log(group),
        float(group > 1 and group == in_channels),
        float(windowed and area == 1 and math.prod(strides) == 1),
        _ACTIVATIONS.get(attributes.get("activation", {}).get("s", ""), max(_ACTIVATIONS.values())),
        float(layer.op_type in ("Conv", "FusedConv") and sum(i >= 0 for i in layer.inputs) > 3),
    ]


def _layout_features(sequence: LayerSequence, layer: SequenceLayer, work: Work) -> list[float]:
    data, made = _ends(sequence, layer)
    walk = walk_of(sequence, layer)
    return [
        float(walk.last_axis_kept),
        _log(walk.inner_run),
        _log(walk.axis_size),
        math.log(max(1e-9, walk.other_operand)),
        float(walk.other_operand_inner),
        float(work.weight_bytes > 0),
        walk.interpolation,
        math.log(max(1, made.elements) / max(1, data.elements)),
    ]


def _system_features(work: Work, system: System, footprint: float) -> list[float]:
    assert system.host is not None
    threads = system.settings.threads
    footprint = min(footprint, _CACHES * (system.host.l3_bytes or _USUAL_L3_BYTES))

    def over(amount: float, cache_bytes: int) -> float:
        return math.log((amount + 1) / cache_bytes) if cache_bytes else 0.0

    return [
        float(threads),
        math.log(system.capabilities["gemm_gflops"]),
        math.log(system.capabilities["memory_gbps"]),
        system.capabilities["layer_us"],
        float(system.host.vector_bits),
        over(work.moved_bytes, system.host.l1d_bytes),
        over(work.moved_bytes, system.host.l2_bytes),
        over(work.moved_bytes, system.host.l3_bytes),
        over(work.weight_bytes, system.host.l2_bytes),
        over(footprint, system.host.l2_bytes),
        over(footprint, system.host.l3_bytes),
        math.log1p(work.output_bytes / threads),
    ]


def _ends(sequence: LayerSequence, layer: SequenceLayer) -> tuple[TensorType, TensorType]:
    """The first tensor that a layer reads, and the first that it makes."""
    first = next((i for i in layer.inputs if i >= 0), None)
    data = TensorType("float32", (1,)) if first is None else sequence.values[first].type
    return data, sequence.values[next(i for i in layer.outputs if i >= 0)].type


def _log(size: int) -> float:
    return math.log(max(1, size))


def _waste(size: int, tile: int) -> float:
    """What filling up to whole tiles adds, as the logarithm of a factor."""
    return math.log(max(1, -(-size // tile)) * tile / max(1, size))
