"""The path that a layer takes through ONNX Runtime's kernels, where it decides the cost more than the amount of work.

The rules are those of ONNX Runtime 1.31 (`core/providers/cpu/math/element_wise_ops.h`,
`core/providers/cpu/reduction/reduction_ops.cc`, `core/mlas/lib/convolve.cpp`).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from costmodel.features.cache_conflicts import claimed_bytes, crowding
from costmodel.features.contraction import Contraction
from costmodel.features.copies import spreads_windows, transposition_of
from costmodel.features.products import RECURRENT
from costmodel.features.reductions import ReductionPath, arrangement_of, column_of, is_reduction, reduction_path
from costmodel.features.resampling import cubic_table_bytes
from costmodel.features.spans import span
from costmodel.features.transposition import TransposePath, matrix_rows, transpose_path
from costmodel.features.work import Work
from costmodel.ir.graph import ITEM_BYTES, TensorType
from costmodel.ir.sequence import LayerSequence, SequenceLayer

__all__ = ["KernelPath", "kernel_path_of"]

_LOOKUPS = {"Gather", "GatherElements", "GatherND", "ScatterND", "ScatterElements"}


@dataclass(frozen=True, slots=True)
class KernelPath:
    """What decides how fast a kernel is, besides the amount of its work.

    Attributes:
        transpose: Way in which the first input is transposed, see `TransposePath`; 0 if it is not.
        read_stride: For a transposition, the distance in the input between elements that are adjacent in the output.
        moved_axis: For a transposition, the size of the axis that becomes the last one; for a matrix, the number of its
            rows.
        crowding: For a layer that reads a column, one element of each of many rows, how few sets of the level 1 cache
            the column falls into; see `costmodel.features.cache_conflicts.crowding`. Columns are read by transpositions
            that move one axis and by reductions that add up one element after another.
        column_bytes: Bytes of a cache that the lines of such a column claim; 0 for all other layers, and for a runtime
            that reduces with vectors.
        span: For an operator with broadcast operands, the number of elements that one inner loop computes.
        reduction: Way in which axes are reduced, see `ReductionPath`; 0 for other operators.
        workspace_bytes: Bytes into which a convolution copies its input window by window (im2col), or from which a
            transposed one adds up its output (col2im); 0 if it does neither.
        spatial_rank: Number of spatial axes of a convolution or pooling.
        table_bytes: Bytes of the tensor, or of the hash maps, in which a layer looks elements up, read or not.
        row_bytes: Bytes of what one index looks up.
        recurrent_bytes: Bytes of the weights that a recurrent layer reads again in each step.
        transposed_operands: 1 if the first operand of a matrix product is transposed, plus 2 if the second one is.
        integer_path: Way in which integers are multiplied, see `IntegerPath`; 0 if they are not.
    """

    transpose: float
    read_stride: int
    moved_axis: int
    crowding: float
    column_bytes: int
    span: int
    reduction: float
    workspace_bytes: int
    spatial_rank: int
    table_bytes: int
    row_bytes: int
    recurrent_bytes: int
    transposed_operands: int
    integer_path: float


def kernel_path_of(
    sequence: LayerSequence,
    layer: SequenceLayer,
    work: Work,
    axes: Sequence[int],
    inner_run: int,
    *,
    with_vectors: bool,
) -> KernelPath:
    """Returns the kernel path of one layer of a sequence.

    Args:
        sequence: Sequence that contains the layer.
        layer: Layer to describe.
        work: Work of the layer.
        axes: Axes of the first input that the layer works along.
        inner_run: Number of elements that the layer leaves adjacent; see `costmodel.features.access_pattern`.
        with_vectors: Whether the runtime reduces along any axes with vectors.
    """
    inputs = [sequence.values[i].type for i in layer.inputs if i >= 0]
    data = inputs[0] if inputs else TensorType("float32", (1,))
    output = sequence.values[next(i for i in layer.outputs if i >= 0)].type
    order, shape = transposition_of(layer, data, output)
    path = transpose_path(order, shape) if order else 0
    read_stride, moved_axis = (math.prod(shape[order[-1] + 1 :]), shape[order[-1]]) if order else (1, 1)
    if path == TransposePath.MOVE_ONE_AXIS and read_stride > 1:
        moved_axis = matrix_rows(order, shape)
    rows, row_bytes, reduction = 1, 0, ReductionPath.NONE
    if path == TransposePath.MOVE_ONE_AXIS:
        rows, row_bytes = moved_axis, int(read_stride * ITEM_BYTES.get(data.dtype, 0))
    elif is_reduction(layer) and with_vectors:
        reduction = arrangement_of(data.shape, axes)
    elif is_reduction(layer):
        rows, row_bytes = column_of(layer.op_type, data, axes)
        reduction = reduction_path(layer.op_type, data.shape, axes)
    is_lookup = layer.op_type in _LOOKUPS
    table_bytes = 0 if with_vectors else cubic_table_bytes(layer, data, output)
    return KernelPath(
        transpose=float(path),
        read_stride=read_stride,
        moved_axis=moved_axis,
        crowding=crowding(rows, row_bytes),
        column_bytes=claimed_bytes(rows, row_bytes) if row_bytes and not with_vectors else 0,
        span=span([t.shape for t in inputs], output.shape, with_vectors=with_vectors)
        if len(inputs) > 1 and work.contraction is None
        else 1,
        reduction=float(reduction),
        workspace_bytes=_workspace_bytes(layer, work.contraction, data, output) + work.integers.workspace_bytes,
        spatial_rank=len(layer.attributes.get("kernel_shape", {}).get("ints", [])),
        table_bytes=data.nbytes if is_lookup else table_bytes,
        row_bytes=int(inner_run * ITEM_BYTES.get(data.dtype, 0)) if is_lookup else 0,
        recurrent_bytes=sequence.values[layer.inputs[2]].type.nbytes if layer.op_type in RECURRENT else 0,
        transposed_operands=sum(
            weight for name, weight in (("transA", 1), ("transB", 2)) if layer.attributes.get(name, {"i": 0})["i"]
        ),
        integer_path=float(work.integers.path),
    )


def _workspace_bytes(
    layer: SequenceLayer, contraction: Contraction | None, data: TensorType, output: TensorType
) -> int:
    if contraction is None:
        return 0
    if layer.op_type == "ConvTranspose":
        return contraction.rows * contraction.columns * 4
    return contraction.rows * contraction.depth * 4 if spreads_windows(layer, data, output) else 0
