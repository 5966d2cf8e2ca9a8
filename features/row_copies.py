"""How OpenVINO brings elements into another order: by transpositions and by reorders.

A transposition copies rows in vectors if the last axis stays the last one. What does not fill a vector, and everything
where another axis comes last, it copies element by element, bytes as slowly as floats. The one that brings the channels
of an image from the end to the front is computed as a reorder. A reorder, too, takes as long for a byte as for a float.

The times were fitted to about a thousand layers of OpenVINO 2026.4 on a Zen 4, of which a core makes about 20 simple
operations per nanosecond.
"""

import math
from collections.abc import Sequence

from costmodel.features.copies import CONVOLUTIONS, contains_reorder, transposition_of
from costmodel.features.transposition import TransposePath, transpose_path
from costmodel.ir.graph import ITEM_BYTES, TensorType
from costmodel.ir.sequence import SequenceLayer

__all__ = ["row_copy_flops"]

_VECTOR_BYTES = 64
_ROW_FLOPS = 30.0  # to begin a row
_SINGLE_FLOPS = 14.0  # for each element that is copied by itself
_REORDERED_FLOPS = 6.0  # for each element of a reorder
_FIRST_FROM_LAST = [0, 3, 1, 2]  # the order of axes that brings the channels of an image to the front


def row_copy_flops(layer: SequenceLayer, data: TensorType, output: TensorType) -> float | None:
    """Returns the time of a layer's copies besides their memory traffic, in simple operations.

    Args:
        layer: The layer.
        data: Type of its first input.
        output: Type of its first output.

    Returns:
        The time; None for a layer whose copies, if it makes any, are those of `costmodel.features.copies`.
    """
    if layer.op_type == "Transpose":
        order, shape = transposition_of(layer, data, output)
        if not data.blocked and order == _FIRST_FROM_LAST:
            return _REORDERED_FLOPS * data.elements
        return _transposed_flops(order, shape, max(1, int(ITEM_BYTES.get(data.dtype, 1))))
    if contains_reorder(layer, data, output):
        return _REORDERED_FLOPS * (output if data.blocked else data).elements
    return 0.0 if layer.op_type in (*CONVOLUTIONS, "ConvTranspose", "Expand") else None


def _transposed_flops(order: Sequence[int], shape: Sequence[int], item_bytes: int) -> float:
    elements = math.prod(shape)
    if transpose_path(order, shape) == TransposePath.COPY:
        return float(elements)
    written = [axis for axis in order if shape[axis] != 1]
    if written[-1] != max(written):
        return _SINGLE_FLOPS * elements
    row = max(1, shape[written[-1]])
    return (_ROW_FLOPS + _SINGLE_FLOPS * (row % (_VECTOR_BYTES // item_bytes))) * elements / row
