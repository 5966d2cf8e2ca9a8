"""Numeric features of one layer on a system: the columns of `SCHEMA` except those that encode the operator.

Sizes are given as logarithms, because costs span six orders of magnitude.
"""

import math
from collections.abc import Iterable

import numpy as np

from costmodel.features.access_pattern import AccessPattern, access_pattern_of
from costmodel.features.analytical_bound import (
    copy_flops_of,
    kernel_slowdown,
    other_flops_of,
    threads_speedup,
    waiting_us,
)
from costmodel.features.arithmetic import window_area
from costmodel.features.channel_order import channels_first
from costmodel.features.fused import VECTOR_INSTRUCTIONS, as_main_operator
from costmodel.features.kernel_path import KernelPath, kernel_path_of
from costmodel.features.work import Work
from costmodel.ir.attributes import integer
from costmodel.ir.graph import ITEM_BYTES, TensorType
from costmodel.ir.sequence import LayerSequence, SequenceLayer
from costmodel.measure.groups import memory_bound_bytes, warm_bytes
from costmodel.runtimes.kernels import has_channels_last
from costmodel.systems.system import System

__all__ = ["footprint_features", "layer_features"]

# Tile sizes of the kernels of ONNX Runtime's MLAS: rows of a matrix product, positions along a row of an image, and
# vectors along a row of a product. A partial tile costs as much as a whole one.
_PRODUCT_TILE = 12
_IMAGE_TILE = 6
_VECTORS_IN_TILE = 4
# What an activation that is fused into a layer counts at most, in instructions: what takes more is an exponential.
_MOST_INSTRUCTIONS = VECTOR_INSTRUCTIONS["Tanh"]
# A lap that touches this many times the level 2 cache leaves nothing of a layer in the level 3 cache either, which is
# up to 32 times as large: more makes no difference.
_MOST_LAP = 64
# Bytes that are added to those that a lap touches, so that their logarithm does not tell apart what is next to nothing.
_LEAST_LAP = 10_000

# Place of the first data among the inputs of an operator that begins with the scale of its output.
_FIRST_DATA = {"QLinearConcat": 2}

_DataAndOutput = tuple[TensorType, TensorType]


