"""Converts a graph that ONNX Runtime optimised and wrote into the canonical graph of layers."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from onnx import AttributeProto, ModelProto, NodeProto

from costmodel.errors import LoweringError
from costmodel.ir.attributes import captured_names, encode_attribute, integer
from costmodel.ir.constants import is_counter, kernel_selectors, scalar_value, signature_data
from costmodel.ir.graph import Attributes, Layer, LayerGraph, TensorType
from costmodel.ir.nchwc import BLOCKED_DOMAIN
from costmodel.ir.operators import canonical_attributes, since_version
from costmodel.ir.protobuf import messages
from costmodel.onnx_io.shape_inference import infer_model
from costmodel.onnx_io.source_weights import source_weights
from costmodel.onnx_io.weight_shapes import check_weight_shapes
from costmodel.runtimes.ort.provenance import Trace, origins_of, permuted_origins_of, reads, sorted_nodes, source_order
from costmodel.runtimes.ort.shapes import Shapes, Types

__all__ = ["canonical_graph", "layer_names"]


def canonical_graph(
    name: str,
    source: ModelProto,
    lowered: ModelProto,
    *,
    declared: Callable[[Sequence[str]], Types],
    observe_source: Callable[[Sequence[str]], Types],
    observe_lowered: Callable[[Sequence[str]], Types],
    block: int,
) -> LayerGraph:
    """Returns the graph of layers of one lowered model, in canonical form.

    Args:
        name: Name of the model, for error messages.
        source: The model that was lowered, with fixed input shapes.
        lowered: The optimised graph that the runtime made from `source`.
        declared: Returns the static types that the runtime's shape inference finds for named values of `source`.
        observe_source: Returns the types of named values of `source` by running it.
        observe_lowered: Returns the types of named values of `lowered` by running it; the last resort, for values that
            the source does not have.
        block: Number of channels in a block of this host's NCHWc layout.

    Raises:
        LoweringError: The graph has no layers, a value that enters or leaves it is not a tensor of numbers, a value has
            an unknown element type, no known shape or an impossibly large one, weights do not fit what they are applied
            to, or the model does not run at the shapes of its inputs.
    """
    nodes = sorted_nodes(lowered)
    if not nodes:
        raise LoweringError(f"{name} has no layers once its constants are folded: there is nothing to price")
    opset = next(o.version for o in lowered.opset_import if o.domain in ("", "ai.onnx"))
    origins = origins_of(nodes, source)
    nodes = source_order(nodes, source, origins)
    shapes = Shapes(nodes, lowered, origins, permuted_origins_of(nodes, source), block, opset)
    inferred = infer_model(source)
    check_weight_shapes(name, source, inferred)
    shapes.learn(inferred, by_filters=False)
    made = {n for node in source.graph.node for n in node.output}
    in_source = shapes.source_names(made)
    shapes.learn(declared(in_source) if in_source else {})
    data_dependent = frozenset(shapes.missing())
    if data_dependent:
        in_source = shapes.source_names(made)
        if in_source:
            shapes.learn(observe_source(in_source))
        missing = shapes.missing()
        only_lowered = [n for n in shapes.order if n in missing]
        if only_lowered:
            shapes.learn(observe_lowered(only_lowered), observed=True)
    unknown = shapes.missing()
    if unknown:
        raise LoweringError(
            f"{name}: no shape is known for {', '.join(sorted(unknown))}; give fixed shapes with the option shape"
        )
    shapes.check(name, {port.name for port in (*lowered.graph.input, *lowered.graph.output)})
    _check_reshapes(name, nodes, shapes.types)

    choosing, looping = kernel_selectors(nodes), {n for node in nodes if _has_loop(node) for n in reads(node)}
    constants = {
        t.name: scalar_value(t) if t.name in choosing or (t.name in looping and is_counter(t)) else signature_data(t)
        for t in lowered.graph.initializer
    }
    namer = _Namer(source, origins)
    trace = Trace(source)
    layers = tuple(_layer(node, shapes, origins, trace, namer, opset) for node in nodes)
    used = [n for node in nodes for n in (*reads(node), *node.output) if n]
    return LayerGraph(
        layers=layers,
        types={namer.value(n): shapes.types[n] for n in used},
        constants={namer.value(n): constants[n] for n in used if n in constants},
        inputs=tuple(p.name for p in lowered.graph.input if p.name not in constants),
        outputs=tuple(p.name for p in lowered.graph.output),
        opset=opset,
        data_dependent=frozenset(namer.value(n) for n in used if n in data_dependent),
        source_weights=source_weights(source, inferred),
    )


def _has_loop(node: NodeProto) -> bool:
    return any(inner.op_type == "Loop" for inner in (node, *messages(node, NodeProto)))


def layer_names(source: ModelProto, lowered: ModelProto) -> dict[str, str]:
    """Returns the name that each node of a lowered graph has as a layer of the canonical graph, by name of the node.

    Args:
        source: The model that was lowered; its nodes have names.
        lowered: The optimised graph that the runtime made from `source`.
    """
    nodes = sorted_nodes(lowered)
    origins = origins_of(nodes, source)
    namer, trace = _Namer(source, origins), Trace(source)
    return {
        node.name: namer.layer(node, _sources(node, origins, trace)) for node in source_order(nodes, source, origins)
    }


def _check_reshapes(name: str, nodes: Sequence[NodeProto], types: Types) -> None:
    """Refuses a model that reshapes a tensor to another number of elements.

    A model that was exported for one batch often contains the shapes that belong to it. Neither shape inference nor the
    runtime's optimiser objects to another batch; only a run would fail.

    Raises:
        LoweringError: The model reshapes a tensor to another number of elements.
    """
    for node in nodes:
        if node.op_type == "Reshape" and node.domain in ("", "ai.onnx"):
            before, after = types[node.input[0]], types[node.output[0]]
            if before.elements != after.elements:
                raise LoweringError(
                    f"{name} reshapes {list(before.shape)} to {list(after.shape)}, which has another number of "
                    "elements: it was exported for one batch or size; predict it at that one, or export it with "
                    "dynamic dimensions"
                )


class _Namer:
    """Reproducible names for the values and layers of a lowered graph, taken or derived from the source model."""

    def __init__(self, source: ModelProto, origins: Mapping[str, str]) -> None:
        self._origins = origins
        self._values = {n: n for n in _value_names(source)}
        self._taken_values = dict.fromkeys(self._values, 1)
        self._taken_layers: dict[str, int] = {}

    def value(self, name: str) -> str:
        """Returns the reproducible name of the value `name` of the lowered graph; "" for an absent optional value."""
        if name and name not in self._values:
            stem = _TOKEN.sub("", name) or "value"
            if name in self._origins:
                stem = f"{self._origins[name]}_blocked"
            self._values[name] = _free(stem, self._taken_values)
        return self._values.get(name, "")

    def layer(self, node: NodeProto, sources: Sequence[str]) -> str:
        """Returns a unique name for the layer `node`, which was made from the source nodes called `sources`."""
        made = next(n for n in node.output if n)
        if node.domain == BLOCKED_DOMAIN and node.op_type.startswith("Reorder"):
            stem = f"{node.op_type}_{self._origins.get(made, made)}"
        else:
            stem = _TOKEN.sub("", node.name) or (sources[-1] if sources else f"{node.op_type}_{self.value(made)}")
        return _free(stem, self._taken_layers)


_TOKEN = re.compile(r"_token_\d+$")


def _free(stem: str, taken: dict[str, int]) -> str:
    """Returns `stem` as a name, with the next number appended if the name is in `taken`, and adds it to `taken`.

    Args:
        stem: Name to start from.
        taken: Last number appended to each name in use.
    """
    name = stem
    while name in taken:
        taken[stem] += 1
        name = f"{stem}_{taken[stem]}"
    taken[name] = 1
    return name


def _value_names(model: ModelProto) -> Iterator[str]:
    yield from (port.name for port in model.graph.input)
    yield from (tensor.name for tensor in model.graph.initializer)
    yield from (n for node in model.graph.node for n in node.output if n)


def _layer(
    node: NodeProto,
    shapes: Shapes,
    origins: Mapping[str, str],
    trace: Trace,
    namer: _Namer,
    opset: int,
) -> Layer:
    captured = captured_names(node)
    inputs, outputs = (*_trimmed(node.input), *captured), _trimmed(node.output)
    domain = "" if node.domain == "ai.onnx" else node.domain
    try:
        attributes = _attributes(node, domain, opset, captured, shapes.types)
    except ValueError as error:
        raise LoweringError(
            f"the layer {node.name or node.op_type} cannot be written down ({error}): costmodel has no form for it"
        ) from error
    sources = _sources(node, origins, trace)
    return Layer(
        name=namer.layer(node, sources),
        op_type=node.op_type,
        domain=domain,
        since=since_version(node.op_type, domain, opset),
        attributes=attributes,
        inputs=tuple(namer.value(n) for n in inputs),
        outputs=tuple(namer.value(n) for n in outputs),
        num_captured=len(captured),
        sources=sources,
    )


def _sources(node: NodeProto, origins: Mapping[str, str], trace: Trace) -> tuple[str, ...]:
    """Returns the names of the source nodes that a layer was made from; none for a reorder that the runtime added."""
    if node.domain == BLOCKED_DOMAIN and node.op_type.startswith("Reorder"):
        return ()
    inputs = (*_trimmed(node.input), *captured_names(node))
    return trace.sources(node, [origins.get(n, n) for n in inputs], [origins.get(n, n) for n in node.output if n])


def _trimmed(names: Sequence[str]) -> tuple[str, ...]:
    """Returns the names without empty ones at the end; these stand for absent values and may as well be left out."""
    end = len(names)
    while end and not names[end - 1]:
        end -= 1
    return tuple(names[:end])


def _attributes(
    node: NodeProto, domain: str, opset: int, captured: Sequence[str], types: Mapping[str, TensorType]
) -> Attributes:
    rename = {n: f"c{slot}" for slot, n in enumerate(captured)}
    encoded: dict[str, Any] = {}
    for attribute in node.attribute:
        if attribute.type != AttributeProto.UNDEFINED:
            encoded[attribute.name] = encode_attribute(attribute, rename)
    group = integer(encoded, "group", 1)
    if domain == BLOCKED_DOMAIN and group > 1 and types[node.input[1]].shape[1] == 1:
        encoded["group"] = {"i": types[node.output[0]].shape[1]}
    if encoded.get("group") == {"i": 1}:
        del encoded["group"]
    return canonical_attributes(
        node.op_type,
        domain,
        opset,
        encoded,
        [types[n].shape if n else () for n in node.input],
        [types[n].shape if n else () for n in node.output],
    )
