"""Validates attributes of layers.

Each attribute is of one of eight kinds, such as integer, list of floats or tensor; the bounds of its value depend on
its kind and its name.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, FailFast, Field, TypeAdapter, ValidationError

from costmodel.onnx_io.input_shapes import MAX_DIMENSION, MAX_RANK
from costmodel.serving.validation.tensors import MOST_FLOAT32, fault_of_data, fault_of_type

__all__ = ["MOST_ATTRIBUTES", "fault_of_attribute"]

MOST_ATTRIBUTES = 256
_MOST_ELEMENTS = 10_000_000  # enough for the nodes of a large tree ensemble; reading such a list takes linear time
_MOST_CHARACTERS = 1 << 20
_MOST_SUBGRAPH_CHARACTERS = 1 << 25
_MOST_EQUATION_CHARACTERS = 1024
_MOST_NAME_CHARACTERS = 128
_BASE64 = r"^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"

_Int64 = Annotated[int, Field(ge=-(2**63), le=2**63 - 1)]
# Numbers that JSON cannot represent are written as text (see costmodel.ir.attributes).
_Finite = Annotated[float, Field(ge=-MOST_FLOAT32, le=MOST_FLOAT32, allow_inf_nan=False)]
_Float32 = Annotated[_Finite | Literal["NaN", "Infinity", "-Infinity"], Field(union_mode="left_to_right")]
_Text = Annotated[str, Field(max_length=_MOST_CHARACTERS, pattern=r"^[^\x00]*$")]


@dataclass(frozen=True, slots=True)
class _Kind:
    """Requirement on the values of attributes: of all attributes of a kind, or of those with a particular name.

    Attributes:
        adapter: Validator of values.
        described: Description of the valid values for messages, such as "an integer of 64 bits".
    """

    adapter: TypeAdapter[Any]
    described: str


def _kind(of: Any, described: str) -> _Kind:
    return _Kind(TypeAdapter(of, config=ConfigDict(strict=True)), described)


def _integer(least: int, most: int = MAX_DIMENSION) -> _Kind:
    return _kind(Annotated[int, Field(ge=least, le=most)], f"an integer from {least} to {most}")


def _list_of(item: Any, described: str, most: int = _MOST_ELEMENTS, least: int = 0) -> _Kind:
    # Stops at the first error, so that a million errors do not produce a million messages.
    listed = Annotated[list[item], Field(min_length=least, max_length=most), FailFast()]
    return _kind(listed, f"a list of {least} to {most} {described}")


def _integers(least: int, most: int, *, longest: int = MAX_RANK, shortest: int = 0) -> _Kind:
    item = Annotated[int, Field(ge=least, le=most)]
    return _list_of(item, f"integers from {least} to {most}", longest, shortest)


_KINDS = {
    "i": _kind(_Int64, "an integer of 64 bits"),
    "f": _kind(_Float32, "a number that float32 holds"),
    "s": _kind(_Text, f"a text of at most {_MOST_CHARACTERS} characters without NUL"),
    "ints": _list_of(_Int64, "integers of 64 bits"),
    "floats": _list_of(_Float32, "numbers that float32 holds"),
    "strings": _list_of(_Text, "texts without NUL"),
    "g": _kind(
        Annotated[str, Field(max_length=_MOST_SUBGRAPH_CHARACTERS, pattern=_BASE64)],
        f"base64 of at most {_MOST_SUBGRAPH_CHARACTERS} characters",
    ),
}

_SIZES = _integers(1, MAX_DIMENSION, shortest=1)
_SHAPE = _integers(0, MAX_DIMENSION)
_AXES = _integers(-MAX_RANK, MAX_RANK)
_HEADS = _integer(0)
_SIZE = _integer(1)

# Attributes that determine sizes are bounded by their meaning, for all operators.
_NAMED = {
    ("kernel_shape", "ints"): _SIZES,
    ("strides", "ints"): _SIZES,
    ("dilations", "ints"): _SIZES,
    ("pads", "ints"): _integers(-MAX_DIMENSION, MAX_DIMENSION, longest=2 * MAX_RANK),
    ("output_padding", "ints"): _SHAPE,
    ("output_shape", "ints"): _SHAPE,
    ("shape", "ints"): _SHAPE,
    ("scales", "ints"): _SHAPE,
    ("scales", "floats"): _list_of(_Float32, "numbers that float32 holds", MAX_RANK),
    ("axes", "ints"): _AXES,
    ("perm", "ints"): _AXES,
    ("axis", "i"): _integer(-MAX_RANK, MAX_RANK),
    ("group", "i"): _SIZE,
    ("size", "i"): _SIZE,
    ("N", "i"): _SIZE,
    ("K", "i"): _SIZE,
    ("num_heads", "i"): _HEADS,
    ("q_num_heads", "i"): _HEADS,
    ("kv_num_heads", "i"): _HEADS,
    ("equation", "s"): _kind(
        Annotated[str, Field(max_length=_MOST_EQUATION_CHARACTERS, pattern=r"^[A-Za-z,.\-> ]*$")],
        f"at most {_MOST_EQUATION_CHARACTERS} letters, commas, dots, blanks and an arrow",
    ),
}
# Attributes that are read as integers, for all operators.
_INTEGERS = frozenset({"axis", "group", "num_heads", "q_num_heads", "transA", "transB", "transBatchA"})


def fault_of_attribute(name: object, content: object) -> str | None:
    """Returns what is wrong with an attribute; None if it is valid.

    The text is a predicate, such as "must be of the kind i", before which the caller puts the name of the attribute.

    Args:
        name: Name of the attribute.
        content: The attribute as {kind: value}, in the form that `costmodel.ir.attributes.encode_attribute` returns.
    """
    if not isinstance(name, str) or not 0 < len(name) <= _MOST_NAME_CHARACTERS or not name.isprintable():
        return "must have a name that can be printed"
    if not isinstance(content, Mapping) or len(content) != 1:
        return "must be of exactly one kind"
    ((kind, held),) = content.items()
    if name in _INTEGERS and kind != "i":
        return "must be of the kind i"
    if kind == "t":
        return _fault_of_tensor(held)
    expected = _NAMED.get((name, kind)) or _KINDS.get(kind)
    if expected is None:
        return f"must be of one of the kinds {', '.join(_KINDS)}, t"
    try:
        expected.adapter.validate_python(held)
    except ValidationError:
        return f"must be {expected.described}"
    return None


def _fault_of_tensor(held: object) -> str | None:
    if not isinstance(held, Mapping) or not {"dtype", "shape"} <= held.keys() <= {"dtype", "shape", "data"}:
        return "must be a tensor with the keys dtype, shape and, where its values are known, data"
    dtype, shape, data = held["dtype"], held["shape"], held.get("data")
    if not isinstance(shape, list):
        return "must be a tensor whose shape is a list"
    fault = fault_of_type(dtype, shape)
    if fault is None and data is not None:
        fault = fault_of_data(dtype, prod(shape), data) if isinstance(data, list) else "has data that is no list"
    return fault
