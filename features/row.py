"""What one layer is on a system, in numbers: the columns of `SCHEMA` but for the operator's.

Sizes are logarithms, because costs span six orders of magnitude.
"""

import math
from collections.abc import Iterable

import numpy as np

from costmodel.features.layout import walk_of
from costmodel.features.work import Work, window_area
from costmodel.graph import ITEM_BYTES, TensorType
from costmodel.groups import cached_bytes
from costmodel.sequence import LayerSequence, SequenceLayer
from costmodel.systems import System

__all__ = ["footprint_features", "layer_numbers"]

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

_Ends = tuple[TensorType, TensorType]


def layer_numbers(
    sequence: LayerSequence, layer: SequenceLayer, work: Work, bound: float, system: System
) -> Iterable[float]:
    """The row of a layer up to the columns of operators, in the order of `SCHEMA`; 0 where the footprint goes.

    Args:
        sequence: What the layer is part of.
        layer: One of its layers.
        work: What that does.
        bound: The least time that it takes, in microseconds.
        system: Where it would run.
    """
    assert system.host is not None
    ends = _ends(sequence, layer)
    return (
        *_work_features(work, bound, system),
        *_shape_features(ends, layer, work, max(4, system.host.vector_bits // 32)),
        *_window_features(ends, layer),
        *_layout_features(ends, sequence, layer, work),
        *_system_features(work, system),
    )


def footprint_features(footprints: np.ndarray, system: System) -> tuple[np.ndarray, np.ndarray]:
    """What the bytes of weights that models read are over the second and the last cache of a system, as logarithms.

    Args:
        footprints: Of models, shape [num_models].
        system: Where they would run.

    Returns:
        The features "footprint_over_l2" and "footprint_over_l3", float32, shape [num_models] each.
    """
    assert system.host is not None
    read = np.minimum(footprints, float(cached_bytes(system.host)))
    caches = (system.host.l2_bytes, system.host.l3_bytes)
    over_l2, over_l3 = (np.log((read + 1) / cache) if cache else np.zeros(len(read)) for cache in caches)
    return over_l2.astype(np.float32), over_l3.astype(np.float32)


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


def _shape_features(ends: _Ends, layer: SequenceLayer, work: Work, lanes: int) -> list[float]:
    data, made = ends
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


def _window_features(ends: _Ends, layer: SequenceLayer) -> list[float]:
    data, made = ends
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


def _layout_features(ends: _Ends, sequence: LayerSequence, layer: SequenceLayer, work: Work) -> list[float]:
    data, made = ends
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


def _system_features(work: Work, system: System) -> list[float]:
    assert system.host is not None
    threads = system.settings.threads

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
        0.0,
        0.0,
        math.log1p(work.output_bytes / threads),
    ]


def _ends(sequence: LayerSequence, layer: SequenceLayer) -> _Ends:
    """The first tensor that a layer reads, and the first that it makes."""
    first = next((i for i in layer.inputs if i >= 0), None)
    data = TensorType("float32", (1,)) if first is None else sequence.values[first].type
    return data, sequence.values[next(i for i in layer.outputs if i >= 0)].type


def _log(size: int) -> float:
    return math.log(max(1, size))


def _waste(size: int, tile: int) -> float:
    """What filling up to whole tiles adds, as the logarithm of a factor."""
    return math.log(max(1, -(-size // tile)) * tile / max(1, size))
