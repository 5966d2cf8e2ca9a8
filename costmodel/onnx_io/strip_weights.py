"""Reads an ONNX file without its weights.

Weights do not affect cost and are nearly all of a file. The reader parses the protobuf wire format over a memory map,
copies everything but weights, and never touches the pages that hold large tensors.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from onnx import TensorProto

from costmodel.ir.constants import OMITTED

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

_DATA_TYPE, _EXTERNAL_DATA, _DATA_LOCATION = 2, 13, 14
_PAYLOADS = {4, 5, 7, 9, 10, 11}  # float_data, int32_data, int64_data, raw_data, double_data, uint64_data
_MAX_DEPTH = 64


class MalformedProtobufError(ValueError):
    """The bytes are not a well-formed protobuf message, or end too early."""


def keeps_values(data_type: int, nbytes: int) -> bool:
    """Returns whether a tensor keeps its values, which depends on its element type and size in bytes."""
    return nbytes <= (INTEGER_BYTES if data_type in _INTEGERS else FLOAT_BYTES)


class TooManyFieldsError(ValueError):
    """The message has more fields than are accepted."""


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
    """Yields the fields of a message without large tensor values; `fields` describes its type."""
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
        if number == _DATA_TYPE and body is None:
            data_type = _read_varint(data, start + 1, end)[0]
        if number in _PAYLOADS and body is not None:
            payload += end - body
        else:
            kept.append(bytes(data[start:end]))
    if keeps_values(data_type, payload):
        return bytes(data[begin:stop])
    entry = _text(1, "location") + _text(2, OMITTED)
    kept.append(_varint(_EXTERNAL_DATA << 3 | 2) + _varint(len(entry)) + entry)
    kept.append(_varint(_DATA_LOCATION << 3) + _varint(TensorProto.EXTERNAL))
    return b"".join(kept)


def _iter_fields(view: _Buffer, position: int, stop: int) -> Iterator[tuple[int, int, int | None, int]]:
    """Yields every field as (number, start of tag, start of content or None for a scalar, end)."""
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


def _read_varint(data: memoryview, position: int, stop: int) -> tuple[int, int]:
    """Returns the varint at `position` and the position after it."""
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
    """Encodes an integer as a varint."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _text(number: int, text: str) -> bytes:
    """Encodes a string field with the given field number."""
    encoded = text.encode()
    return _varint(number << 3 | 2) + _varint(len(encoded)) + encoded