def layer_features(
    sequence: LayerSequence, layer: SequenceLayer, work: Work, bound: float, system: System
) -> Iterable[float]:
    """Returns the features of a layer in the order of `SCHEMA`, without the operator columns, which come last.

    The footprint columns are 0, because the footprint depends on the model around the layer.

    Args:
        sequence: Sequence that contains the layer.
        layer: Layer to describe.
        work: Arithmetic and memory traffic of the layer.
        bound: Analytical bound of the layer in microseconds.
        system: System that the layer would run on.
    """
    assert system.host is not None
    sequence, layer = as_main_operator(sequence, layer)
    types = _data_and_output(sequence, layer)
    pattern = access_pattern_of(sequence, layer)
    with_vectors = has_channels_last(system.runtime)
    path = kernel_path_of(sequence, layer, work, pattern.axes, pattern.inner_run, with_vectors=with_vectors)
    return (
        *_work_features(work, bound, system),
        *_shape_features(types, layer, work, max(4, system.host.vector_bits // 32)),
        *_window_features(types, layer),
        *_layout_features(types, pattern, work),
        *_kernel_features(path, kernel_slowdown(work, system)),
        *_system_features(work, path, system),
    )


def footprint_features(footprints: np.ndarray, system: System) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the features of models that tell what their layers find in the caches.

    From one run of a layer to the next, a lap over the different layers of its model touches all weights of the model
    and the activations of each layer; layers of a model that fits into a core's own cache are timed warm.

    Args:
        footprints: Footprint of each model (`costmodel.ir.footprint.Footprint`), shape [num_models, 2].
        system: System that the models would run on.

    Returns:
        The features "footprint_over_l2", "footprint_over_l3" and "lap_over_l2", which are logarithms of bytes over the
        size of the cache, float32, shape [num_models] each.
    """
    assert system.host is not None
    host, most = system.host, float(memory_bound_bytes(system.host))
    weights, activations = footprints.T
    read = np.minimum(weights, most)
    warm = (weights > 0) & (weights <= warm_bytes(host))
    touched = np.where(warm, 0.0, np.minimum(weights + activations, _MOST_LAP * host.l2_bytes))
    parts = ((read + 1, host.l2_bytes), (read + 1, host.l3_bytes), (touched + _LEAST_LAP, host.l2_bytes))
    over_l2, over_l3, lap_over_l2 = (
        (np.log(nbytes / cache) if cache else np.zeros(len(nbytes))).astype(np.float32) for nbytes, cache in parts
    )
    return over_l2, over_l3, lap_over_l2


def _work_features(work: Work, bound: float, system: System) -> list[float]:
    memory_us = work.moved_bytes / (system.capabilities["memory_gbps"] * 1e3)
    return [
        math.log(bound),
        math.log1p(work.multiply_flops),
        math.log1p(other_flops_of(work, system)),
        math.log1p(copy_flops_of(work, system)),
        math.log1p(work.scalar_calls),
        math.log1p(work.input_bytes),
        math.log1p(work.weight_bytes),
        math.log1p(work.output_bytes),
        math.log1p(work.moved_bytes),
        math.log1p(work.flops / max(1, work.moved_bytes)),
        min(1.0, memory_us / bound),
    ]


def _shape_features(types: _DataAndOutput, layer: SequenceLayer, work: Work, lanes: int) -> list[float]:
    data, output = types
    product = work.contraction
    batch, rows, columns, depth = (product.batch, product.rows, product.columns, product.depth) if product else [1] * 4
    width = output.shape[-1] if output.shape else 1
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
        _log(output.shape[1] if len(output.shape) > 1 else 1),
        _log(math.prod(data.shape[2:])),
        _log(math.prod(output.shape[2:])),
        _log(width),
        _waste(width, _IMAGE_TILE),
        _log(data.shape[-1] if data.shape else 1),
        float(sum(i >= 0 for i in layer.inputs)),
        float(ITEM_BYTES.get(data.dtype, 0)),
        float("float" in data.dtype),
        float(data.blocked),
        float(output.blocked),
        float(layer.since),
    ]


def _window_features(types: _DataAndOutput, layer: SequenceLayer) -> list[float]:
    data, output = types
    attributes = layer.attributes
    kernel = attributes.get("kernel_shape", {}).get("ints", [1])
    strides = attributes.get("strides", {}).get("ints", [1])
    dilations = attributes.get("dilations", {}).get("ints", [1])
    pads = attributes.get("pads", {}).get("ints", [0])
    group = integer(attributes, "group", 1)
    in_channels = data.shape[1] if len(data.shape) > 1 else 1
    windowed = "kernel_shape" in attributes
    activation = attributes.get("activation", {}).get("s", "")
    area = window_area(layer, data)
    data_width = data.shape[-1] if data.shape else 1
    return [
        _log(area),
        float(min(kernel[-1], data_width)),
        float(min(strides[-1], data_width)),
        float(dilations[-1]),
        sum(pads) / max(1, sum(output.shape[2:])) if windowed else 0.0,
        _log(group),
        float(group > 1 and group == in_channels),
        float(windowed and area == 1 and math.prod(strides) == 1),
        min(VECTOR_INSTRUCTIONS.get(activation, _MOST_INSTRUCTIONS), _MOST_INSTRUCTIONS) if activation else 0.0,
        float(layer.op_type in ("Conv", "FusedConv") and sum(i >= 0 for i in layer.inputs) > 3),
    ]


def _layout_features(types: _DataAndOutput, pattern: AccessPattern, work: Work) -> list[float]:
    data, output = types
    return [
        float(pattern.last_axis_kept),
        _log(pattern.inner_run),
        _log(pattern.axis_size),
        math.log(max(1e-9, pattern.other_operand)),
        float(pattern.other_operand_inner),
        float(work.weight_bytes > 0),
        pattern.interpolation,
        math.log(max(1, output.elements) / max(1, data.elements)),
    ]


def _kernel_features(path: KernelPath, slowdown: float) -> list[float]:
    return [
        path.transpose,
        _log(path.read_stride),
        _log(path.moved_axis),
        math.log(path.crowding),
        _log(path.span),
        path.reduction,
        math.log1p(path.workspace_bytes),
        float(path.spatial_rank),
        math.log1p(path.row_bytes),
        float(path.transposed_operands),
        path.integer_path,
        math.log(slowdown),
    ]


def _system_features(work: Work, path: KernelPath, system: System) -> list[float]:
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
        0.0,
        math.log1p(work.output_bytes / threads),
        math.log(threads_speedup(work, system, threads)),
        math.log1p(waiting_us(work, system, threads)),
        over(path.workspace_bytes, system.host.l2_bytes),
        over(path.table_bytes + work.parameter_bytes, system.host.l2_bytes),
        over(path.recurrent_bytes, system.host.l2_bytes),
        over(path.column_bytes, system.host.l2_bytes),
    ]


def _data_and_output(sequence: LayerSequence, layer: SequenceLayer) -> _DataAndOutput:
    """Returns the types of a layer's data and of its first output, with the axis of channels second."""
    slot = _FIRST_DATA.get(layer.op_type, 0)
    first = next((i for i in layer.inputs[slot:] if i >= 0), None)
    data = TensorType("float32", (1,)) if first is None else sequence.values[first].type
    output = sequence.values[next(i for i in layer.outputs if i >= 0)].type
    return channels_first(layer, data), channels_first(layer, output)


def _log(size: int) -> float:
    return math.log(max(1, size))


def _waste(size: int, tile: int) -> float:
    """Returns the logarithm of the factor by which padding to a multiple of `tile` enlarges `size`."""
    return math.log(max(1, -(-size // tile)) * tile / max(1, size))
