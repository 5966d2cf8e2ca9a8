"""Computes the memory that kernels of ONNX Runtime need besides their inputs and outputs, while they run."""

from math import prod

from costmodel.ir.attributes import integer
from costmodel.ir.graph import Layer, LayerGraph
from costmodel.ir.nchwc import BLOCKED_DOMAIN

__all__ = ["workspace_bytes"]

_CONVOLUTIONS = frozenset({"Conv", "FusedConv", "ConvTranspose"})
# Part of an unfolded input that a thread multiplies at a time.
_UNFOLDED_PART_BYTES = 64 << 10


def workspace_bytes(layer: Layer, graph: LayerGraph) -> int:
    """Returns the size of the temporary buffer of a layer in bytes; 0 if it has none, or none that is known.

    Convolutions that are not blocked unfold their input: all of it if they have more filters than positions, a part at
    a time if not. Transposed ones make all products before they are added up at their positions.
    """
    if layer.domain == BLOCKED_DOMAIN or layer.op_type not in _CONVOLUTIONS or len(layer.inputs) < 2:
        return 0
    source, weight, result = (graph.types.get(name) for name in (*layer.inputs[:2], layer.outputs[0]))
    if source is None or weight is None or result is None or min(len(source.shape), len(weight.shape)) < 3:
        return 0
    products = prod(weight.shape[1:])
    if layer.op_type == "ConvTranspose":
        return products * prod(source.shape[2:]) * 4
    group, positions = integer(layer.attributes, "group", 1), prod(result.shape[2:])
    pointwise = prod(weight.shape[2:]) == 1 and positions == prod(source.shape[2:])
    if pointwise or group < 1:
        return 0
    return products * positions * 4 if weight.shape[0] // group > positions else _UNFOLDED_PART_BYTES
