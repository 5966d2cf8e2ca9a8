"""Infers the types and shapes of values from the definitions of operators in ONNX."""

from collections.abc import Mapping
from dataclasses import replace

import onnx
from onnx import ModelProto, NodeProto, TensorProto, TypeProto, ValueInfoProto, helper

from costmodel.ir.constants import data_type_of, dtype_name, signature_data
from costmodel.ir.graph import TensorType

__all__ = ["infer_first_sizes", "infer_model", "infer_node", "output_types"]

# Plain operators whose outputs have the same types as those of fused operators.
_PLAIN = {"FusedConv": "Conv", "FusedGemm": "Gemm"}

_OWN_DOMAINS = ("", "ai.onnx", "ai.onnx.ml")

# Types without a shape, by the name of their field in ONNX's TypeProto.
_SHAPELESS = {"sequence_type": "sequence", "optional_type": "optional", "map_type": "map"}

# Exceptions by which ONNX reports that an operator does not exist or that a node does not fit its inputs.
_INFERENCE_ERRORS = (
    onnx.defs.SchemaError,
    onnx.checker.ValidationError,
    onnx.shape_inference.InferenceError,
    RuntimeError,
    ValueError,
)


def infer_model(model: ModelProto) -> dict[str, TensorType]:
    """Returns, by name, the types of the values of a model that ONNX finds to have a static shape."""
    types = {port.name: _static_type(port.type) for port in _inferred_ports(model)}
    return {name: kind for name, kind in types.items() if kind is not None}


def infer_first_sizes(model: ModelProto) -> dict[str, int]:
    """Returns, by name, the size of the first axis of the values of a model for which ONNX finds it."""
    ports = [port for port in _inferred_ports(model) if port.type.tensor_type.shape.dim]
    firsts = {port.name: port.type.tensor_type.shape.dim[0] for port in ports}
    return {name: dim.dim_value for name, dim in firsts.items() if dim.HasField("dim_value")}


def _inferred_ports(model: ModelProto) -> list[ValueInfoProto]:
    """Returns the values of a model with the types that ONNX infers; none if it rejects the model."""
    if _breaks_inference(model):
        return []
    try:
        inferred = onnx.shape_inference.infer_shapes(_with_defaults(model), data_prop=True).graph
    except onnx.shape_inference.InferenceError:
        return []  # ONNX may reject what a runtime runs; a more expensive step finds the shapes then
    return [*inferred.value_info, *inferred.input, *inferred.output]


def _with_defaults(model: ModelProto) -> ModelProto:
    """Returns the model with the default written out that ONNX's inference has wrong: a STFT is one-sided."""
    if not any(_is_one_sided(node) for node in model.graph.node):
        return model
    explicit = ModelProto()
    explicit.CopyFrom(model)
    for node in explicit.graph.node:
        if _is_one_sided(node):
            node.attribute.append(helper.make_attribute("onesided", 1))
    return explicit


def _is_one_sided(node: NodeProto) -> bool:
    """Returns whether a node is a Fourier transform that is one-sided because it does not say otherwise."""
    return node.op_type == "STFT" and all(attribute.name != "onesided" for attribute in node.attribute)


def _breaks_inference(model: ModelProto) -> bool:
    """Returns whether ONNX's shape inference on this model could crash the process.

    ONNX assumes that the input type of a LabelEncoder is known; it is not if an operator of another domain produces it.
    """
    own = all(node.domain in _OWN_DOMAINS for node in model.graph.node)
    return not own and any(node.op_type == "LabelEncoder" for node in model.graph.node)


def output_types(model: ModelProto) -> dict[str, TensorType]:
    """Returns, by name, the declared types of those outputs of a model that have a static shape."""
    types = {port.name: _static_type(port.type) for port in model.graph.output}
    return {name: kind for name, kind in types.items() if kind is not None}


def infer_node(
    node: NodeProto, types: Mapping[str, TensorType], tensors: Mapping[str, TensorProto], opset: int
) -> dict[str, TensorType]:
    """Returns the types of a node's outputs by name; outputs whose shape is unknown or not static are left out.

    A blocked or fused node is treated as its plain counterpart among ONNX's own operators. For a node with attribute
    `channels_last`, the input shape is permuted to have the channels second, and the output shapes are permuted back.

    Args:
        node: Any node.
        types: Types of the node's inputs by name, with logical shapes.
        tensors: Constants by name; the values of small ones are used.
        opset: Version of ONNX's own operators.
    """
    if any(attribute.name == "channels_last" and attribute.i for attribute in node.attribute):
        data = types[node.input[0]]
        batch, *image, channels = data.shape
        second = replace(data, shape=(batch, channels, *image))
        inferred = _infer_plain(node, {**types, node.input[0]: second}, tensors, opset)
        return {n: replace(t, shape=(t.shape[0], *t.shape[2:], t.shape[1])) for n, t in inferred.items()}
    return _infer_plain(node, types, tensors, opset)


def _infer_plain(
    node: NodeProto, types: Mapping[str, TensorType], tensors: Mapping[str, TensorProto], opset: int
) -> dict[str, TensorType]:
    """Returns the output types of `node` by name, according to its plain counterpart among ONNX's own operators."""
    if any(types[n].opaque for n in node.input if n):
        return {}
    op_type = _PLAIN.get(node.op_type, node.op_type)
    try:
        schema = onnx.defs.get_schema(op_type, opset, "")
        # A fused sum is an input beyond those of the plain operator, and is left out.
        plain = NodeProto(op_type=op_type, input=node.input[: schema.max_input], output=node.output)
        plain.attribute.extend(a for a in node.attribute if a.name in schema.attributes)
        if _is_one_sided(node):
            plain.attribute.append(helper.make_attribute("onesided", 1))
        inferred = onnx.shape_inference.infer_node_outputs(
            schema,
            plain,
            {n: _type_proto(types[n]) for n in node.input if n},
            {n: tensors[n] for n in node.input if n in tensors and signature_data(tensors[n]) is not None},
            opset_imports=[helper.make_opsetid("", opset)],
        )
    except _INFERENCE_ERRORS:
        return {}  # a more expensive step finds the types, or the caller reports that they are unknown
    static = {name: _static_type(kind) for name, kind in inferred.items()}
    return {name: kind for name, kind in static.items() if kind is not None}


def _static_type(kind: TypeProto) -> TensorType | None:
    """Returns an ONNX type as a `TensorType`; None if it is a tensor whose shape is not static."""
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
