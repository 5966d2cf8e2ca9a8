"""Runnable networks: the stand-alone ONNX model made from a layer sequence."""

from collections.abc import Iterable

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from costmodel.attributes import bind_captured, decode
from costmodel.constants import data_type_of, dtype_name
from costmodel.external import omitted_bytes, set_location
from costmodel.graph import TensorType
from costmodel.operators import opset_for
from costmodel.sequence import LayerSequence, SequenceLayer, Value
from costmodel.synthesis import synthetic_like

__all__ = [
    "IR_VERSION",
    "build_network",
    "external_tensor",
    "input_indices",
    "make_node",
    "value_name",
    "weight_indices",
]

IR_VERSION = 9
_DONE = "done"


def value_name(index: int) -> str:
    """The name in a runnable network of the value with this index; "" where an optional value is absent."""
    return f"v{index}" if index >= 0 else ""


def input_indices(sequence: LayerSequence) -> list[int]:
    """Indices of the values that a caller feeds."""
    return [i for i, value in enumerate(sequence.values) if value.role == "input"]


def weight_indices(sequence: LayerSequence) -> list[int]:
    """Indices of the constants whose values are synthetic."""
    return [i for i, value in enumerate(sequence.values) if value.role == "constant" and value.data is None]


def external_tensor(name: str, value: Value, location: str) -> TensorProto:
    """A weight that is declared here and supplied when the network is loaded."""
    tensor = TensorProto(
        name=name,
        dims=value.type.shape,
        data_type=data_type_of(value.type.dtype),
        data_location=TensorProto.EXTERNAL,
    )
    set_location(tensor, location)
    return tensor


def build_network(
    sequence: LayerSequence, *, weights: Iterable[TensorProto | NodeProto], discarding: bool = False
) -> ModelProto:
    """The runnable network of `sequence`, exactly as its layers say.

    Values are named v0, v1, ... by their index. An input keeps its shape; nothing else in the network says where
    the sequence came from.

    Args:
        sequence: What to build; for a blocked one, see `costmodel.blocked`.
        weights: An initialiser, or a node that makes the value, for each index of `weight_indices`.
        discarding: Leave every result inside, as if layers behind had read it; the only output is a constant.
    """
    graph = GraphProto(name="sequence")
    for weight in weights:
        (graph.initializer if isinstance(weight, TensorProto) else graph.node).append(weight)
    for index, value in enumerate(sequence.values):
        if value.role == "constant" and value.data is not None:
            graph.initializer.append(
                helper.make_tensor(
                    value_name(index), data_type_of(value.type.dtype), value.type.shape, list(value.data)
                )
            )
    graph.node.extend(make_node(f"layer{position}", layer) for position, layer in enumerate(sequence.layers))
    graph.input.extend(_port(sequence, i) for i in input_indices(sequence))
    if discarding:
        graph.initializer.append(numpy_helper.from_array(np.ones(1, np.float32), _DONE))
        graph.output.append(helper.make_tensor_value_info(_DONE, TensorProto.FLOAT, [1]))
    else:
        graph.output.extend(_port(sequence, i) for i in sequence.outputs)
    opset = opset_for([(layer.op_type, layer.domain, layer.since) for layer in sequence.layers])
    others = sorted(_domains(graph) - {"", "ai.onnx"})
    versions = {"ai.onnx.ml": _ml_version(sequence)}  # other domains than that and ONNX's own have one
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, versions.get(d, 1)) for d in others)]
    return helper.make_model(graph, ir_version=IR_VERSION, opset_imports=imports, producer_name="costmodel")


def _ml_version(sequence: LayerSequence) -> int:
    """The version of ai.onnx.ml that knows all of the layers, which came from one model.

    The third runs all that there is in others, except what was added later and what was there before only.
    """
    for layer in sequence.layers:
        if layer.op_type == "TreeEnsemble":
            return 5
        if layer.op_type == "LabelEncoder" and "classes_strings" in layer.attributes:
            return 1
        if layer.op_type == "LabelEncoder" and any(name.endswith("_tensor") for name in layer.attributes):
            return 4
    return 3


def _port(sequence: LayerSequence, index: int) -> ValueInfoProto:
    kind = sequence.values[index].type
    return helper.make_tensor_value_info(value_name(index), data_type_of(kind.dtype), kind.shape)


def _domains(graph: GraphProto) -> set[str]:
    """Domains of the operators in a graph and in the subgraphs in it."""
    found = {node.domain for node in graph.node}
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                found |= _domains(attribute.g)
    return found


def _fill(body: GraphProto) -> None:
    """Give the weights of a body values; they cannot be supplied from outside, as the network's own can."""
    for tensor in body.initializer:
        if omitted_bytes(tensor):
            kind = TensorType(dtype_name(tensor.data_type), tuple(tensor.dims))
            tensor.CopyFrom(numpy_helper.from_array(synthetic_like(kind), tensor.name))
    for node in body.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _fill(attribute.g)


def make_node(name: str, layer: SequenceLayer) -> NodeProto:
    """One layer of a sequence as a node of a network."""
    explicit = layer.inputs[: len(layer.inputs) - layer.captured]
    captured = layer.inputs[len(explicit) :]
    node = NodeProto(op_type=layer.op_type, domain=layer.domain, name=name)
    node.input.extend(value_name(i) for i in explicit)
    node.output.extend(value_name(i) for i in layer.outputs)
    names = {f"c{slot}": value_name(index) for slot, index in enumerate(captured)}
    for name, encoded in layer.attributes.items():
        attribute = decode(name, encoded)
        if attribute.HasField("g"):
            bind_captured(attribute.g, names)
            _fill(attribute.g)
        node.attribute.append(attribute)
    return node
