"""Reads an ONNX file without its weights.

Values of weights do not affect cost and take up nearly all of a file. The functions here parse the protobuf wire format
over a memory map, copy everything but weights, and never touch the memory pages that hold large tensors.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from onnx import TensorProto

from costmodel.ir.constants import mark_omitted

__all__ = ["MalformedProtobufError", "TooManyFieldsError", "keeps_values", "strip_weights"]

# Float tensors up to this size keep their values, because fusions depend on them (an epsilon, a scale).
FLOAT_BYTES = 1024
# Integer tensors up to this size keep their values: they are shapes, indices and masks, on which fusions and shape
# inference depend.
INTEGER_BYTES = 1 << 20

_INTEGERS = {TensorProto.INT64, TensorProto.INT32, TensorProto.BOOL}

# Messages of onnx.proto: the type of each field that is a tensor or can contain one, by field number.
_Fields = Mapping[int, Any]
_TENSOR: _Fields = {}
_SPARSE: _Fields = {1: _TENSOR, 2: _TENSOR}
_GRAPH: dict[int, _Fields] = {5: _TENSOR, 15: _SPARSE}
_ATTRIBUTE: _Fields = {5: _TENSOR, 6: _GRAPH, 10: _TENSOR, 11: _GRAPH, 22: _SPARSE, 23: _SPARSE}
_NODE: _Fields = {5: _ATTRIBUTE}
_GRAPH[1] = _NODE
_FUNCTION: _Fields = {7: _NODE, 11: _ATTRIBUTE}
_MODEL: _Fields = {7: _GRAPH, 25: _FUNCTION}

_PAYLOADS = {
    TensorProto.FLOAT_DATA_FIELD_NUMBER, TensorProto.INT32_DATA_FIELD_NUMBER, TensorProto.INT64_DATA_FIELD_NUMBER,
    TensorProto.RAW_DATA_FIELD_NUMBER, TensorProto.DOUBLE_DATA_FIELD_NUMBER, TensorProto.UINT64_DATA_FIELD_NUMBER,
}  # fmt: skip
_MAX_DEPTH = 64


class MalformedProtobufError(ValueError):
    """The bytes are not a well-formed protobuf message, or end too early."""


def keeps_values(data_type: int, nbytes: int) -> bool:
    """Returns whether `strip_weights` keeps the values of a tensor with this element type and size in bytes."""
    return nbytes <= (INTEGER_BYTES if data_type in _INTEGERS else FLOAT_BYTES)


class TooManyFieldsError(ValueError):
    """A serialised model has more protobuf fields than are accepted."""


class _Buffer:
    """A serialised model and the number of its fields that may still be read."""

    __slots__ = ("data", "fields_left")

    def __init__(self, data: memoryview, max_fields: float) -> None:
        self.data = data
        self.fields_left = max_fields


def strip_weights(data: memoryview, max_fields: float = math.inf) -> bytes:
    """Returns the serialised model in `data` without the values of its large tensors.

    A tensor whose values are omitted is marked as external data at the location `OMITTED`.

    Args:
        data: The serialised model.
        max_fields: The most protobuf fields to read. Limits the time for untrusted models: a field takes about a
            microsecond.

    Raises:
        MalformedProtobufError: `data` is truncated or is not protobuf.
        TooManyFieldsError: `data` has more than `max_fields` fields.
    """
    return b"".join(_stripped_fields(_Buffer(data, max_fields), 0, len(data), _MODEL, 0))


# The functions below take the whole data and a range instead of a slice: a slice kept alive by an exception's traceback
# would hold the memory map open.


def _stripped_fields(view: _Buffer, begin: int, stop: int, fields: _Fields, depth: int) -> Iterator[bytes]:
    """Yields each serialised field of a message, without large tensor values.

    Args:
        view: The serialised model.
        begin: Position at which the message begins.
        stop: Position at which the message ends.
        fields: By number, the fields of the message that can contain tensors; each maps to such fields of the messages
            in it, or to `_TENSOR` if these are tensors.
        depth: Number of messages that enclose this one.
    """
    if depth > _MAX_DEPTH:
        raise MalformedProtobufError("subgraphs are nested too deeply")
    data = view.data
    for number, start, body, end in _iter_fields(view, begin, stop):
        inner = fields.get(number)
        if inner is None or body is None or end - body <= FLOAT_BYTES:
            yield bytes(data[start:end])
            continue
        walked = [_tensor(view, body, end)] if inner is _TENSOR else _stripped_fields(view, body, end, inner, depth + 1)
        short = b"".join(walked)
        yield _varint(number << 3 | 2) + _varint(len(short)) + short


def _tensor(view: _Buffer, begin: int, stop: int) -> bytes:
    """Returns one serialised tensor, without its values if they are large."""
    data, data_type, payload = view.data, 0, 0
    kept = []
    for number, start, body, end in _iter_fields(view, begin, stop):
        if number == TensorProto.DATA_TYPE_FIELD_NUMBER and body is None:
            data_type = _read_varint(data, start + 1, end)[0]
        if number in _PAYLOADS and body is not None:
            payload += end - body
        else:
            kept.append(bytes(data[start:end]))
    if keeps_values(data_type, payload):
        return bytes(data[begin:stop])
    return b"".join([*kept, _OMITTED_MARK])


def _iter_fields(view: _Buffer, position: int, stop: int) -> Iterator[tuple[int, int, int | None, int]]:
    """Yields each field of a message as (field number, start of tag, start of content or None for a scalar, end)."""
    data = view.data
    while position < stop:
        view.fields_left -= 1
        if view.fields_left < 0:
            raise TooManyFieldsError
        start = position
        tag, position = _read_varint(data, position, stop)
        number, wire = tag >> 3, tag & 7
        body = None
        if number == 0:
            raise MalformedProtobufError("a field has the number 0")
        if wire == 0:
            _, position = _read_varint(data, position, stop)
        elif wire == 1:
            position += 8
        elif wire == 5:
            position += 4
        elif wire == 2:
            length, body = _read_varint(data, position, stop)
            position = body + length
        else:
            raise MalformedProtobufError(f"a field has the wire type {wire}")
        if position > stop:
            raise MalformedProtobufError("the data ends in the middle of a field")
        yield number, start, body, position


def _omitted_mark() -> bytes:
    """Returns serialised fields which, appended to those of a tensor, mark its values as omitted."""
    tensor = TensorProto()
    mark_omitted(tensor)
    return bytes(tensor.SerializeToString(deterministic=True))


_OMITTED_MARK = _omitted_mark()


def _read_varint(data: memoryview, position: int, stop: int) -> tuple[int, int]:
    """Returns the varint (protobuf integer of variable length) at `position`, and the position after the varint."""
    value = shift = 0
    while True:
        if position >= stop:
            raise MalformedProtobufError("the data ends in the middle of a number")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return value, position
        shift += 7
        if shift > 63:
            raise MalformedProtobufError("a number is longer than 64 bits")


def _varint(value: int) -> bytes:
    """Returns an integer as a varint, the protobuf encoding of variable length."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
