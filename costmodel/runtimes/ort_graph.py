"""From the graph that ONNX Runtime wrote to the canonical graph of layers.

ONNX Runtime names what it makes after what it replaces: a blocked layer is called "<tensor>_nchwc", and fused nodes
keep the name of their last output. Those names are what ties its graph to the source model.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import onnx
from onnx import AttributeProto, ModelProto, NodeProto, TypeProto, ValueInfoProto, helper

from costmodel.attributes import captured_names, encode
from costmodel.blocked import BLOCKED_DOMAIN, padded
from costmodel.constants import data_of, dtype_name
from costmodel.errors import LoweringError
from costmodel.graph import ITEM_BYTES, Attributes, Layer, LayerGraph, TensorType
from costmodel.shapes import MAX_TENSOR_BYTES
from costmodel.operators import canonical_attributes, since_version

__all__ = ["canonical_graph"]

Types = dict[str, TensorType]

_BLOCKED_NAME = re.compile(r"^(?P<tensor>.+)_nchwc(?:_token_\d+)?$")


def canonical_graph(
    name: str,
    source: ModelProto,
    lowered: ModelProto,
    *,
    simplified: Callable[[], ModelProto],
    observe_source: Callable[[Sequence[str]], Types],
    observe_lowered: Callable[[Sequence[str]], Types],
    block: int,
) -> LayerGraph:
    """The canonical graph of layers of one lowered model.

    Args:
        name: Of the model, for errors.
        source: The model that was lowered, its input shapes fixed.
        lowered: What the runtime made of it.
        simplified: Gives the model with constants folded, on which shape inference finds more.
        observe_source: Gives the types of named values of `source` by running it.
        observe_lowered: The same of `lowered`, for what only the runtime has a name for; the last resort.
        block: Channels in a block of this host's layout.

    Raises:
        LoweringError: A value is no tensor, has an element type that costmodel does not know, or has no shape.
    """
    nodes = _sorted_nodes(lowered)
    if not nodes:
        raise LoweringError(f"{name} has no layers once its constants are folded: there is nothing to price")
    opset = next(o.version for o in lowered.opset_import if o.domain in ("", "ai.onnx"))
    origins = _origins(nodes, source)
    shapes = _Shapes(nodes, lowered, origins, block, opset)
    shapes.learn(_inferred(source))
    if shapes.missing():
        shapes.learn(_inferred(simplified()))
    data_dependent = frozenset(shapes.missing())
    if data_dependent:
        named = shapes.source_names({n for node in source.graph.node for n in node.output})
        if named:
            shapes.learn(observe_source(named))
        unnamed = [n for n in shapes.order if n in shapes.missing()]
        if unnamed:
            shapes.learn(observe_lowered(unnamed), observed=True)
    holes = shapes.missing()
    if holes:
        raise LoweringError(
            f"{name}: no shape is known for {', '.join(sorted(holes))}; give fixed shapes with --shape"
        )
    _check(name, shapes.types)

    trace = _Trace(source)
    constants = {t.name: data_of(t) for t in lowered.graph.initializer}
    layers = []
    names: set[str] = set()
    for node in nodes:
        layers.append(_layer(node, shapes, origins, trace, names, opset))
    used = {n for layer in layers for n in (*layer.inputs, *layer.outputs) if n}
    return LayerGraph(
        layers=tuple(layers),
        types={n: shapes.types[n] for n in sorted(used)},
        constants={n: v for n, v in sorted(constants.items()) if n in used},
        inputs=tuple(p.name for p in lowered.graph.input if p.name not in constants),
        outputs=tuple(p.name for p in lowered.graph.output),
        opset=opset,
        data_dependent=data_dependent & used,
    )


def _sorted_nodes(model: ModelProto) -> list[NodeProto]:
    """Nodes in an order in which each comes after what it reads; the runtime's own order where it is one."""
    waiting = list(model.graph.node)
    made = {t.name for t in model.graph.initializer} | {p.name for p in model.graph.input} | {""}
    ordered: list[NodeProto] = []
    while waiting:
        rest = []
        for node in waiting:
            if all(n in made for n in (*node.input, *captured_names(node))):
                ordered.append(node)
                made |= set(node.output)
            else:
                rest.append(node)
        if len(rest) == len(waiting):
            raise LoweringError(f"layer {rest[0].name or rest[0].op_type} reads a value that nothing makes")
        waiting = rest
    return ordered


def _inferred(model: ModelProto) -> Types:
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


def _origins(nodes: Iterable[NodeProto], source: ModelProto) -> dict[str, str]:
    """For each value that the runtime renamed, the source tensor that it stands for."""
    by_node = {node.name: node for node in source.graph.node if node.name}
    readers: dict[str, list[NodeProto]] = {}
    for node in source.graph.node:
        for n in node.input:
            readers.setdefault(n, []).append(node)
    made = {n for node in source.graph.node for n in node.output}
    origins: dict[str, str] = {}
    for node in nodes:
        match = _BLOCKED_NAME.match(node.name) if node.domain == BLOCKED_DOMAIN else None
        if match:
            tensor = match["tensor"]
            if tensor not in made:  # a normalisation or product turned into a convolution says so in its name
                tensor = tensor.removesuffix("_bn").removesuffix("_mul")
            origins[node.output[0]] = _fused_output(node, tensor, readers)
        elif node.domain == BLOCKED_DOMAIN and node.op_type == "ReorderInput":
            origins[node.output[0]] = origins.get(node.input[0], node.input[0])
        elif node.output[0].startswith("reorder") and node.name in by_node:
            origins[node.output[0]] = by_node[node.name].output[0]
    return origins


