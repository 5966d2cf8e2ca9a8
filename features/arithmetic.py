"""Arithmetic of a layer besides its matrix products, from its operator, shapes and attributes."""

import math
from collections.abc import Sequence

from costmodel.features.access_pattern import worked_axes
from costmodel.features.channel_order import channels_first, channels_of
from costmodel.features.products import RECURRENT, Types
from costmodel.features.recurrence import UNIT_FLOPS
from costmodel.features.reductions import is_reduction, reduction_flops
from costmodel.features.resampling import POSITION_FLOPS, RESAMPLING, resampling_flops
from costmodel.features.spans import BROADCAST, span
from costmodel.ir.attributes import integer
from costmodel.ir.graph import TensorType
from costmodel.ir.sequence import LayerSequence, SequenceLayer

__all__ = ["one_by_one_flops", "other_flops", "window_area"]

_FREE = {"Shape", "Size", "Dropout"}  # without arithmetic
_TRANSCENDENTAL = {
    "Exp", "Erf", "Tanh", "Sigmoid", "Gelu", "FastGelu", "QuickGelu", "BiasGelu", "Softmax", "LogSoftmax",
    "Softplus", "Elu", "Selu", "Celu", "Mish", "Swish", "HardSwish", "QLinearSigmoid",
}  # fmt: skip
_TRANSCENDENTAL_FLOPS = 10.0
_FOUND_FLOPS, _SUMMED_FLOPS = 10.0, 3.0  # for each element, in which order matters: of a NonZero and of a CumSum
_FUSED_FLOPS = {"Selu": 40.0, "Elu": 40.0, "LeakyRelu": 10.0, "Clip": 6.0}  # in a second pass over the result
# What ONNX Runtime takes for each element that it computes by itself, besides what vectors take. A PRelu has a branch
# that is hard to predict; the powers of an LRN take that long besides the call of the library.
_ELEMENT_FLOPS = {
    "SkipLayerNormalization": 70.0, "PRelu": 150.0, "Elu": 40.0, "Selu": 40.0, "Celu": 40.0, "Softplus": 250.0,
    "DepthToSpace": 30.0, "LRN": 400.0,
}  # fmt: skip
# For each element of what no runtime computes in vectors.
_FUNCTION_FLOPS = {
    "Log": 40.0, "Sin": 40.0, "Cos": 40.0, "Tan": 400.0, "Asin": 30.0, "Acos": 30.0, "Atan": 30.0, "Sinh": 500.0,
    "Cosh": 250.0, "Asinh": 600.0, "Acosh": 250.0, "Atanh": 600.0, "OneHot": 8.0,
}  # fmt: skip
# ONNX Runtime averages by another kernel from this opset on, which takes 8 times as long (ADR 5, item 9).
_SLOW_AVERAGES_SINCE = 19
_AVERAGE_FLOPS = 30.0  # for each element of a window, where averages are computed one element at a time
# One element at a time: it is looked up, or chosen and rescaled, or moved by the distances of six axes.
_INTEGER_SOFTMAX_FLOPS, _CHOSEN_FLOPS, _MOVED_FLOPS = 50.0, 20.0, 20.0
_POINTER_FLOPS = 40.0  # for each element of a window of all channels
_INDEX_FLOPS = 90.0  # for each element of a window whose largest element is also returned by its place
# With channels last, OpenVINO pools bytes position by position, in each of them vector by vector.
_BYTES, _BYTES_OF_VECTOR, _VECTOR_FLOPS = ("int8", "uint8"), 64, 12.0
_COMPARED_FLOPS = 9.0  # an element of a row of which the best are chosen
_ENTERING_FLOPS = 100.0  # a level of the heap that an element enters
_SPAN_FLOPS = 200.0  # for each loop over elements of a sum and the like
_FOURIER_FLOPS = 40.0  # for each complex number, on each level of a fast Fourier transform
_BLUESTEIN_TRANSFORMS = 2.3  # for each transform of another length (Zen 5: 2.3 times one of its padded length)
_LONGEST_TRANSFORM = 1 << 40  # more than any tensor has: a client may send any length
_PER_INPUT = {
    "GlobalAveragePool", "GlobalMaxPool", "CumSum", "NonZero", "LpNormalization", "QLinearGlobalAveragePool",
}  # fmt: skip
_POOLINGS = {"MaxPool", "AveragePool", "LpPool", "NhwcMaxPool", "QLinearAveragePool"}
_SCALAR_FLOPS = {
    "QLinearSoftmax": _INTEGER_SOFTMAX_FLOPS, "QLinearWhere": _CHOSEN_FLOPS, "DepthToSpace": _MOVED_FLOPS,
    "SpaceToDepth": _MOVED_FLOPS,
}  # fmt: skip
_NORMALISATIONS = {
    "LayerNormalization": 8, "SkipLayerNormalization": 9, "SimplifiedLayerNormalization": 5,
    "SkipSimplifiedLayerNormalization": 6, "InstanceNormalization": 8, "GroupNorm": 8, "GroupNormalization": 8,
    "BatchNormalization": 2, "MeanVarianceNormalization": 8, "RMSNormalization": 5, "EmbedLayerNormalization": 10,
}  # fmt: skip


