"""Selects the constants whose values belong in a signature: shapes, axes and the like, never weights.

Also converts between ONNX element types and NumPy type names.
"""

import math
from collections.abc import Iterable
from typing import Any

import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

__all__ = [
    "MAX_SIGNATURE_ELEMENTS",
    "OMITTED",
    "data_type_of",
    "dtype_name",
    "is_counter",
    "is_in_signature",
    "kernel_selectors",
    "mark_omitted",
    "scalar_value",
    "signature_data",
]

# The most elements of axes, pads, starts, sizes and split lengths; the longest in practice are Pad's, two per
# dimension. Longer integer tensors are tables (relative positions, token ids), whose values do not change the work.
MAX_SIGNATURE_ELEMENTS = 64

# Location of external data that marks a tensor whose values were omitted.
OMITTED = "costmodel:omitted"

# ONNX stores shape parameters as int64. int32 is excluded, but for the counters of loops (`is_counter`): quantised
# biases, which are weights, have that type too.
_KEPT_TYPES = (TensorProto.INT64, TensorProto.BOOL)

# Position, by operator, of the argument that selects the kernel if it is a single number: x**2 is a product, x**2.5
# calls the C library for each element.
_KERNEL_SELECTORS = {"Pow": 1}


def mark_omitted(tensor: TensorProto) -> None:
    """Marks a tensor without values as one whose values were omitted: gives it the external location `OMITTED`."""
    tensor.external_data.add(key="location", value=OMITTED)
    tensor.data_location = TensorProto.EXTERNAL


def is_in_signature(tensor: TensorProto) -> bool:
    """Returns whether the values of a constant belong in a signature, by its element type and number of elements."""
    return tensor.data_type in _KEPT_TYPES and math.prod(tensor.dims) <= MAX_SIGNATURE_ELEMENTS


def is_counter(tensor: TensorProto) -> bool:
    """Returns whether a constant is a single int32: TensorFlow's loops start, count by and end at such numbers.

    It belongs in the signature of a loop, since it says how often the loop runs. In PaddlePaddle's, it is the number of
    classes of a OneHot.
    """
    return tensor.data_type == TensorProto.INT32 and math.prod(tensor.dims) == 1


def signature_data(tensor: TensorProto) -> tuple[Any, ...] | None:
    """Returns a constant's values, flattened; None if they are stored externally or do not belong in a signature."""
    if not is_in_signature(tensor) or tensor.data_location == TensorProto.EXTERNAL:
        return None
    return tuple(numpy_helper.to_array(tensor).reshape(-1).tolist())


def kernel_selectors(nodes: Iterable[NodeProto]) -> set[str]:
    """Returns the names of the inputs of `nodes` on whose value, if a single number, the choice of kernel depends.

    An example is the exponent of Pow.
    """
    return {
        node.input[_KERNEL_SELECTORS[node.op_type]]
        for node in nodes
        if node.op_type in _KERNEL_SELECTORS and node.domain == ""
    }


def scalar_value(tensor: TensorProto) -> tuple[Any, ...] | None:
    """Returns the value of a constant that is a single finite number, as a tuple of one element; else None.

    Only such constants select a kernel (see `kernel_selectors`).
    """
    if math.prod(tensor.dims) != 1 or tensor.data_location == TensorProto.EXTERNAL:
        return None
    (value,) = numpy_helper.to_array(tensor).reshape(-1).tolist()
    return (value,) if isinstance(value, bool | int | float) and math.isfinite(value) else None


def dtype_name(data_type: int) -> str:
    """Returns the NumPy name of an ONNX element type: "float32", "int64", "bool", "bfloat16", "string".

    A number that ONNX does not define becomes, for example, "type 99", so that the caller can reject a corrupt file.
    """
    if data_type == TensorProto.STRING:
        return "string"
    try:
        return str(helper.tensor_dtype_to_np_dtype(data_type))
    except KeyError:
        return f"type {data_type}"


def data_type_of(dtype: str) -> int:
    """Returns the number of the ONNX element type with the given NumPy name, as in `TensorProto.DataType`."""
    return _BY_NAME[dtype]


_BY_NAME: dict[str, int] = {
    dtype_name(value): value for value in onnx.TensorProto.DataType.values() if value != TensorProto.UNDEFINED
}
