"""ONNX attributes as JSON-able values and back.

Weights inside attributes (a tensor, or the initialisers of a subgraph) are reduced to their type and shape,
except small ones that shape the work. A number that is not finite, which JSON does not have, is one of the strings
"NaN", "Infinity" and "-Infinity", as in protobuf's own JSON. A subgraph is kept as the base64 of a `GraphProto` whose
names are numbered and whose weights are marked as left out (see `costmodel.skim`).
"""

import base64
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from onnx import AttributeProto, GraphProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from costmodel.constants import data_of, dtype_name, is_kept
from costmodel.messages import messages
from costmodel.skim import OMITTED

__all__ = ["bind_captured", "captured_names", "decode", "encode", "subgraphs"]


def encode(attribute: AttributeProto, rename: Mapping[str, str] | None = None) -> dict[str, Any]:
    """One attribute as {kind: value}.

    Args:
        attribute: Any ONNX attribute except sparse tensors and type protos.
        rename: New names for the values that a subgraph captures from outside; none may look like "b0".

    Raises:
        ValueError: The attribute has a kind that costmodel does not know, or a tensor of one element that is no
            number and no text.
    """
    kind = attribute.type
    if kind == AttributeProto.INT:
        return {"i": attribute.i}
    if kind == AttributeProto.FLOAT:
        return {"f": _shortest(attribute.f)}
    if kind == AttributeProto.STRING:
        return {"s": attribute.s.decode(errors="backslashreplace")}
    if kind == AttributeProto.INTS:
        return {"ints": list(attribute.ints)}
    if kind == AttributeProto.FLOATS:
        return {"floats": [_shortest(f) for f in attribute.floats]}
    if kind == AttributeProto.STRINGS:
        return {"strings": [s.decode(errors="backslashreplace") for s in attribute.strings]}
    if kind == AttributeProto.TENSOR:
        return {"t": _encode_tensor(attribute.t)}
    if kind == AttributeProto.GRAPH:
        body = _numbered(attribute.g, dict(rename or {}))
        return {"g": base64.b64encode(body.SerializeToString(deterministic=True)).decode()}
    raise ValueError(f"the attribute {attribute.name} is of the kind {AttributeProto.AttributeType.Name(kind)}")


def decode(name: str, value: Mapping[str, Any]) -> AttributeProto:
    """The attribute that `encode` wrote down, under `name`."""
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


def subgraphs(attributes: Mapping[str, Mapping[str, Any]]) -> list[GraphProto]:
    """The bodies among encoded attributes: branches of If, bodies of Loop and Scan."""
    return [GraphProto.FromString(base64.b64decode(v["g"])) for v in attributes.values() if "g" in v]


def captured_names(node: NodeProto) -> list[str]:
    """Outer values that the subgraphs of `node` read, in order of first use, each once."""
    found: dict[str, None] = {}
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            _collect_captured(attribute.g, set(), found)
    return list(found)


def bind_captured(graph: GraphProto, names: Mapping[str, str]) -> None:
    """Rename, in place, the captured values that a body reads ("c0", "c1", ...) to those of its network."""
    for node in graph.node:
        for slot, name in enumerate(node.input):
            node.input[slot] = names.get(name, name)
        for attribute in node.attribute:
            if attribute.type == AttributeProto.GRAPH:
                bind_captured(attribute.g, names)
    for port in graph.output:
        port.name = names.get(port.name, port.name)


def _collect_captured(graph: GraphProto, known: set[str], found: dict[str, None]) -> None:
    known = known | {i.name for i in graph.input} | {i.name for i in graph.initializer}
    for node in graph.node:
        for name in node.input:
            if name and name not in known:
                found[name] = None
        for attribute in node.attribute:
            if attribute.type == AttributeProto.GRAPH:
                _collect_captured(attribute.g, known, found)
        known |= set(node.output)
    for output in graph.output:
        if output.name not in known:
            found[output.name] = None


def _shortest(value: float) -> float | str:
    """The shortest decimal that is the same float32, so that equal attributes have equal text."""
    return float(str(np.float32(value))) if math.isfinite(value) else _not_finite(value)


def _not_finite(value: float) -> str:
    """What stands for a number that JSON does not have; `float` reads it back."""
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _encode_tensor(tensor: TensorProto) -> dict[str, Any]:
    encoded: dict[str, Any] = {"dtype": dtype_name(tensor.data_type), "shape": list(tensor.dims)}
    # numpy_helper would open the file that an external tensor names.
    if math.prod(tensor.dims) == 1 and tensor.data_location != TensorProto.EXTERNAL:
        encoded["data"] = [_element(value) for value in numpy_helper.to_array(tensor).reshape(-1).tolist()]
    else:
        data = data_of(tensor)
        if data is not None:
            encoded["data"] = list(data)
    return encoded


def _element(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return _not_finite(value)
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


def _numbered(graph: GraphProto, names: dict[str, str]) -> GraphProto:
    """A copy without names, documentation or weights: local values become b0, b1, ... in order of mention."""
    # One count serves nested bodies too, so that no inner name hides an outer one.
    count = [0]

    def rename(name: str, scope: dict[str, str]) -> str:
        if name and name not in scope:
            scope[name] = f"b{count[0]}"
            count[0] += 1
        return scope.get(name, "")

    def copy(source: GraphProto, scope: dict[str, str]) -> GraphProto:
        target = GraphProto(name="body")
        target.input.extend(_renamed_port(port, rename(port.name, scope)) for port in source.input)
        target.initializer.extend(_renamed_tensor(tensor, rename(tensor.name, scope)) for tensor in source.initializer)
        for node in source.node:
            target.node.append(_numbered_node(node, scope, rename, copy))
        target.output.extend(_renamed_port(port, rename(port.name, scope)) for port in source.output)
        return target

    return copy(graph, names)


def _renamed_port(port: ValueInfoProto, name: str) -> ValueInfoProto:
    renamed = ValueInfoProto(name=name, type=port.type)
    for dim in renamed.type.tensor_type.shape.dim:
        if dim.dim_param:
            dim.Clear()
    return renamed


def _renamed_tensor(tensor: TensorProto, name: str) -> TensorProto:
    if is_kept(tensor) and tensor.data_location != TensorProto.EXTERNAL:
        # written in one of the several ways that mean the same
        return numpy_helper.from_array(numpy_helper.to_array(tensor), name)
    return _left_out(tensor, name)


def _left_out(tensor: TensorProto, name: str) -> TensorProto:
    """The name, type and shape of a tensor."""
    marked = TensorProto(name=name, dims=tensor.dims, data_type=tensor.data_type)
    marked.data_location = TensorProto.EXTERNAL
    marked.external_data.add(key="location", value=OMITTED)
    return marked


def _numbered_node(node: NodeProto, scope: dict[str, str], rename: Any, copy: Any) -> NodeProto:
    target = NodeProto(op_type=node.op_type, domain=node.domain)
    target.input.extend(rename(name, scope) for name in node.input)
    target.output.extend(rename(name, scope) for name in node.output)
    for attribute in sorted(node.attribute, key=lambda a: a.name):
        kept = target.attribute.add()
        if attribute.type == AttributeProto.GRAPH:
            kept.name, kept.type = attribute.name, AttributeProto.GRAPH
            kept.g.CopyFrom(copy(attribute.g, dict(scope)))
        else:
            kept.CopyFrom(attribute)
            kept.doc_string = ""
            for tensor in messages(kept, TensorProto):
                if tensor.data_location == TensorProto.EXTERNAL:  # the name of a file is no part of what runs
                    tensor.CopyFrom(_left_out(tensor, tensor.name))
    return target
