"""Validates tensors: the element type, the shape, and the values of a small constant."""

from collections.abc import Sequence
from typing import Any

from costmodel.ir.constants import MAX_SIGNATURE_ELEMENTS
from costmodel.ir.graph import ITEM_BYTES, OPAQUE
from costmodel.onnx_io.input_shapes import MAX_DIMENSION, MAX_RANK, MAX_TENSOR_BYTES

__all__ = ["MOST_FLOAT32", "fault_of_data", "fault_of_type"]

MOST_FLOAT32 = 3.4028235e38
# Numbers that JSON cannot represent are written as text (see costmodel.ir.attributes).
_NOT_FINITE = ("NaN", "Infinity", "-Infinity")
_MOST_FLOAT64 = 1.7976931348623157e308
_MOST_CHARACTERS = 1 << 16

# Strings, sequences and the like count as 8 bytes per element, because they take memory too.
_BYTES = dict(ITEM_BYTES) | dict.fromkeys(OPAQUE, 8)


def _range_of(dtype: str) -> tuple[float, float]:
    """Returns the smallest and the largest finite number that an element type holds."""
    bits = int(8 * ITEM_BYTES[dtype])
    if dtype.startswith("int"):
        return -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    if dtype.startswith("uint"):
        return 0, 2**bits - 1
    most = _MOST_FLOAT64 if dtype == "float64" else MOST_FLOAT32
    return -most, most


_RANGES = {dtype: _range_of(dtype) for dtype in ITEM_BYTES if dtype != "bool"}


def fault_of_type(dtype: object, shape: Sequence[object]) -> str | None:
    """Returns what is wrong with the type of a tensor; None if it is valid.

    The text is a predicate, such as "has an element type that is not known", before which the caller puts the name of
    the tensor.

    For the limit on the size of a tensor, a dimension of 0 counts as 1: some features of layers are products of only
    some of the dimensions, and could otherwise be huge for a tensor without elements.

    Args:
        dtype: Name of the element type.
        shape: Dimensions of the tensor.
    """
    size = _BYTES.get(dtype) if isinstance(dtype, str) else None
    if size is None:
        return "has an element type that is not known"
    if len(shape) > MAX_RANK:
        return f"has {len(shape)} dimensions, and {MAX_RANK} are accepted"
    for dimension in shape:
        if type(dimension) is not int or not 0 <= dimension <= MAX_DIMENSION:
            return f"has a dimension that is no integer from 0 to {MAX_DIMENSION}"
        size *= dimension or 1
    return f"has more than {MAX_TENSOR_BYTES} bytes" if size > MAX_TENSOR_BYTES else None


def fault_of_data(dtype: str, elements: int, data: Sequence[Any]) -> str | None:
    """Returns what is wrong with the values of a constant; None if they are valid.

    The text is a predicate, such as "has values that int8 cannot hold", before which the caller puts the name of the
    constant.

    Args:
        dtype: Name of the element type of the constant, which is known to be valid.
        elements: Number of elements of the constant.
        data: Values of the constant as a flat sequence.
    """
    if elements > MAX_SIGNATURE_ELEMENTS or len(data) != elements:
        kept = MAX_SIGNATURE_ELEMENTS
        return f"has {len(data)} values for {elements} elements, of which at most {kept} are written down"
    if dtype == "bool":
        valid = all(type(value) is bool for value in data)
    elif dtype == "string":
        valid = all(map(_is_text, data))
    elif dtype in _RANGES:
        least, most = _RANGES[dtype]
        floating = "float" in dtype
        kinds = (int, float) if floating else (int,)
        valid = all(
            (type(value) in kinds and least <= value <= most) or (floating and value in _NOT_FINITE) for value in data
        )
    else:
        valid = False
    return None if valid else f"has values that {dtype} cannot hold"


def _is_text(value: object) -> bool:
    if not isinstance(value, str) or len(value) > _MOST_CHARACTERS or "\x00" in value:
        return False
    try:
        value.encode()
    except UnicodeEncodeError:  # half of a surrogate pair, which is not valid in text
        return False
    return True
