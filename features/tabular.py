"""Tabular encoding: one row of numbers for a sequence on a system.

Sizes are logarithms, because costs span six orders of magnitude. Shapes are those of the layer with the largest
bound, the one that decides; amounts of work are sums over the sequence. An operator's column holds its share of
the bound, so that a single layer has a plain one-hot code and a longer sequence a mixture.
"""

import math
from collections.abc import Iterable, Sequence

import numpy as np

from costmodel.features.bound import layer_bound_us
from costmodel.features.schema import OPERATORS, SCHEMA
from costmodel.features.work import Work, layer_work
from costmodel.graph import ITEM_BYTES, TensorType
from costmodel.sequence import LayerSequence, SequenceLayer
from costmodel.systems import System

__all__ = ["encode", "encode_all"]

_OPERATOR_COLUMN = {name: column for column, name in enumerate(OPERATORS)}
_LANES = 16  # float32 numbers in the widest vector, and channels in the widest block


def encode_all(sequences: Iterable[LayerSequence], system: System) -> tuple[np.ndarray, np.ndarray]:
    """Feature matrix and bounds.

    Returns:
        Features, float32, shape [num_sequences, num_features]; bounds in microseconds, float64,
        shape [num_sequences].
    """
    rows = [encode(sequence, system) for sequence in sequences]
    features = np.array([row for row, _ in rows], dtype=np.float32).reshape(len(rows), len(SCHEMA.names))
    return features, np.array([bound for _, bound in rows], dtype=np.float64)


def encode(sequence: LayerSequence, system: System) -> tuple[list[float], float]:
    """The features of one sequence in the order of `SCHEMA`, and its bound in microseconds."""
    works = [layer_work(sequence, layer) for layer in sequence.layers]
    bounds = [layer_bound_us(work, system) for work in works]
    bound = sum(bounds)
    main = max(range(len(bounds)), key=bounds.__getitem__)
    shares = [0.0] * (len(OPERATORS) + 1)
    total = sum(bounds)
    for layer, layer_bound in zip(sequence.layers, bounds, strict=True):
        share = layer_bound / total if total > 0 else 1 / len(bounds)
        shares[_OPERATOR_COLUMN.get(layer.op_type, len(OPERATORS))] += share
    row = [
        *_work_features(works, bounds, bound, system),
        *_shape_features(sequence, sequence.layers[main], works[main]),
        *_system_features(works, system),
        *shares,
    ]
    return row, bound


def _work_features(works: Sequence[Work], bounds: Sequence[float], bound: float, system: System) -> list[float]:
    multiply = sum(w.multiply_flops for w in works)
    other = sum(w.other_flops for w in works)
    moved = sum(w.moved_bytes for w in works)
    memory_us = moved / (system.capabilities["memory_gbps"] * 1e3)
    return [
        math.log(bound),
        math.log1p(multiply),
        math.log1p(other),
        math.log1p(sum(w.scalar_calls for w in works)),
        math.log1p(sum(w.input_bytes for w in works)),
        math.log1p(sum(w.weight_bytes for w in works)),
        math.log1p(sum(w.output_bytes for w in works)),
        math.log1p(moved),
        math.log1p((multiply + other) / max(1, moved)),
        min(1.0, memory_us / max(1e-9, sum(bounds))),
        float(len(works)),
        math.log1p(max(bounds)),
    ]


def _shape_features(sequence: LayerSequence, layer: SequenceLayer, work: Work) -> list[float]:
    inputs = [sequence.values[i].type for i in layer.inputs if i >= 0]
    data = inputs[0] if inputs else TensorType("float32", (1,))
    made = sequence.values[next(i for i in layer.outputs if i >= 0)].type
    contraction = work.contraction
    batch, rows, columns, depth = (
        (contraction.batch, contraction.rows, contraction.columns, contraction.depth) if contraction else (1, 1, 1, 1)
    )
    attributes = layer.attributes
    kernel = attributes.get("kernel_shape", {}).get("ints", [1])
    strides = attributes.get("strides", {}).get("ints", [1])
    dilations = attributes.get("dilations", {}).get("ints", [1])
    pads = attributes.get("pads", {}).get("ints", [0])
    group = attributes.get("group", {"i": 1})["i"]
    in_channels = data.shape[1] if len(data.shape) > 1 else 1
    return [
        math.log(max(1, batch)),
        math.log(max(1, rows)),
        math.log(max(1, columns)),
        math.log(max(1, depth)),
        -columns % _LANES / _LANES,
        -depth % _LANES / _LANES,
        float(len(data.shape)),
        math.log(max(1, in_channels)),
        math.log(max(1, made.shape[1] if len(made.shape) > 1 else 1)),
        math.log(max(1, math.prod(data.shape[2:]))),
        math.log(max(1, math.prod(made.shape[2:]))),
        math.log(max(1, data.shape[-1] if data.shape else 1)),
        float(math.prod(kernel)),
        float(kernel[-1]),
        float(strides[-1]),
        float(dilations[-1]),
        float(sum(pads)),
        math.log(max(1, group)),
        float(group > 1 and group == in_channels),
        float(len(inputs)),
        float(ITEM_BYTES.get(data.dtype, 0)),
        float(data.blocked or made.blocked),
        float("activation" in attributes),
        float(layer.op_type in ("Conv", "FusedConv") and len(layer.inputs) > 3),
        *_layout_features(layer, data),
    ]


def _layout_features(layer: SequenceLayer, data: TensorType) -> list[float]:
    """Whether the last axis stays last, and the elements that stay together: what copying is made of."""
    rank = len(data.shape)
    if layer.op_type == "Transpose" and rank:
        order = layer.attributes.get("perm", {}).get("ints", list(range(rank))[::-1])
        kept = rank
        while kept and order[kept - 1] == kept - 1:
            kept -= 1
        return [float(order[-1] == rank - 1), math.log(max(1, math.prod(data.shape[kept:])))]
    axis = layer.attributes.get("axis", {}).get("i")
    if axis is None or not rank:
        return [1.0, math.log(max(1, data.elements))]
    axis %= rank
    return [float(axis != rank - 1), math.log(max(1, math.prod(data.shape[axis:])))]


def _system_features(works: Sequence[Work], system: System) -> list[float]:
    assert system.host is not None
    working_set = max(w.moved_bytes for w in works)
    weights = max(w.weight_bytes for w in works)
    threads = system.settings.threads
    outputs = max(w.output_bytes for w in works)

    def over(amount: float, cache_bytes: int) -> float:
        return math.log((amount + 1) / cache_bytes) if cache_bytes else 0.0

    return [
        float(threads),
        math.log(system.capabilities["gemm_gflops"]),
        math.log(system.capabilities["memory_gbps"]),
        system.capabilities["layer_us"],
        float(system.host.vector_bits),
        over(working_set, system.host.l1d_bytes),
        over(working_set, system.host.l2_bytes),
        over(working_set, system.host.l3_bytes),
        over(weights, system.host.l2_bytes),
        math.log1p(outputs / threads),
    ]
