"""Removes from a model everything that does not determine its layers, before the model is sent to a service.

Operators, their settings, the types and shapes of values, and small constants that determine the work remain. Names
become numbers; weights, documentation and metadata are removed. The web page does the same in the browser
(`serving/http/static/strip.js`), and a test compares the results byte by byte.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
from google.protobuf.message import Message
from onnx import ModelProto, TensorProto, helper

from costmodel.errors import ModelReadError
from costmodel.ir.constants import MAX_SIGNATURE_ELEMENTS, mark_omitted
from costmodel.onnx_io.input_shapes import BATCH_NAME

__all__ = ["Anonymised", "anonymise"]

# The fields that are kept, by message type. All other fields are removed, including those of later ONNX versions.
_KEPT: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        message: frozenset(fields.split())
        for message, fields in {
            "ModelProto": "ir_version opset_import graph functions",
            "OperatorSetIdProto": "domain version",
            "GraphProto": "node name initializer input output value_info sparse_initializer",
            "FunctionProto": "name input output attribute node opset_import domain attribute_proto value_info overload",
            "NodeProto": "input output name op_type attribute domain overload",
            "AttributeProto": (
                "name f i s t g floats ints strings tensors graphs tp type_protos type ref_attr_name "
                "sparse_tensor sparse_tensors"
            ),
            "ValueInfoProto": "name type",
            "TypeProto": "tensor_type sequence_type map_type sparse_tensor_type optional_type",
            "Tensor": "elem_type shape",
            "SparseTensor": "elem_type shape",
            "Sequence": "elem_type",
            "Map": "key_type value_type",
            "Optional": "elem_type",
            "TensorShapeProto": "dim",
            "Dimension": "dim_value dim_param",
            "TensorProto": (
                "dims data_type float_data int32_data string_data int64_data name raw_data double_data uint64_data "
                "external_data data_location"
            ),
            "StringStringEntryProto": "key value",
            "SparseTensorProto": "values indices dims",
        }.items()
    }
)
# Fields that always hold names, by message type.
_NAMES: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "GraphProto": frozenset({"name"}),
        "FunctionProto": frozenset({"input", "output", "attribute", "overload"}),
        "NodeProto": frozenset({"input", "output", "name", "overload"}),
        "AttributeProto": frozenset({"ref_attr_name"}),
        "ValueInfoProto": frozenset({"name"}),
        "TensorProto": frozenset({"name"}),
    }
)
# Fields that hold names if the message belongs to a private domain, by message type.
_PRIVATE_NAMES: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "OperatorSetIdProto": frozenset({"domain"}),
        "FunctionProto": frozenset({"name", "domain"}),
        "NodeProto": frozenset({"op_type", "domain"}),
        "AttributeProto": frozenset({"name"}),
    }
)
# Domains whose operators are published; operators of any other domain are private to the model.
_PUBLIC_DOMAIN = re.compile(r"(ai\.onnx|com\.microsoft)(\..*)?|", re.DOTALL)

# Attributes whose text is a setting of an operator. The text of any other attribute is data, such as a label.
_TEXT_SETTINGS = frozenset(
    {
        "activation", "activation_type", "activations", "aggregate_function", "approximate", "attention_mode",
        "auto_pad", "auxiliary_cache_layout", "beta_activation", "case_change_action", "cast_to",
        "coordinate_transformation_mode", "direction", "equation", "gate_activation", "k_cache_dtype", "k_quant_type",
        "keep_aspect_ratio_policy", "kernel_type", "kv_cache_layout", "map_form", "metric", "mode", "nearest_mode",
        "nodes_modes", "norm", "padding_mode", "pixel_format", "policy_mode", "post_transform", "quant_type",
        "reduction", "round_mode", "selected_kv_source", "to", "update_rule", "v_cache_dtype", "v_quant_type",
    }
)  # fmt: skip
# Attributes whose list of floats is a setting. Any other list of floats is weights, such as those of a linear model.
_LIST_SETTINGS = frozenset({"activation_alpha", "activation_beta", "activation_params", "scales"})

# Element types of the small constants whose values are part of a signature (see `costmodel.ir.constants`).
_SIGNATURE_TYPES = frozenset({TensorProto.INT64, TensorProto.BOOL})
# Operators that read shapes or scale factors, with the position of the first such input. The runtime needs the values
# of these inputs, and the values that they are computed from, to infer output shapes.
_SHAPE_INPUTS: Mapping[str, int] = MappingProxyType(
    {"ConstantOfShape": 0, "Range": 0}
    | dict.fromkeys(
        (
            "AffineGrid", "CenterCropPad", "Col2Im", "CropAndResize", "Expand", "Pad", "Reshape", "Resize", "Slice",
            "Split", "Tile", "Upsample",
        ),
        1,
    )
)  # fmt: skip
# Most elements of a shape or a region of interest: two numbers for each of eight dimensions.
_SHAPE_ELEMENTS = 16
# ONNX Runtime merges equal constants of up to this many elements, so which constants are equal must be preserved.
_SHARED_ELEMENTS = 8

# Bit pattern of the number 1 by element type (1 for integers). The replacement values of small constants start there.
_ONE_BITS: Mapping[int, int] = MappingProxyType(
    {
        TensorProto.FLOAT: 0x3F800000, TensorProto.FLOAT16: 0x3C00, TensorProto.BFLOAT16: 0x3F80,
        TensorProto.DOUBLE: 0x3FF0000000000000,
    }
)  # fmt: skip
_LISTS = {"float_data": "<f4", "int32_data": "<i4", "int64_data": "<i8", "double_data": "<f8", "uint64_data": "<u8"}
_NUMBERS = ("raw_data", *_LISTS)

_NUMBERED = re.compile(r"(?<![A-Za-z0-9])(?:batch_)?n(\d+)(?![A-Za-z0-9])")


@dataclass(frozen=True, slots=True)
class Anonymised:
    """A model that can be sent to a service without revealing names or weights.

    Attributes:
        content: The serialised model, in which names are "n0", "n1", ...
        names: The original names: the one at position 3 became "n3".
    """

    content: bytes
    names: tuple[str, ...]

    def number(self, name: str) -> str:
        """Returns the anonymous form of `name`, for example "n3"; `name` itself if the model does not contain it."""
        return f"n{self.names.index(name)}" if name in self.names else name

    def restore(self, text: str) -> str:
        """Replaces anonymous names by the original ones in a text from the service, such as an error message."""

        def original(match: re.Match[str]) -> str:
            number = int(match[1])
            return self.names[number] if number < len(self.names) else match[0]

        return _NUMBERED.sub(original, text)


def anonymise(model: ModelProto) -> Anonymised:
    """Returns a copy of `model` that keeps only what determines its layers, together with the original names.

    Raises:
        ModelReadError: A name in the model is not valid UTF-8 text.
    """
    copy = ModelProto()
    copy.CopyFrom(model)
    copy.DiscardUnknownFields()
    cleaner = _Cleaner(
        frozenset(_shape_value_names(list(_nodes(copy.graph)) + [n for f in copy.functions for n in f.node]))
    )
    cleaner.clean(copy)
    return Anonymised(copy.SerializeToString(deterministic=True), tuple(cleaner.numbers))


def _nodes(message: Any) -> Iterator[Any]:
    """Yields the nodes of a graph and of all subgraphs in it."""
    for node in message.node:
        yield node
        for attribute in node.attribute:
            for graph in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                yield from _nodes(graph)


def _shape_value_names(nodes: list[Any]) -> set[str]:
    """Returns the names of the values from which the shapes of other values are computed."""
    producers = {name: node for node in nodes for name in node.output}
    waiting = [name for node in nodes for name in node.input[_SHAPE_INPUTS.get(node.op_type, len(node.input)) :]]
    shape_values: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in shape_values:
            continue
        shape_values.add(name)
        producer = producers.get(name)
        # Shape and Size do not depend on the elements of their input.
        if producer is not None and producer.op_type not in ("Shape", "Size"):
            waiting.extend(producer.input)
    return shape_values


@dataclass(frozen=True, slots=True)
class _Cleaner:
    """Anonymiser of the protobuf messages of a model, in place; visits fields in the order of their numbers.

    Attributes:
        shaping: Names of the values from which the shapes of other values are computed.
        numbers: Number assigned to each name, in order of occurrence.
        values: Number assigned to each distinct small constant that gets other values, in order of occurrence.
    """

    shaping: frozenset[str]
    numbers: dict[str, int] = field(default_factory=dict)
    values: dict[tuple[object, ...], int] = field(default_factory=dict)

    def clean(self, message: Message, *, private: bool = False, shapes: bool = False) -> None:
        """Anonymises one message and the messages inside it, in place.

        Args:
            message: Any ONNX message.
            private: Whether the message belongs to a node of a private domain, whose operators are not published.
            shapes: Whether the message belongs to a node from whose output the shapes of other values are computed.
        """
        kind = message.DESCRIPTOR.name
        self._prepare(message, kind, private=private, shapes=shapes)
        if kind in ("OperatorSetIdProto", "FunctionProto", "NodeProto"):
            private = _PUBLIC_DOMAIN.fullmatch(message.domain) is None
        if kind == "NodeProto":
            shapes = not self.shaping.isdisjoint(message.output)
        names = _NAMES.get(kind, frozenset()) | (_PRIVATE_NAMES.get(kind, frozenset()) if private else frozenset())
        for descriptor, value in message.ListFields():
            if descriptor.name not in _KEPT[kind]:
                message.ClearField(descriptor.name)
            elif descriptor.name in names:
                self._rename(message, descriptor.name, value)
            elif descriptor.name == "dim_param":  # keep batch dimensions recognisable: `fix_inputs` finds them by name
                batch = "batch_" if BATCH_NAME.match(value) else ""
                setattr(message, descriptor.name, batch + self._number(value))
            elif descriptor.message_type is not None:
                for part in [value] if isinstance(value, Message) else value:
                    self.clean(part, private=private, shapes=shapes)

    def _prepare(self, message: Any, kind: str, *, private: bool, shapes: bool) -> None:
        if kind == "TensorProto":
            self._limit_values(message, shapes=shapes or message.name in self.shaping)
        elif kind == "SparseTensorProto":
            for _, tensor in message.ListFields():
                if isinstance(tensor, TensorProto):
                    _clear(tensor, "string_data", *_NUMBERS)
                    tensor.dims[:] = [0]
        elif kind == "AttributeProto":
            _limit_attribute(message, private=private, shapes=shapes)

    def _limit_values(self, tensor: Any, *, shapes: bool) -> None:
        """Removes or replaces the values of a tensor if they are strings, or more numbers than may be sent.

        How many may be sent depends on the element type, and on whether shapes are computed from them. Strings become
        numbered placeholders. Beyond the limit, a constant of at most `_SHARED_ELEMENTS` numbers gets other numbers,
        the same for equal constants; the values of larger constants are marked as omitted.
        """
        external = tensor.data_location == TensorProto.EXTERNAL
        _clear(tensor, "external_data", "data_location")
        if tensor.data_type == TensorProto.STRING:
            _clear(tensor, *_NUMBERS)
            tensor.string_data[:] = _placeholder_texts(tensor.string_data)
            return
        _clear(tensor, "string_data")
        width = _element_bytes(tensor.data_type)
        count = len(tensor.raw_data) // width + sum(len(getattr(tensor, one)) for one in _LISTS)
        limit = 2 if all(size == 1 for size in tensor.dims) else 0  # a complex number is stored as two
        if tensor.data_type in _SIGNATURE_TYPES:
            limit = MAX_SIGNATURE_ELEMENTS
        elif shapes:
            limit = _SHAPE_ELEMENTS
        if count <= limit and not external:
            return
        if count <= _SHARED_ELEMENTS and not external:
            lists = (np.array(getattr(tensor, name), dtype).tobytes() for name, dtype in _LISTS.items())
            value = (tensor.data_type, *tensor.dims, tensor.raw_data, *lists)
            number = self.values.setdefault(value, len(self.values)) % (1 << min(8 * width - 2, 30))
            _clear(tensor, *_NUMBERS)
            tensor.raw_data = (_ONE_BITS.get(tensor.data_type, 1) + number).to_bytes(width, "little") * count
            return
        _clear(tensor, *_NUMBERS)
        mark_omitted(tensor)

    def _rename(self, message: Message, field_name: str, value: Any) -> None:
        if isinstance(value, str | bytes):
            setattr(message, field_name, self._number(value))
        else:
            value[:] = [self._number(name) for name in value]

    def _number(self, name: str | bytes) -> str:
        if not isinstance(name, str):  # protobuf returns bytes if they are not UTF-8
            raise ModelReadError(f"the model is damaged (the name {name!r} is no text): copy it again")
        return f"n{self.numbers.setdefault(name, len(self.numbers))}" if name else ""


def _element_bytes(data_type: int) -> int:
    """Returns the size of one element in bytes; 1 for an unknown element type."""
    try:
        return int(helper.tensor_dtype_to_np_dtype(data_type).itemsize)
    except KeyError:
        return 1


def _clear(message: Message, *names: str) -> None:
    for name in names:
        message.ClearField(name)


def _limit_attribute(attribute: Any, *, private: bool, shapes: bool) -> None:
    """Replaces text and lists of several floats in an attribute, in place, unless they are settings of its operator.

    A text becomes empty, the texts of a list become "0", "1", ..., and the floats of a list become 0. So do more than
    `_SHAPE_ELEMENTS` floats of a setting, and more integers of a constant than belong in a signature.

    Args:
        attribute: ONNX attribute to change.
        private: Whether the attribute belongs to a node of a private domain, of which no settings are known.
        shapes: Whether the attribute belongs to a node from whose output the shapes of other values are computed; then
            its list of floats counts as a setting, even in a private domain.
    """
    if private or attribute.name not in _TEXT_SETTINGS:
        if attribute.s:
            attribute.s = b""
        attribute.strings[:] = _placeholder_texts(attribute.strings)
    setting = shapes or (attribute.name in _LIST_SETTINGS and not private)
    if len(attribute.floats) > (_SHAPE_ELEMENTS if setting else 1):
        attribute.floats[:] = [0.0] * len(attribute.floats)
    # This attribute of a Constant node stands for a tensor.
    if attribute.name == "value_ints" and len(attribute.ints) > MAX_SIGNATURE_ELEMENTS:
        attribute.ints[:] = [0] * len(attribute.ints)


def _placeholder_texts(texts: Any) -> list[bytes]:
    """Returns a different text ("0", "1", ...) for each of `texts`."""
    return [str(position).encode() for position in range(len(texts))]
