"""Builds runnable networks: stand-alone ONNX models made from layer sequences."""

from collections.abc import Iterable

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from costmodel.ir.attributes import bind_captured, decode_attribute
from costmodel.ir.constants import data_type_of, dtype_name
from costmodel.ir.graph import TensorType
from costmodel.ir.operators import opset_for
from costmodel.ir.protobuf import messages
from costmodel.ir.sequence import LayerSequence, SequenceLayer, Value, input_indices
from costmodel.onnx_io.external_data import omitted_bytes, set_location
from costmodel.synthetic.values import synthetic_tensor

__all__ = [
    "IR_VERSION",
    "build_network",
    "external_tensor",
    "make_node",
    "value_name",
]

IR_VERSION = 9
_CONSTANT_OUTPUT = "done"


def value_name(index: int) -> str:
    """Returns the name, in a runnable network, of the value with this index; "" for an absent value (index -1)."""
    return f"v{index}" if index >= 0 else ""


def external_tensor(name: str, value: Value, location: str) -> TensorProto:
    """Returns a weight without values, which are supplied under the file name `location` when the network is loaded."""
    tensor = TensorProto(
        name=name,
        dims=value.type.shape,
        data_type=data_type_of(value.type.dtype),
        data_location=TensorProto.EXTERNAL,
    )
    set_location(tensor, location)
    return tensor


def build_network(
    sequence: LayerSequence, *, weights: Iterable[TensorProto | NodeProto], discard_outputs: bool = False
) -> ModelProto:
    """Returns the runnable network of a sequence, with one node for each layer.

    Values are named v0, v1, ... by their index. Inputs keep their shapes; nothing in the network reveals the model that
    the sequence occurs in.

    Args:
        sequence: Sequence to build. A blocked one must be materialised or made portable first (`costmodel.ir.nchwc`).
        weights: For each weight of the sequence (see `weight_indices`), an initialiser, or a node that produces the
            value and the initialisers that the node reads.
        discard_outputs: Whether no result of a layer is an output of the network, as if later layers had read the
            results; its only output is then a constant.
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
    if discard_outputs:
        graph.initializer.append(numpy_helper.from_array(np.ones(1, np.float32), _CONSTANT_OUTPUT))
        graph.output.append(helper.make_tensor_value_info(_CONSTANT_OUTPUT, TensorProto.FLOAT, [1]))
    else:
        graph.output.extend(_port(sequence, i) for i in sequence.outputs)
    opset = opset_for([(layer.op_type, layer.domain, layer.since) for layer in sequence.layers])
    others = sorted({node.domain for node in messages(graph, NodeProto)} - {"", "ai.onnx"})
    versions = {"ai.onnx.ml": _ml_version(sequence)}  # all other domains but ONNX's own have one version
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, versions.get(d, 1)) for d in others)]
    return helper.make_model(graph, ir_version=IR_VERSION, opset_imports=imports, producer_name="costmodel")


def _ml_version(sequence: LayerSequence) -> int:
    """Returns a version of the domain ai.onnx.ml that supports all layers of a sequence, which are from one model.

    Version 3 supports all operators except those that were added later or that exist in older versions only.
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


def _fill_weights(body: GraphProto) -> None:
    """Stores synthetic values in the weights of a subgraph, in place; they cannot be supplied at loading time."""
    for graph in (body, *messages(body, GraphProto)):
        for tensor in graph.initializer:
            if omitted_bytes(tensor):
                kind = TensorType(dtype_name(tensor.data_type), tuple(tensor.dims))
                tensor.CopyFrom(numpy_helper.from_array(synthetic_tensor(kind), tensor.name))


def make_node(name: str, layer: SequenceLayer) -> NodeProto:
    """Returns the ONNX node called `name` for one layer of a sequence."""
    explicit = layer.inputs[: len(layer.inputs) - layer.num_captured]
    captured = layer.inputs[len(explicit) :]
    node = NodeProto(op_type=layer.op_type, domain=layer.domain, name=name)
    node.input.extend(value_name(i) for i in explicit)
    node.output.extend(value_name(i) for i in layer.outputs)
    names = {f"c{slot}": value_name(index) for slot, index in enumerate(captured)}
    for name, encoded in layer.attributes.items():
        attribute = decode_attribute(name, encoded)
        if attribute.HasField("g"):
            bind_captured(attribute.g, names)
            _fill_weights(attribute.g)
        node.attribute.append(attribute)
    return node
