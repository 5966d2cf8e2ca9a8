"""Shape inference: what ONNX's own operators say about the types of their outputs."""

from collections.abc import Mapping
from dataclasses import replace

import onnx
from onnx import ModelProto, NodeProto, TensorProto, TypeProto, helper

from costmodel.constants import data_of, data_type_of, dtype_name
from costmodel.graph import TensorType

__all__ = ["infer_model", "infer_node", "output_types"]

# Fused operators whose outputs have the types of a plain one's.
_PLAIN = {"FusedConv": "Conv", "FusedGemm": "Gemm"}

_OWN_DOMAINS = ("", "ai.onnx", "ai.onnx.ml")

# Types that have no shape, by ONNX's name of the field that says so.
_SHAPELESS = {"sequence_type": "sequence", "optional_type": "optional", "map_type": "map"}

# How ONNX says that a node does not exist, or does not fit its inputs.
_REFUSALS = (
    onnx.defs.SchemaError,
    onnx.checker.ValidationError,
    onnx.shape_inference.InferenceError,
    RuntimeError,
    ValueError,
)


def infer_model(model: ModelProto) -> dict[str, TensorType]:
    """The type of every value whose shape is found to be static."""
    if _breaks_inference(model):
        return {}
    try:
        inferred = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    except onnx.shape_inference.InferenceError:
        return {}  # what the runtime runs, ONNX may find fault with: a dearer step finds the shapes
    ports = (*inferred.value_info, *inferred.input, *inferred.output)
    types = {port.name: _static_type(port.type) for port in ports}
    return {name: kind for name, kind in types.items() if kind is not None}


def _breaks_inference(model: ModelProto) -> bool:
    """Whether ONNX might end the process: it takes the type of what a LabelEncoder reads to be known."""
    own = all(node.domain in _OWN_DOMAINS for node in model.graph.node)
    return not own and any(node.op_type == "LabelEncoder" for node in model.graph.node)


def output_types(model: ModelProto) -> dict[str, TensorType]:
    """The types that a model declares for those of its outputs whose shapes are static."""
    types = {port.name: _static_type(port.type) for port in model.graph.output}
    return {name: kind for name, kind in types.items() if kind is not None}


def infer_node(
    node: NodeProto, types: Mapping[str, TensorType], tensors: Mapping[str, TensorProto], opset: int
) -> dict[str, TensorType]:
    """The static types of a node's outputs, of those that follow from its inputs.

    A blocked or fused node is taken for ONNX's own operator of that name, and one with the channels last for the same
    with the channels second.

    Args:
        node: Any node.
        types: Of its inputs, logical shapes.
        tensors: Constants; small ones are looked at.
        opset: Version of ONNX's operators.
    """
    if any(attribute.name == "channels_last" and attribute.i for attribute in node.attribute):
        data = types[node.input[0]]
        batch, *image, channels = data.shape
        second = replace(data, shape=(batch, channels, *image))
        found = _follow(node, {**types, node.input[0]: second}, tensors, opset)
        return {n: replace(t, shape=(t.shape[0], *t.shape[2:], t.shape[1])) for n, t in found.items()}
    return _follow(node, types, tensors, opset)


def _follow(
    node: NodeProto, types: Mapping[str, TensorType], tensors: Mapping[str, TensorProto], opset: int
) -> dict[str, TensorType]:
    if any(types[n].opaque for n in node.input if n):
        return {}
    op_type = _PLAIN.get(node.op_type, node.op_type)
    try:
        schema = onnx.defs.get_schema(op_type, opset, "")
        plain = NodeProto(op_type=op_type, input=node.input[: schema.max_input], output=node.output)  # less a fused sum
        plain.attribute.extend(a for a in node.attribute if a.name in schema.attributes)
        found = onnx.shape_inference.infer_node_outputs(
            schema,
            plain,
            {n: _type_proto(types[n]) for n in node.input if n},
            {n: tensors[n] for n in node.input if n in tensors and data_of(tensors[n]) is not None},
            opset_imports=[helper.make_opsetid("", opset)],
        )
    except _REFUSALS:
        return {}  # nothing follows: a dearer step finds it, or the caller says so
    static = {name: _static_type(kind) for name, kind in found.items()}
    return {name: kind for name, kind in static.items() if kind is not None}


def _static_type(kind: TypeProto) -> TensorType | None:
    shapeless = _SHAPELESS.get(kind.WhichOneof("value"))
    if shapeless is not None:
        return TensorType(shapeless, ())
    if not kind.HasField("tensor_type") or not kind.tensor_type.HasField("shape"):
        return None
    dims = kind.tensor_type.shape.dim
    if not all(dim.HasField("dim_value") for dim in dims):
        return None
    return TensorType(dtype_name(kind.tensor_type.elem_type), tuple(dim.dim_value for dim in dims))


def _type_proto(kind: TensorType) -> TypeProto:
    return helper.make_tensor_type_proto(data_type_of(kind.dtype), kind.shape)