def window_area(layer: SequenceLayer, data: TensorType) -> int:
    """Returns the number of elements in a layer's window (kernel), clipped to the input's shape; 1 without a window."""
    kernel = layer.attributes.get("kernel_shape", {}).get("ints", [])
    sizes = data.shape[len(data.shape) - len(kernel) :]
    return math.prod(min(k, max(1, size)) for k, size in zip(kernel, sizes, strict=True))


def other_flops(
    sequence: LayerSequence,
    layer: SequenceLayer,
    inputs: Types,
    outputs: Sequence[TensorType],
    largest: int,
    has_contraction: bool,
) -> float:
    """Returns the arithmetic of a layer besides its products, in simple operations.

    Args:
        sequence: Sequence that contains the layer.
        layer: The layer.
        inputs: Types of its inputs; None for an absent one.
        outputs: Types of its outputs.
        largest: Number of elements of its largest tensor.
        has_contraction: Whether it has products.
    """
    elements = sum(t.elements for t in outputs)
    if layer.op_type in _FREE:
        return 0.0
    if layer.op_type in RECURRENT:
        return _TRANSCENDENTAL_FLOPS * _gate_elements(inputs)
    if layer.op_type in RESAMPLING and inputs[0] is not None:
        return resampling_flops(layer, inputs[0], outputs[0], by_elements=False)
    if is_reduction(layer) and inputs[0] is not None:
        return float(inputs[0].elements)
    if has_contraction:  # bias, rescaling, and a fused activation
        fused = layer.attributes.get("activation", {}).get("s", "")
        return float(elements) * _FUSED_FLOPS.get(fused, _TRANSCENDENTAL_FLOPS if fused in _TRANSCENDENTAL else 1.0)
    if layer.op_type in ("DFT", "STFT"):
        return _fourier_flops(*_transforms(sequence, layer, inputs, outputs[0]))
    if layer.op_type in _SCALAR_FLOPS:
        return _SCALAR_FLOPS[layer.op_type] * elements
    if layer.op_type in _TRANSCENDENTAL:
        return _TRANSCENDENTAL_FLOPS * elements
    if layer.op_type in _FUNCTION_FLOPS:
        return _FUNCTION_FLOPS[layer.op_type] * elements
    if layer.op_type in _NORMALISATIONS:
        return float(_NORMALISATIONS[layer.op_type] * elements)
    if layer.op_type in _PER_INPUT:
        return {"NonZero": _FOUND_FLOPS, "CumSum": _SUMMED_FLOPS}.get(layer.op_type, 1.0) * largest
    if layer.op_type == "TopK" and inputs[0] is not None:
        return _selection_flops(layer, inputs[0], outputs[0])
    if layer.op_type in _POOLINGS:
        assert inputs[0] is not None
        vectors = inputs[0].blocked or (layer.op_type == "AveragePool" and layer.since < _SLOW_AVERAGES_SINCE)
        each = 1.0 if "Max" in layer.op_type or vectors else _AVERAGE_FLOPS
        window = window_area(layer, channels_first(layer, inputs[0]))
        if inputs[0].blocked and inputs[0].dtype in _BYTES:
            channels = channels_of(outputs[0])
            positions, of_position = elements / channels, -(-channels // _BYTES_OF_VECTOR)
            return positions * (POSITION_FLOPS + _VECTOR_FLOPS * of_position * window)
        if layer.op_type == "NhwcMaxPool":  # reads its windows through pointers
            return window * (elements + _POINTER_FLOPS * elements / max(1, outputs[0].shape[-1]))
        if layer.op_type == "MaxPool" and len(outputs) > 1:
            each, elements = _INDEX_FLOPS, outputs[0].elements
        return each * elements * window
    if layer.op_type == "LRN":
        return float(elements * layer.attributes["size"]["i"])
    if layer.op_type in ("Sum", "Mean", "Max", "Min"):
        return float(elements * max(1, len(inputs) - 1))
    return float(elements)


def one_by_one_flops(
    sequence: LayerSequence, layer: SequenceLayer, inputs: Types, outputs: Sequence[TensorType]
) -> float:
    """Returns what ONNX Runtime takes longer, where it computes one element after another, or less than others."""
    data = inputs[0] if inputs else None
    if data is None:
        return 0.0
    if layer.op_type == "RNN":
        return UNIT_FLOPS * _gate_elements(inputs)
    of_elements = _ELEMENT_FLOPS.get(layer.op_type, 0.0) * outputs[0].elements
    if is_reduction(layer):
        axes = worked_axes(sequence, layer, data)
        return reduction_flops(layer.op_type, data, axes) - data.elements
    if layer.op_type in BROADCAST and len(inputs) > 1:
        shapes = [kind.shape for kind in inputs if kind is not None]
        loops = outputs[0].elements / max(1, span(shapes, outputs[0].shape, with_vectors=False))
        return _SPAN_FLOPS * loops + of_elements
    if layer.op_type in RESAMPLING:
        here, elsewhere = (resampling_flops(layer, data, outputs[0], by_elements=one) for one in (True, False))
        return here - elsewhere
    return of_elements


def _selection_flops(layer: SequenceLayer, data: TensorType, chosen: TensorType) -> float:
    """Returns the operations of a TopK, which keeps the best elements so far of each row in a heap.

    Of `length` elements in random order, k (1 + ln(length / k)) enter a heap of k.
    """
    axis = integer(layer.attributes, "axis", -1)
    known = -min(len(data.shape), len(chosen.shape)) <= axis < min(len(data.shape), len(chosen.shape))
    length, k = (max(1, data.shape[axis]), max(1, chosen.shape[axis])) if known else (1, 1)
    entering = k * (1 + max(0.0, math.log(length / k)))
    return _COMPARED_FLOPS * data.elements + _ENTERING_FLOPS * data.elements / length * entering * math.log2(k + 1)


def _gate_elements(inputs: Types) -> int:
    data, recurrence = inputs[0], inputs[2]
    assert data is not None
    assert recurrence is not None
    return data.shape[0] * data.shape[1] * recurrence.shape[0] * max(recurrence.shape[1:])


def _transforms(sequence: LayerSequence, layer: SequenceLayer, inputs: Types, output: TensorType) -> tuple[int, float]:
    """Returns the length and the number of the Fourier transforms of a DFT or STFT; a DFT may pad its signal."""
    data = inputs[0]
    assert data is not None
    if layer.op_type == "STFT":
        window = inputs[2] if len(inputs) > 2 else None
        length = window.elements if window is not None else _given(sequence, layer, 3)
        return length or 2 * math.prod(output.shape[2:3]), float(math.prod(output.shape[:2]))
    axis = _fourier_axis(sequence, layer)
    along = max(1, data.shape[axis] if -len(data.shape) <= axis < len(data.shape) else 1)
    parts = data.shape[-1] if data.shape and data.shape[-1] in (1, 2) else 1  # real numbers, or complex ones
    return _given(sequence, layer, 1) or along, data.elements / parts / along


def _given(sequence: LayerSequence, layer: SequenceLayer, slot: int) -> int:
    """Returns the number that a layer gets as its input at a position; 0 if it gets none that is known, or less."""
    given = layer.inputs[slot] if len(layer.inputs) > slot else -1
    data = sequence.values[given].data if given >= 0 else None
    return max(0, data[0]) if data and isinstance(data[0], int) else 0  # a client may describe any data


def _fourier_axis(sequence: LayerSequence, layer: SequenceLayer) -> int:
    """Returns the axis that a DFT transforms: an attribute before version 20, then an input."""
    if layer.since < 20:
        return integer(layer.attributes, "axis", 1)
    given = layer.inputs[2] if len(layer.inputs) > 2 else -1
    data = sequence.values[given].data if given >= 0 else None
    return int(data[0]) if data else -2


def _fourier_flops(length: int, transforms: float) -> float:
    """Returns the operations of Fourier transforms, each of log2(length) levels if the length is a power of two.

    For other lengths, ONNX Runtime computes two transforms of at least twice the length, some products besides, and a
    third transform for all of them together (Bluestein, 1970).

    Args:
        length: Number of complex numbers that are transformed.
        transforms: Number of transforms.
    """
    length = min(length, _LONGEST_TRANSFORM)
    if length & (length - 1):
        length, transforms = 1 << (2 * length - 2).bit_length(), _BLUESTEIN_TRANSFORMS * transforms + 1
    return _FOURIER_FLOPS * transforms * length * math.log2(max(2, length))
