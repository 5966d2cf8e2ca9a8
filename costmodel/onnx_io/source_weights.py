"""Finds the sizes of the weights of a model, and of the values that a runtime folds from them."""

from collections import Counter
from collections.abc import Iterator, Mapping

from onnx import ModelProto, TensorProto

from costmodel.ir.attributes import captured_names
from costmodel.ir.constants import dtype_name
from costmodel.ir.depth_first import depth_first
from costmodel.ir.graph import TensorType
from costmodel.ir.source_weights import SMALLEST_STORED_BYTES, SourceWeights

__all__ = ["source_weights"]

# Operators that a runtime does not fold: their values are random or compressed, or follow from a subgraph.
_NOT_FOLDED = {
    "RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Multinomial", "Bernoulli",
    "DequantizeLinear", "QuantizeLinear", "If", "Loop", "Scan",
}  # fmt: skip


def source_weights(model: ModelProto, types: Mapping[str, TensorType]) -> SourceWeights:
    """Returns the sizes of the constants of a model's main graph, and of the values that follow from them alone.

    Nodes that are constants count as weights, not as nodes.

    Args:
        model: Model with topologically sorted nodes; the values of its weights may be omitted.
        types: Known types of the values that layers make; a value of unknown type is left out.
    """
    constants = dict(_constants(model))
    normalised = _normalised(model, constants)
    known, folded, remaining = set(constants), {}, {port.name for port in model.graph.output}
    sizes = {name: kind.nbytes for name, kind in {**types, **constants}.items()}
    copied: dict[str, tuple[int, ...]] = {}
    known.update(name for node in model.graph.node if node.op_type == "Constant" for name in node.output)
    nodes = [node for node in model.graph.node if node.op_type != "Constant"]
    read = [(*node.input, *captured_names(node)) for node in nodes]
    for place in depth_first(
        [(names, node.output) for names, node in zip(read, nodes, strict=True)], range(len(nodes))
    ):
        node = nodes[place]
        captured = captured_names(node)
        if node.op_type not in _NOT_FOLDED and not captured and all(name in known for name in node.input if name):
            for name in filter(None, node.output):
                known.add(name)
                if name in types:
                    folded[name] = types[name].nbytes
            copies = [sizes.get(name, 0) for name in node.input]
            for name in node.output[:1]:
                copied[name] = tuple(nbytes for nbytes in copies if nbytes >= SMALLEST_STORED_BYTES)
        elif node.op_type == "Conv" and node.output[0] in normalised and node.input[1] in constants:
            new = f"{node.input[1]} for {node.output[0]}"
            folded[new] = constants[node.input[1]].nbytes
            copied[new] = (constants[node.input[1]].nbytes,)
            remaining.add(new)
        else:
            remaining.update(node.input, captured)
    stored = {name: kind.nbytes for name, kind in constants.items() if kind.nbytes >= SMALLEST_STORED_BYTES}
    folded = {name: nbytes for name, nbytes in folded.items() if nbytes >= SMALLEST_STORED_BYTES}
    return SourceWeights(
        stored,
        folded,
        len(nodes),
        (stored.keys() | folded.keys()) - remaining,
        {name: (len(name.encode()), len(constants[name].shape)) for name in stored},
        {name: copied.get(name, ()) for name in folded},
    )


def _normalised(model: ModelProto, constants: Mapping[str, TensorType]) -> set[str]:
    """Returns the values that only a normalisation with constant parameters reads; it is folded into a convolution."""
    reads = Counter(name for node in model.graph.node for name in (*node.input, *captured_names(node)))
    reads.update(port.name for port in model.graph.output)
    return {
        node.input[0]
        for node in model.graph.node
        if node.op_type == "BatchNormalization"
        and reads[node.input[0]] == 1
        and all(name in constants for name in node.input[1:])
    }


def _constants(model: ModelProto) -> Iterator[tuple[str, TensorType]]:
    """Yields the name and type of each constant in the order in which the runtime converts them."""
    for node in model.graph.node:
        for attribute in node.attribute:
            if node.op_type == "Constant" and attribute.name == "value":
                yield node.output[0], _type_of(attribute.t)
    for tensor in model.graph.initializer:
        yield tensor.name, _type_of(tensor)


def _type_of(tensor: TensorProto) -> TensorType:
    return TensorType(dtype_name(tensor.data_type), tuple(tensor.dims))
