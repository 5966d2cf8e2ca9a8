"""Types of the values of a graph that ONNX Runtime wrote: logical shapes, wherever they can be learnt from."""

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, TypeProto, ValueInfoProto, helper

from costmodel.attributes import captured_names
from costmodel.blocked import BLOCKED_DOMAIN, padded
from costmodel.constants import data_of, dtype_name
from costmodel.errors import LoweringError
from costmodel.graph import ITEM_BYTES, TensorType
from costmodel.shapes import MAX_TENSOR_BYTES

__all__ = ["Shapes", "Types", "inferred"]

Types = dict[str, TensorType]


def inferred(model: ModelProto) -> Types:
    """Static types that ONNX's shape inference finds."""
    result = onnx.shape_inference.infer_shapes(model, data_prop=True)
    found = {}
    for port in (*result.graph.value_info, *result.graph.input, *result.graph.output):
        kind = _static_type(port.type)
        if kind is not None:
            found[port.name] = kind
    return found


def _static_type(kind: TypeProto) -> TensorType | None:
    if not kind.HasField("tensor_type") or not kind.tensor_type.HasField("shape"):
        return None
    dims = kind.tensor_type.shape.dim
    if not all(dim.HasField("dim_value") for dim in dims):
        return None
    return TensorType(dtype_name(kind.tensor_type.elem_type), tuple(dim.dim_value for dim in dims))


class Shapes:
    """Types of every value of the lowered graph, filled in as more is learnt."""

    def __init__(
        self,
        nodes: Sequence[NodeProto],
        lowered: ModelProto,
        origins: Mapping[str, str],
        block: int,
        opset: int,
    ) -> None:
        self._nodes = nodes
        self._origins = origins
        self._block = block
        self._opset = opset
        self._tensors = {t.name: t for t in lowered.graph.initializer}
        self.types: Types = {
            t.name: TensorType(dtype_name(t.data_type), tuple(t.dims)) for t in lowered.graph.initializer
        }
        self.order = list(
            dict.fromkeys(n for node in nodes for n in (*node.input, *node.output, *captured_names(node)) if n)
        )
        self._blocked = self._find_blocked()

    def _find_blocked(self) -> set[str]:
        blocked: set[str] = set()
        for node in self._nodes:
            if node.domain == BLOCKED_DOMAIN:
                if node.op_type != "ReorderOutput":
                    blocked |= set(node.output)
            elif any(n in blocked for n in node.input):
                blocked |= set(node.output)
        return blocked - {""}

    def missing(self) -> set[str]:
        """Names of the values without a type."""
        return {n for n in self.order if n not in self.types}

    def source_names(self, made: set[str]) -> list[str]:
        """What the source calls the missing values, as far as it makes them."""
        names = (self._origins.get(n, n) for n in self.order if n not in self.types)
        return [n for n in dict.fromkeys(names) if n in made]

    def learn(self, found: Types, *, observed: bool = False) -> None:
        """Take over what was found, then infer what follows from it, layer by layer."""
        for n in self.order:
            if observed and n in self._blocked:
                continue  # what runs is padded
            kind = found.get(n if observed else self._origins.get(n, n))
            if n not in self.types and kind is not None:
                self.types[n] = TensorType(kind.dtype, kind.shape, n in self._blocked)
        for node in self._nodes:
            if any(n and n not in self.types for n in node.output):
                self._follow(node)
            if node.domain == BLOCKED_DOMAIN and node.op_type == "Conv":
                self._unpad_filter(node)

    def _follow(self, node: NodeProto) -> None:
        """Types of a node's outputs from those of its inputs, if an operator of that name is ONNX's own."""
        if any(n and n not in self.types for n in node.input):
            return
        if node.domain == BLOCKED_DOMAIN and node.op_type.startswith("Reorder"):
            source = self.types[node.input[0]]
            self.types[node.output[0]] = TensorType(source.dtype, source.shape, node.op_type == "ReorderInput")
            return
        try:
            schema = onnx.defs.get_schema(node.op_type, self._opset, "")
            found = onnx.shape_inference.infer_node_outputs(
                schema,
                _plain(node, schema),
                {n: _type_proto(self.types[n]) for n in node.input if n},
                {n: self._tensors[n] for n in node.input if n in self._tensors and data_of(self._tensors[n])},
                opset_imports=[helper.make_opsetid("", self._opset)],
            )
        except (onnx.defs.SchemaError, onnx.shape_inference.InferenceError, RuntimeError, ValueError):
            return  # left missing: the next, dearer step finds it or the caller says so
        for n, kind in found.items():
            static = _static_type(kind)
            if static is not None and n not in self.types:
                self.types[n] = TensorType(static.dtype, static.shape, n in self._blocked)

    def _unpad_filter(self, node: NodeProto) -> None:
        """Give a blocked convolution's filter and bias the sizes they had before they were padded."""
        data, output = self.types.get(node.input[0]), self.types.get(node.output[0])
        if data is None or output is None:
            return
        filter_type = self.types[node.input[1]]
        group = next((a.i for a in node.attribute if a.name == "group"), 1)
        channels = output.shape[1]
        inner = 1 if group > 1 and filter_type.shape[1] == 1 else data.shape[1] // group
        if padded(channels, self._block) != padded(filter_type.shape[0], self._block):
            return
        self.types[node.input[1]] = TensorType(filter_type.dtype, (channels, inner, *filter_type.shape[2:]))
        if len(node.input) > 2 and node.input[2]:
            self.types[node.input[2]] = TensorType(filter_type.dtype, (channels,))

    def check(self, name: str) -> None:
        """Refuse what costmodel cannot price.

        Raises:
            LoweringError: An element type is unknown, or a tensor is too large for any machine.
        """
        for value, kind in self.types.items():
            if kind.dtype not in ITEM_BYTES:
                raise LoweringError(f"{name}: {value} has elements of type {kind.dtype}: costmodel prices numbers only")
            if kind.nbytes > MAX_TENSOR_BYTES:
                raise LoweringError(
                    f"{name}: {value} would have the absurd shape {list(kind.shape)}: check the input shapes"
                )


def _plain(node: NodeProto, schema: onnx.defs.OpSchema) -> NodeProto:
    """A blocked or fused node as ONNX's own operator of the same name: what its shape follows from."""
    plain = NodeProto(op_type=node.op_type, input=node.input, output=node.output)
    plain.attribute.extend(a for a in node.attribute if a.name in schema.attributes)
    return plain


def _type_proto(kind: TensorType) -> TypeProto:
    port: ValueInfoProto = helper.make_tensor_value_info(
        "", helper.np_dtype_to_tensor_dtype(np.dtype(kind.dtype)), kind.shape
    )
    return port.type
