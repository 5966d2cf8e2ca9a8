"""Encodes ONNX attributes as JSON-serialisable values and decodes them.

Weights inside attributes (a tensor, or the initialisers of a subgraph) are reduced to their type and shape; small
constants that determine the work of a layer, such as a shape, keep their values. JSON has no NaN or infinity, so these
numbers become the strings "NaN", "Infinity" and "-Infinity", as in protobuf's own JSON. A subgraph becomes the base64
of a `GraphProto` whose names are numbered and whose weights are marked as omitted (see
`costmodel.onnx_io.strip_weights`).
"""

import base64
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from onnx import AttributeProto, GraphProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from costmodel.ir.constants import dtype_name, is_counter, is_in_signature, mark_omitted, signature_data
from costmodel.ir.protobuf import messages

__all__ = ["bind_captured", "captured_names", "decode_attribute", "encode_attribute", "integer", "subgraphs"]

# The attribute with what a Loop or a Scan repeats; those of an If have other names.
_LOOPED = "body"


def encode_attribute(attribute: AttributeProto, rename: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Returns one ONNX attribute as a JSON-serialisable dictionary {kind: value}, such as {"ints": [1, 1]}.

    Args:
        attribute: Any ONNX attribute except sparse tensors and type protos.
        rename: New name of each value that a subgraph captures from the graph around it. No new name may have the
            form "b0", which is reserved for the numbered local values of the subgraph.

    Raises:
        ValueError: The kind of the attribute is unsupported, or the attribute is a tensor of one element that is
            neither a number nor text.
    """
    kind = attribute.type
    if kind == AttributeProto.INT:
        return {"i": attribute.i}
    if kind == AttributeProto.FLOAT:
        return {"f": _shortest_float(attribute.f)}
    if kind == AttributeProto.STRING:
        return {"s": attribute.s.decode(errors="backslashreplace")}
    if kind == AttributeProto.INTS:
        return {"ints": list(attribute.ints)}
    if kind == AttributeProto.FLOATS:
        return {"floats": [_shortest_float(f) for f in attribute.floats]}
    if kind == AttributeProto.STRINGS:
        return {"strings": [s.decode(errors="backslashreplace") for s in attribute.strings]}
    if kind == AttributeProto.TENSOR:
        return {"t": _encode_tensor(attribute.t)}
    if kind == AttributeProto.GRAPH:
        body = _with_numbered_names(attribute.g, dict(rename or {}), counts=attribute.name == _LOOPED)
        return {"g": base64.b64encode(body.SerializeToString(deterministic=True)).decode()}
    raise ValueError(f"the attribute {attribute.name} is of the kind {AttributeProto.AttributeType.Name(kind)}")


def decode_attribute(name: str, value: Mapping[str, Any]) -> AttributeProto:
    """Returns the ONNX attribute called `name` whose encoded value, made by `encode_attribute`, is `value`."""
    ((kind, content),) = value.items()
    if kind == "t":
        content = _decode_tensor(content)
    elif kind == "f":
        content = float(content)
    elif kind == "floats":
        content = [float(number) for number in content]
    elif kind == "g":
        content = GraphProto.FromString(base64.b64decode(content))
    types = {
        "i": AttributeProto.INT,
        "f": AttributeProto.FLOAT,
        "s": AttributeProto.STRING,
        "ints": AttributeProto.INTS,
        "floats": AttributeProto.FLOATS,
        "strings": AttributeProto.STRINGS,
        "t": AttributeProto.TENSOR,
        "g": AttributeProto.GRAPH,
    }
    return helper.make_attribute(name, content, attr_type=types[kind])


def integer(attributes: Mapping[str, Mapping[str, Any]], name: str, default: int) -> int:
    """Returns the value of an attribute that is an integer; the default if there is none of that name and kind."""
    value = attributes.get(name, {}).get("i", default)
    return value if isinstance(value, int) else default


def subgraphs(attributes: Mapping[str, Mapping[str, Any]]) -> list[GraphProto]:
    """Returns the subgraphs among the encoded attributes of a layer: branches of If, bodies of Loop and Scan."""
    return [GraphProto.FromString(base64.b64decode(v["g"])) for v in attributes.values() if "g" in v]


def captured_names(node: NodeProto) -> list[str]:
    """Returns the names of the values outside `node` that its subgraphs read, each once, in order of first use."""
    captured: dict[str, None] = {}
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            _collect_captured(attribute.g, set(), captured)
    return list(captured)


def bind_captured(graph: GraphProto, names: Mapping[str, str]) -> None:
    """Renames the captured values of a subgraph ("c0", "c1", ...), in place, to their names in the enclosing graph.

    Args:
        graph: Subgraph to change; nested subgraphs are changed too.
        names: Name in the enclosing graph of each captured value, by its name in the subgraph.
    """
    for node in graph.node:
        for slot, name in enumerate(node.input):
            node.input[slot] = names.get(name, name)
        for attribute in node.attribute:
            if attribute.type == AttributeProto.GRAPH:
                bind_captured(attribute.g, names)
    for port in graph.output:
        port.name = names.get(port.name, port.name)


def _collect_captured(graph: GraphProto, known: set[str], captured: dict[str, None]) -> None:
    """Adds to `captured` the names of the values that `graph` reads but does not define, except those in `known`."""
    known = known | {i.name for i in graph.input} | {i.name for i in graph.initializer}
    for node in graph.node:
        for name in node.input:
            if name and name not in known:
                captured[name] = None
        for attribute in node.attribute:
            if attribute.type == AttributeProto.GRAPH:
                _collect_captured(attribute.g, known, captured)
        known |= set(node.output)
    for output in graph.output:
        if output.name not in known:
            captured[output.name] = None


def _shortest_float(value: float) -> float | str:
    """Returns the shortest decimal that denotes the same float32, so that equal numbers have equal JSON text."""
    return float(str(np.float32(value))) if math.isfinite(value) else _nonfinite_text(value)


def _nonfinite_text(value: float) -> str:
    """Returns the text that represents NaN or an infinity, which JSON lacks; Python's `float` parses that text."""
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _encode_tensor(tensor: TensorProto) -> dict[str, Any]:
    encoded: dict[str, Any] = {"dtype": dtype_name(tensor.data_type), "shape": list(tensor.dims)}
    # An external tensor is excluded because numpy_helper would open the file that it names.
    if math.prod(tensor.dims) == 1 and tensor.data_location != TensorProto.EXTERNAL:
        encoded["data"] = [_element(value) for value in numpy_helper.to_array(tensor).reshape(-1).tolist()]
    else:
        data = signature_data(tensor)
        if data is not None:
            encoded["data"] = list(data)
    return encoded


def _element(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return _nonfinite_text(value)
    if not isinstance(value, bool | int | float | str):
        raise ValueError(f"a constant holds a {type(value).__name__}, which is no number and no text")
    return value


def _decode_tensor(value: Mapping[str, Any]) -> TensorProto:
    shape = tuple(value["shape"])
    data = value.get("data", [0] * math.prod(shape))
    if value["dtype"] == "string":
        return helper.make_tensor("", TensorProto.STRING, shape, data)
    numbers = [float(number) if isinstance(number, str) else number for number in data]
    return numpy_helper.from_array(np.array(numbers, dtype=value["dtype"]).reshape(shape))


def _with_numbered_names(graph: GraphProto, names: dict[str, str], *, counts: bool) -> GraphProto:
    """Returns a copy of a subgraph with numbered names and without documentation and weights.

    Args:
        graph: Subgraph of an attribute.
        names: New name of each captured value. Local values are renamed b0, b1, ... in order of first mention.
        counts: Whether it is the body of a loop, which keeps the numbers that it may count with (`is_counter`).
    """
    # The counter is shared with nested subgraphs, so that no inner name shadows an outer one.
    count = [0]

    def rename(name: str, scope: dict[str, str]) -> str:
        if name and name not in scope:
            scope[name] = f"b{count[0]}"
            count[0] += 1
        return scope.get(name, "")

    def copy(source: GraphProto, scope: dict[str, str], counts: bool) -> GraphProto:
        target = GraphProto(name="body")
        target.input.extend(_renamed_port(port, rename(port.name, scope)) for port in source.input)
        target.initializer.extend(
            _renamed_tensor(tensor, rename(tensor.name, scope), counts=counts) for tensor in source.initializer
        )
        for node in source.node:
            target.node.append(_numbered_node(node, scope, rename, copy))
        target.output.extend(_renamed_port(port, rename(port.name, scope)) for port in source.output)
        return target

    return copy(graph, names, counts)


def _renamed_port(port: ValueInfoProto, name: str) -> ValueInfoProto:
    renamed = ValueInfoProto(name=name, type=port.type)
    for dim in renamed.type.tensor_type.shape.dim:
        if dim.dim_param:
            dim.Clear()
    return renamed


def _renamed_tensor(tensor: TensorProto, name: str, *, counts: bool) -> TensorProto:
    if (is_in_signature(tensor) or (counts and is_counter(tensor))) and tensor.data_location != TensorProto.EXTERNAL:
        # A tensor proto can hold the same values in several fields: convert them to one form.
        return numpy_helper.from_array(numpy_helper.to_array(tensor), name)
    return _without_values(tensor, name)


def _without_values(tensor: TensorProto, name: str) -> TensorProto:
    """Returns a tensor called `name` with the type and shape of `tensor`, its values marked as omitted."""
    marked = TensorProto(name=name, dims=tensor.dims, data_type=tensor.data_type)
    mark_omitted(marked)
    return marked


def _numbered_node(node: NodeProto, scope: dict[str, str], rename: Any, copy: Any) -> NodeProto:
    target = NodeProto(op_type=node.op_type, domain=node.domain)
    target.input.extend(rename(name, scope) for name in node.input)
    target.output.extend(rename(name, scope) for name in node.output)
    for attribute in sorted(node.attribute, key=lambda a: a.name):
        kept = target.attribute.add()
        if attribute.type == AttributeProto.GRAPH:
            kept.name, kept.type = attribute.name, AttributeProto.GRAPH
            kept.g.CopyFrom(copy(attribute.g, dict(scope), attribute.name == _LOOPED))
        else:
            kept.CopyFrom(attribute)
            kept.doc_string = ""
            for tensor in messages(kept, TensorProto):
                if tensor.data_location == TensorProto.EXTERNAL:  # a file name does not affect execution
                    tensor.CopyFrom(_without_values(tensor, tensor.name))
    return target
