"""Which constants are written into a signature: those that shape the work, never weights."""

import math
from collections.abc import Iterable
from typing import Any

import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

__all__ = ["KEPT_ELEMENTS", "chosen_by", "data_of", "data_type_of", "dtype_name", "is_kept", "scalar_of"]

# Axes, pads, starts, sizes, split lengths: the longest in practice is Pad's, two per dimension. Longer
# integer tensors are tables (relative positions, token ids), whose values do not change the work.
KEPT_ELEMENTS = 64

# ONNX gives parameters of shape as int64; int32 is also the type of quantised biases, which are weights.
_KEPT_TYPES = (TensorProto.INT64, TensorProto.BOOL)

# Arguments of which one number chooses the kernel: x**2 is a product, x**2.5 calls the C library for each element.
_CHOOSING = {"Pow": 1}


def is_kept(tensor: TensorProto) -> bool:
    """Whether the values of a constant belong to the signature."""
    return tensor.data_type in _KEPT_TYPES and math.prod(tensor.dims) <= KEPT_ELEMENTS


def data_of(tensor: TensorProto) -> tuple[Any, ...] | None:
    """The flat values of a constant that belongs to the signature, else None."""
    if not is_kept(tensor) or tensor.data_location == TensorProto.EXTERNAL:
        return None
    return tuple(numpy_helper.to_array(tensor).reshape(-1).tolist())


def chosen_by(nodes: Iterable[NodeProto]) -> set[str]:
    """Names of the values that choose a kernel where they are single numbers."""
    return {node.input[_CHOOSING[node.op_type]] for node in nodes if node.op_type in _CHOOSING and node.domain == ""}


def scalar_of(tensor: TensorProto) -> tuple[Any, ...] | None:
    """The value of a constant that is a single finite number, else None: no kernel is chosen by any other."""
    if math.prod(tensor.dims) != 1 or tensor.data_location == TensorProto.EXTERNAL:
        return None
    (value,) = numpy_helper.to_array(tensor).reshape(-1).tolist()
    return (value,) if isinstance(value, bool | int | float) and math.isfinite(value) else None


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
    dtype_name(value): value for value in onnx.TensorProto.DataType.values() if value != TensorProto.UNDEFINED
}
