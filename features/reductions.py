"""How ONNX Runtime reduces a tensor along axes, and what it costs beyond reading the tensor.

Axes that are kept (K) or reduced (R) count as one with their neighbours of the same kind, axes of size 1 too: an image
of shape [1, channels, height, width] whose channels are reduced is KRK. Sums, means, minima and maxima have kernels
with vector instructions for KR, RK, KRK and RKR, where there are enough rows for them. Everything else adds up one
element after another: 0.85 ns each on a Zen 4, and 3 ns where the elements of a column lie in one or two sets of the
level 1 cache. The rules are those of `core/providers/cpu/reduction/reduction_ops.cc` of ONNX Runtime 1.31 for one
thread; more threads need more rows.
"""

import math
from collections.abc import Sequence
from enum import IntEnum

from costmodel.features.cache_conflicts import crowding
from costmodel.ir.attributes import integer
from costmodel.ir.graph import ITEM_BYTES, TensorType
from costmodel.ir.sequence import LayerSequence, SequenceLayer

__all__ = [
    "ReductionPath",
    "arrangement_of",
    "column_of",
    "is_reduction",
    "reduced_axes",
    "reduction_flops",
    "reduction_path",
]

_WITH_KERNELS = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin")
_AS_PRODUCTS = ("ReduceSum", "ReduceMean")  # KRK is a product with a row of ones for each of the first axis
_LEAST_ROWS, _LEAST_SIZE = 17, 257  # of RK
_LEAST_KEPT = 2  # along the first axis of KRK, and the middle one of RKR
# In simple operations, of which a core makes about 20 per nanosecond: one element after another, the same where all
# elements of a column lie in at most two of the 64 sets of the level 1 cache, and each product.
_ELEMENT_FLOPS, _CONFLICT_FLOPS, _PRODUCT_FLOPS = 16.0, 50.0, 2500.0
_CONFLICTS_FROM = 32.0  # crowding


class ReductionPath(IntEnum):
    """The way in which a tensor is reduced: by which axes are reduced, or one element after another."""

    NONE = 0
    ALL = 1
    LAST = 2
    FIRST = 3
    MIDDLE = 4
    OUTER = 5
    ONE_BY_ONE = 6


_ARRANGEMENTS = {
    "R": ReductionPath.ALL,
    "KR": ReductionPath.LAST,
    "RK": ReductionPath.FIRST,
    "KRK": ReductionPath.MIDDLE,
    "RKR": ReductionPath.OUTER,
}


def is_reduction(layer: SequenceLayer) -> bool:
    """Returns whether a layer reduces its first input along axes."""
    return layer.op_type.startswith(("Reduce", "ArgM"))


def reduced_axes(sequence: LayerSequence, layer: SequenceLayer, data: TensorType) -> list[int]:
    """Returns the axes along which a layer whose operator begins with "Reduce" reduces its data, ascending."""
    rank = len(data.shape)
    axes = layer.attributes.get("axes", {}).get("ints")
    given = axes is not None or (len(layer.inputs) > 1 and layer.inputs[1] >= 0)
    if axes is None and given:
        axes = sequence.values[layer.inputs[1]].data
    if integer(layer.attributes, "noop_with_empty_axes", 0) and (not given or (axes is not None and not axes)):
        return []
    return sorted({axis % rank for axis in axes or range(rank)}) if rank else []


def arrangement_of(shape: Sequence[int], axes: Sequence[int]) -> ReductionPath:
    """Returns the way in which a runtime reduces a tensor that has kernels for every arrangement of axes.

    Args:
        shape: Shape of the tensor.
        axes: Axes that are reduced.
    """
    kinds, _ = _merged(shape, axes)
    return _ARRANGEMENTS.get(kinds, ReductionPath.ONE_BY_ONE) if "R" in kinds else ReductionPath.NONE


def reduction_path(operator: str, shape: Sequence[int], axes: Sequence[int]) -> ReductionPath:
    """Returns the way in which ONNX Runtime reduces a tensor.

    Args:
        operator: Name of the operator.
        shape: Shape of the tensor.
        axes: Axes that are reduced.
    """
    path, (_, sizes) = arrangement_of(shape, axes), _merged(shape, axes)
    if path in (ReductionPath.NONE, ReductionPath.ALL):
        return path
    enough = {
        ReductionPath.LAST: True,
        ReductionPath.FIRST: sizes[0] >= _LEAST_ROWS and max(sizes[:2]) >= _LEAST_SIZE,
        ReductionPath.MIDDLE: sizes[0] >= _LEAST_KEPT,
        ReductionPath.OUTER: len(sizes) > 1 and sizes[1] >= _LEAST_KEPT,
    }
    return path if operator in _WITH_KERNELS and enough.get(path, False) else ReductionPath.ONE_BY_ONE


def column_of(operator: str, data: TensorType, axes: Sequence[int]) -> tuple[int, int]:
    """Returns the rows that a reduction visits for one element of its output, and their distance in bytes.

    Without kernels for it, a reduction along other axes than the last reads a column: one element of each row. The
    result is (1, 0) for all other reductions.
    """
    kinds, sizes = _merged(data.shape, axes)
    if reduction_path(operator, data.shape, axes) != ReductionPath.ONE_BY_ONE or not kinds.endswith("RK"):
        return 1, 0
    return sizes[-2], int(sizes[-1] * ITEM_BYTES.get(data.dtype, 0))


def reduction_flops(operator: str, data: TensorType, axes: Sequence[int]) -> float:
    """Returns the operations of a reduction, as simple ones."""
    path = reduction_path(operator, data.shape, axes)
    if path == ReductionPath.ONE_BY_ONE:
        conflicts = crowding(*column_of(operator, data, axes)) >= _CONFLICTS_FROM
        return data.elements * (_CONFLICT_FLOPS if conflicts else _ELEMENT_FLOPS)
    products = math.prod(data.shape[: min(axes)]) if path == ReductionPath.MIDDLE and operator in _AS_PRODUCTS else 0
    return float(data.elements + _PRODUCT_FLOPS * products)


def _merged(shape: Sequence[int], axes: Sequence[int]) -> tuple[str, list[int]]:
    """Returns the kinds of the axes, neighbours of one kind taken together, and the sizes of these groups."""
    kinds, sizes = "", list[int]()
    for axis, size in enumerate(shape):
        kind = "R" if axis in axes else "K"
        if kinds.endswith(kind):
            sizes[-1] *= size
        else:
            kinds += kind
            sizes.append(size)
    return kinds, sizes