def _fused_output(node: NodeProto, tensor: str, readers: Mapping[str, Sequence[NodeProto]]) -> str:
    """Where a blocked layer that swallowed a Sum, and the activation after it, really ends in the source."""
    if node.op_type != "Conv" or len(node.input) < 4:
        return tensor
    wanted = [("Sum", "Add")]
    wanted += [(a.s.decode(),) for a in node.attribute if a.name == "activation"]
    for op_types in wanted:
        following = [reader for reader in readers.get(tensor, ()) if reader.op_type in op_types]
        if len(following) != 1:
            break
        tensor = following[0].output[0]
    return tensor


class _Shapes:
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
            dict.fromkeys(
                n for node in nodes for n in (*node.input, *node.output, *captured_names(node)) if n
            )
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
            self.types[node.output[0]] = TensorType(
                source.dtype, source.shape, node.op_type == "ReorderInput"
            )
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


def _plain(node: NodeProto, schema: onnx.defs.OpSchema) -> NodeProto:
    """A blocked or fused node as ONNX's own operator of the same name: what its shape follows from."""
    plain = NodeProto(op_type=node.op_type, input=node.input, output=node.output)
    plain.attribute.extend(a for a in node.attribute if a.name in schema.attributes)
    return plain


def _type_proto(kind: TensorType) -> TypeProto:
    port: ValueInfoProto = helper.make_tensor_value_info(
        "", helper.np_dtype_to_tensor_dtype(helper.np.dtype(kind.dtype)), kind.shape
    )
    return port.type


def _check(name: str, types: Mapping[str, TensorType]) -> None:
    for value, kind in types.items():
        if kind.dtype not in ITEM_BYTES:
            raise LoweringError(
                f"{name}: {value} has elements of type {kind.dtype}: costmodel prices numbers only"
            )
        if kind.nbytes > MAX_TENSOR_BYTES:
            raise LoweringError(
                f"{name}: {value} would have the absurd shape {list(kind.shape)}: check the input shapes"
            )


class _Trace:
    """Finds the source nodes that a layer replaces: those between the values it reads and the ones it makes."""

    def __init__(self, source: ModelProto) -> None:
        self._producers = {n: node for node in source.graph.node for n in node.output if n}
        self._by_name = {node.name: node for node in source.graph.node if node.name}
        self._constants = {t.name for t in source.graph.initializer}
        self._inputs = {p.name for p in source.graph.input} - self._constants

    def sources(self, node: NodeProto, inputs: Iterable[str], outputs: Iterable[str]) -> tuple[str, ...]:
        stops = set(inputs)
        found: dict[str, None] = {}
        waiting = [n for n in outputs if n in self._producers]
        while waiting:
            name = waiting.pop()
            if name in stops or name in self._constants:
                continue
            if name in self._inputs or len(found) > len(stops) + 64:
                found.clear()  # the names lead elsewhere: keep only what the layer's own name says
                break
            producer = self._producers.get(name)
            if producer is not None and _label(producer) not in found:
                found[_label(producer)] = None
                waiting.extend(n for n in (*producer.input, *captured_names(producer)) if n)
        if not found and node.name in self._by_name:
            found[node.name] = None
        return tuple(reversed(found))


def _label(node: NodeProto) -> str:
    return node.name or node.output[0]


def _layer(
    node: NodeProto,
    shapes: _Shapes,
    origins: Mapping[str, str],
    trace: _Trace,
    names: set[str],
    opset: int,
) -> Layer:
    captured = captured_names(node)
    inputs, outputs = (*_trimmed(node.input), *captured), _trimmed(node.output)
    domain = "" if node.domain == "ai.onnx" else node.domain
    types = shapes.types
    since = since_version(
        node.op_type, domain, opset, tuple(types[n].dtype if n else "" for n in _trimmed(node.input))
    )
    sources: tuple[str, ...] = ()
    if not (domain == BLOCKED_DOMAIN and node.op_type.startswith("Reorder")):
        sources = trace.sources(
            node, [origins.get(n, n) for n in inputs], [origins.get(n, n) for n in outputs if n]
        )
    label = sources[0] if sources and not node.name else node.name or f"{node.op_type}_{len(names)}"
    while label in names:
        label += "'"
    names.add(label)
    return Layer(
        name=label,
        op_type=node.op_type,
        domain=domain,
        since=since,
        attributes=_attributes(node, domain, since, captured, types),
        inputs=inputs,
        outputs=outputs,
        captured=len(captured),
        sources=sources,
    )


def _trimmed(names: Sequence[str]) -> tuple[str, ...]:
    """Without absent optional values at the end, which mean nothing."""
    end = len(names)
    while end and not names[end - 1]:
        end -= 1
    return tuple(names[:end])


def _attributes(
    node: NodeProto, domain: str, since: int, captured: Sequence[str], types: Mapping[str, TensorType]
) -> Attributes:
    rename = {n: f"c{slot}" for slot, n in enumerate(captured)}
    encoded: dict[str, Any] = {}
    for attribute in node.attribute:
        if attribute.type != AttributeProto.UNDEFINED:
            encoded[attribute.name] = encode(attribute, rename)
    group = encoded.get("group", {"i": 1})["i"]
    if domain == BLOCKED_DOMAIN and group > 1 and types[node.input[1]].shape[1] == 1:
        encoded["group"] = {"i": types[node.output[0]].shape[1]}
    if encoded.get("group") == {"i": 1}:
        del encoded["group"]
    return canonical_attributes(
        node.op_type,
        domain,
        since,
        encoded,
        [types[n].shape if n else () for n in node.input],
        [types[n].shape if n else () for n in node.output],
    )
