"""What a tensor may be: its element type, its shape, and the values of a small constant."""

from collections.abc import Sequence
from typing import Any

from costmodel.constants import KEPT_ELEMENTS
from costmodel.graph import ITEM_BYTES, OPAQUE
from costmodel.shapes import MAX_DIMENSION, MAX_RANK, MAX_TENSOR_BYTES

__all__ = ["MOST_FLOAT32", "fault_of_data", "fault_of_type"]

MOST_FLOAT32 = 3.4028235e38
# Numbers that JSON does not have are written by name (see costmodel.attributes).
_NOT_FINITE = ("NaN", "Infinity", "-Infinity")
_MOST_FLOAT64 = 1.7976931348623157e308
_MOST_CHARACTERS = 1 << 16

# Strings, sequences and the like count 8 bytes for each element: they too take room.
_BYTES = dict(ITEM_BYTES) | dict.fromkeys(OPAQUE, 8)


def _range_of(dtype: str) -> tuple[float, float]:
    """The least and the greatest number that an element type holds."""
    bits = int(8 * ITEM_BYTES[dtype])
    if dtype.startswith("int"):
        return -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    if dtype.startswith("uint"):
        return 0, 2**bits - 1
    most = _MOST_FLOAT64 if dtype == "float64" else MOST_FLOAT32
    return -most, most


_RANGES = {dtype: _range_of(dtype) for dtype in ITEM_BYTES if dtype != "bool"}


def fault_of_type(dtype: object, shape: Sequence[object]) -> str | None:
    """What is wrong with a type, to follow the name of what has it; None if it is sound.

    A dimension of 0 does not make up for others that are absurd: products of some of the dimensions are features.

    Args:
        dtype: Name of the element type.
        shape: Its dimensions.
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
    """What is wrong with the values of a constant, to follow its name; None if they are sound.

    Args:
        dtype: A known element type.
        elements: How many of it the constant has.
        data: The values, flat.
    """
    if elements > KEPT_ELEMENTS or len(data) != elements:
        return f"has {len(data)} values for {elements} elements, of which at most {KEPT_ELEMENTS} are written down"
    if dtype == "bool":
        sound = all(type(value) is bool for value in data)
    elif dtype == "string":
        sound = all(map(_is_text, data))
    elif dtype in _RANGES:
        least, most = _RANGES[dtype]
        floating = "float" in dtype
        kinds = (int, float) if floating else (int,)
        sound = all(
            (type(value) in kinds and least <= value <= most) or (floating and value in _NOT_FINITE) for value in data
        )
    else:
        sound = False
    return None if sound else f"has values that {dtype} cannot hold"


def _is_text(value: object) -> bool:
    if not isinstance(value, str) or len(value) > _MOST_CHARACTERS or "\x00" in value:
        return False
    try:
        value.encode()
    except UnicodeEncodeError:  # half of a surrogate pair, which no text has
        return False
    return True
