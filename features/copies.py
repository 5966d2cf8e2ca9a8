"""Copies of elements into another order, which kernels make besides their arithmetic.

ONNX Runtime transposes operands, spreads out the windows of a convolution (im2col), looks up rows one at a time, joins
and cuts tensors run by run, begins each product of a batch anew, and reads the weights of a recurrence again in each
step. The constants are times per copied element or run, in simple operations of
`costmodel.features.analytical_bound`, of which a Zen 4 makes about 23 and a Zen 5 66 per nanosecond. They need to be
right within a factor of two: a regressor learns the rest.
"""

import math
from collections.abc import Sequence

from costmodel.features.contraction import Contraction
from costmodel.features.einsum import EinsumSteps
from costmodel.features.products import RECURRENT, Types
from costmodel.features.transposition import transpose_flops
from costmodel.ir.attributes import integer
from costmodel.ir.graph import TensorType
from costmodel.ir.sequence import LayerSequence, SequenceLayer

__all__ = [
    "ALONG_ONE_AXIS",
    "CONVOLUTIONS",
    "ONE_AXIS_SINCE",
    "contains_reorder",
    "copy_flops",
    "run_flops",
    "spreads_windows",
    "transposition_of",
]

# Softmax and its like work along one axis since this version of the operator; before, they flattened all axes from that
# one on.
ALONG_ONE_AXIS = ("Softmax", "LogSoftmax", "Hardmax")
ONE_AXIS_SINCE = 13
CONVOLUTIONS = ("Conv", "FusedConv")
_LEAST_RANK = 3  # tensors with fewer axes have no channels to move
# For each element of each window: where neighbours are copied at once, or not.
_SPREAD_FLOPS, _SPREAD_ONE_BY_ONE_FLOPS = 8.0, 13.0
# For each product of a transposed convolution that is added to its result; other ranks have no loop of their own.
_ADDED_FLOPS, _ADDED_STRIDED_FLOPS, _ADDED_BY_INDEX_FLOPS, _IMAGE_RANK = 8.0, 20.0, 36.0, 4
_IMAGE_FLOPS = 6000.0  # for each image and each group of a convolution that is not blocked
# For each product of a batch; of a ConvInteger and a transposed convolution, for each image and group.
_PRODUCT_FLOPS = {
    "MatMul": 6000.0, "FusedMatMul": 6000.0, "ConvInteger": 2000.0, "ConvTranspose": 10_000.0,
    **dict.fromkeys(("Attention", "MultiHeadAttention", "GroupQueryAttention", "QAttention"), 8000.0),
    **dict.fromkeys(("QLinearMatMul", "MatMulInteger", "MatMulIntegerToFloat"), 12_000.0),
}  # fmt: skip
_LOOKUP_FLOPS, _ELEMENT_LOOKUP_FLOPS = 150.0, 50.0  # for each run of adjacent elements, or one element
_POINT_FLOPS = 480.0  # likewise, where an index names a place along several axes
# Likewise, where operands are joined, divided, cut, padded or repeated.
_RUN_FLOPS = {"Concat": 80.0, "QLinearConcat": 80.0, "Split": 160.0, "Slice": 80.0, "Pad": 240.0, "Expand": 240.0}
# For each weight that is read again: by a recurrent layer in each step, by a convolution for each image. A product
# reads its weights once for so many rows.
_REREAD_FLOPS = 2.0
_ROWS_OF_TILE = 12


def copy_flops(
    layer: SequenceLayer, inputs: Types, outputs: Sequence[TensorType], products: Sequence[Contraction]
) -> float:
    """Returns the time of the copies of one layer, in simple operations.

    Args:
        layer: The layer.
        inputs: Types of its inputs; None for an absent one.
        outputs: Types of its outputs.
        products: Its matrix products, the one that characterises it first.
    """
    data = inputs[0] if inputs else None
    if data is None:
        return 0.0
    begun = _PRODUCT_FLOPS.get(layer.op_type, 0.0) * sum(max(0, product.batch - 1) for product in products)
    return begun + _copied_flops(layer, inputs, data, outputs, products[0] if products else None)


