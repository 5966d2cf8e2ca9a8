"""Finds the sizes of the weights of a model, and of the values that a runtime folds from them."""

from collections.abc import Iterator, Mapping

from onnx import ModelProto, TensorProto

from costmodel.ir.attributes import captured_names
from costmodel.ir.constants import dtype_name
from costmodel.ir.graph import TensorType
from costmodel.ir.source_weights import SourceWeights

__all__ = ["source_weights"]

# Smaller constants are left out: they do not matter for memory.
_SMALLEST_BYTES = 1 << 10
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
    known, folded = set(constants), {}
    for node in model.graph.node:
        if node.op_type == "Constant" or node.op_type in _NOT_FOLDED or captured_names(node):
            continue
        if all(name in known for name in node.input if name):
            for name in filter(None, node.output):
                known.add(name)
                if name in types:
                    folded[name] = types[name].nbytes
    return SourceWeights(
        {name: kind.nbytes for name, kind in constants.items() if kind.nbytes >= _SMALLEST_BYTES},
        {name: nbytes for name, nbytes in folded.items() if nbytes >= _SMALLEST_BYTES},
        sum(node.op_type != "Constant" for node in model.graph.node),
    )


def _constants(model: ModelProto) -> Iterator[tuple[str, TensorType]]:
    for tensor in model.graph.initializer:
        yield tensor.name, _type_of(tensor)
    for node in model.graph.node:
        for attribute in node.attribute:
            if node.op_type == "Constant" and attribute.name == "value":
                yield node.output[0], _type_of(attribute.t)


def _type_of(tensor: TensorProto) -> TensorType:
    return TensorType(dtype_name(tensor.data_type), tuple(tensor.dims))
