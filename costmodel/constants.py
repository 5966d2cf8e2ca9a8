"""Which constants are written into a signature: those that shape the work, never weights."""

import math
from typing import Any

import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = ["KEPT_ELEMENTS", "data_of", "data_type_of", "dtype_name", "is_kept"]

# Axes, pads, starts, sizes, split lengths: the longest in practice is Pad's, two per dimension. Longer
# integer tensors are tables (relative positions, token ids), whose values do not change the work.
KEPT_ELEMENTS = 64

# ONNX gives parameters of shape as int64; int32 is also the type of quantised biases, which are weights.
_KEPT_TYPES = (TensorProto.INT64, TensorProto.BOOL)


def is_kept(tensor: TensorProto) -> bool:
    """Whether the values of a constant belong to the signature."""
    return tensor.data_type in _KEPT_TYPES and math.prod(tensor.dims) <= KEPT_ELEMENTS


def data_of(tensor: TensorProto) -> tuple[Any, ...] | None:
    """The flat values of a constant that belongs to the signature, else None."""
    if not is_kept(tensor) or tensor.data_location == TensorProto.EXTERNAL:
        return None
    return tuple(numpy_helper.to_array(tensor).reshape(-1).tolist())


def dtype_name(data_type: int) -> str:
    """The numpy name of an ONNX element type: "float32", "int64", "bool", "bfloat16", "string".

    A number that ONNX gives no meaning becomes "type 99": a corrupt file is for the caller to refuse.
    """
    if data_type == TensorProto.STRING:
        return "string"
    try:
        return str(helper.tensor_dtype_to_np_dtype(data_type))
    except KeyError:
        return f"type {data_type}"


def data_type_of(dtype: str) -> int:
    """The ONNX element type of a numpy name."""
    return _BY_NAME[dtype]


_BY_NAME: dict[str, int] = {
    dtype_name(value): value
    for value in onnx.TensorProto.DataType.values()
    if value not in (TensorProto.UNDEFINED, TensorProto.STRING)
}