def _copied_flops(
    layer: SequenceLayer,
    inputs: Types,
    data: TensorType,
    outputs: Sequence[TensorType],
    contraction: Contraction | None,
) -> float:
    """Returns `copy_flops` without the time to begin the products of a batch; `data` is the type of the first input."""
    if layer.op_type == "Einsum":
        shapes = [kind.shape for kind in inputs if kind is not None]
        return EinsumSteps.of(layer.attributes["equation"]["s"], shapes).copy_flops
    if contraction is not None and layer.op_type in CONVOLUTIONS and not data.blocked and not outputs[0].blocked:
        return _plain_convolution_flops(layer, data, contraction)
    if layer.op_type == "ConvTranspose" and contraction is not None:
        return _added_flops(layer, data) * contraction.batch * contraction.rows * contraction.columns
    if layer.op_type == "Gather" and data.shape:
        axis = integer(layer.attributes, "axis", 0) % len(data.shape)
        return _LOOKUP_FLOPS * outputs[0].elements / max(1, math.prod(data.shape[axis + 1 :]))
    if layer.op_type == "GatherND" and len(inputs) > 1 and inputs[1] is not None and inputs[1].shape:
        looked_up = integer(layer.attributes, "batch_dims", 0) + inputs[1].shape[-1]
        return _POINT_FLOPS * outputs[0].elements / max(1, math.prod(data.shape[looked_up:]))
    if layer.op_type == "Expand":
        return _RUN_FLOPS["Expand"] * _repeated_runs(data.shape, outputs[0].shape)
    if layer.op_type == "GatherElements":
        return _ELEMENT_LOOKUP_FLOPS * outputs[0].elements
    if layer.op_type in RECURRENT and contraction is not None:
        tiles = -(-contraction.rows // _ROWS_OF_TILE)
        return _REREAD_FLOPS * contraction.batch * contraction.columns * contraction.depth * tiles
    order, shape = transposition_of(layer, data, outputs[0])
    times = 2 if layer.op_type in ALONG_ONE_AXIS else 1  # there and back
    return times * transpose_flops(order, shape) if order else 0.0


def run_flops(sequence: LayerSequence, layer: SequenceLayer) -> float:
    """Returns the time to begin each run of adjacent elements that a layer copies, in simple operations.

    Args:
        sequence: Sequence that contains the layer.
        layer: A layer that joins, divides, cuts or pads tensors; any other has no such runs.
    """
    read = [sequence.values[i].type.shape for i in layer.inputs if i >= 0]
    written = [sequence.values[i].type.shape for i in layer.outputs if i >= 0]
    if layer.op_type in ("Concat", "QLinearConcat", "Split"):
        joined = {"Concat": read, "QLinearConcat": read[2::3], "Split": written}[layer.op_type]
        axis = integer(layer.attributes, "axis", 0)
        return _RUN_FLOPS[layer.op_type] * sum(math.prod(shape[: axis % len(shape)]) for shape in joined if shape)
    if layer.op_type in ("Slice", "Pad") and read and len(read[0]) == len(written[0]):
        steps = _steps(sequence, layer)
        for axis in reversed(range(len(read[0]))):
            strided = steps.get(axis, 1) != 1
            if strided or read[0][axis] != written[0][axis]:
                return _RUN_FLOPS[layer.op_type] * math.prod(written[0][: axis + strided])
    return 0.0


def _plain_convolution_flops(layer: SequenceLayer, data: TensorType, product: Contraction) -> float:
    """Returns the time of the copies of a convolution that is no blocked one, besides that of its arithmetic.

    Each image and group is a product of its own, for which the filters are read again.
    """
    again = max(0, product.batch - 1) * (_IMAGE_FLOPS + _REREAD_FLOPS * product.columns * product.depth)
    if math.prod(_window_and_strides(layer)) == 1:
        return again
    adjacent = _has_adjacent_windows(layer) and len(data.shape) <= _IMAGE_RANK
    each = _SPREAD_FLOPS if adjacent else _SPREAD_ONE_BY_ONE_FLOPS
    return again + each * product.batch * product.rows * product.depth


def _added_flops(layer: SequenceLayer, data: TensorType) -> float:
    """Returns the time to add one product of a transposed convolution to the element of its result (col2im)."""
    if len(data.shape) != _IMAGE_RANK:
        return _ADDED_BY_INDEX_FLOPS
    return _ADDED_FLOPS if _has_adjacent_windows(layer) else _ADDED_STRIDED_FLOPS


def _has_adjacent_windows(layer: SequenceLayer) -> bool:
    """Returns whether windows that are neighbours along the last axis begin at neighbouring elements."""
    strides = layer.attributes.get("strides", {}).get("ints", [])
    return not strides or strides[-1] == 1


def _window_and_strides(layer: SequenceLayer) -> list[int]:
    sizes = (layer.attributes.get(name, {}).get("ints", []) for name in ("kernel_shape", "strides"))
    return [size for axes in sizes for size in axes]


def _repeated_runs(read: Sequence[int], written: Sequence[int]) -> float:
    """Returns how many runs an Expand copies.

    It spreads its input out, and then, from the last repeated axis to the first, doubles what it has along that axis
    for each part of the input that lies within the earlier axes.
    """
    sizes = (*(1,) * (len(written) - len(read)), *read)
    repeated = [axis for axis, size in enumerate(written) if sizes[axis] == 1 < size]
    if not repeated:
        return 0.0
    doublings = sum(math.prod(sizes[:axis]) * math.ceil(math.log2(written[axis])) for axis in repeated)
    return float(math.prod(sizes[: repeated[-1]]) + doublings)


def _steps(sequence: LayerSequence, layer: SequenceLayer) -> dict[int, int]:
    """Returns the distance, along each axis, between the elements that a Slice takes; none where it is 1."""
    if layer.op_type != "Slice" or len(layer.inputs) < 5 or layer.inputs[4] < 0:
        return {}
    steps = sequence.values[layer.inputs[4]].data or ()
    named = sequence.values[layer.inputs[3]].data if layer.inputs[3] >= 0 else None
    rank = len(sequence.values[layer.inputs[0]].type.shape)
    axes = named or range(len(steps))
    if not all(isinstance(number, int) for number in (*axes, *steps)):  # as a client may describe them
        return {}
    return {axis % max(1, rank): step for axis, step in zip(axes, steps, strict=False)}


def spreads_windows(layer: SequenceLayer, data: TensorType, output: TensorType) -> bool:
    """Returns whether a convolution copies its input window by window before it multiplies (im2col).

    Args:
        layer: The layer.
        data: Type of its first input.
        output: Type of its first output.
    """
    blocked = data.blocked or output.blocked
    return layer.op_type in CONVOLUTIONS and not blocked and math.prod(_window_and_strides(layer)) != 1


def transposition_of(layer: SequenceLayer, data: TensorType, output: TensorType) -> tuple[list[int], tuple[int, ...]]:
    """Returns how a layer transposes its first input: the order of axes, and the shape that has it in memory.

    The order is empty if the layer does not transpose. A softmax along an axis that is not the last one exchanges this
    axis with the last one, and back afterwards. A reorder brings the channels to the end, or back, also as a part of
    another layer.

    Args:
        layer: The layer.
        data: Type of its first input.
        output: Type of its first output.
    """
    shape, rank = data.shape, len(data.shape)
    if layer.op_type == "Transpose":
        order = list(layer.attributes.get("perm", {}).get("ints", range(rank)[::-1]))
        read, written = _axes_in_memory(data), _axes_in_memory(output)
        if sorted(order) != sorted(read) or len(written) != rank:  # as a client may describe them
            return order, shape
        return [read.index(order[axis]) for axis in written], tuple(shape[axis] for axis in read)
    if contains_reorder(layer, data, output):
        if data.blocked:
            images, channels, *sizes = output.shape
            return [0, rank - 1, *range(1, rank - 1)], (images, *sizes, channels)
        return [0, *range(2, rank), 1], shape
    if layer.op_type in ALONG_ONE_AXIS and layer.since >= ONE_AXIS_SINCE and rank:
        order = list(range(rank))
        axis = integer(layer.attributes, "axis", -1) % rank
        order[axis], order[-1] = order[-1], order[axis]
        return (order if axis != rank - 1 else []), shape
    return [], shape


def contains_reorder(layer: SequenceLayer, data: TensorType, output: TensorType) -> bool:
    """Returns whether a layer is a reorder of OpenVINO, or contains one.

    A layer that reads an image with its channels first and writes it with channels last reorders what it reads, but for
    a convolution, which reads pixels as they come. The other way round, it reorders its result.

    Args:
        layer: The layer.
        data: Type of its first input.
        output: Type of its first output.
    """
    if not _LEAST_RANK <= len(data.shape) == len(output.shape):
        return False
    if layer.op_type in ("Transpose", "ReorderInput", "ReorderOutput"):  # the last two are ONNX Runtime's
        return False
    changes = data.blocked != output.blocked and (data.blocked or layer.op_type not in (*CONVOLUTIONS, "ConvTranspose"))
    return changes or layer.op_type == "Reorder"


def _axes_in_memory(tensor: TensorType) -> list[int]:
    """Returns the axes of a tensor in the order that it has in memory, where the channels of an image may be last."""
    rank = len(tensor.shape)
    return [0, *range(2, rank), 1] if tensor.blocked and rank >= _LEAST_RANK else list(range(rank))
