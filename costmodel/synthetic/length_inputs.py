"""Finds the inputs of a model that say how long its sequences are.

Recurrent layers stop at the end of each sequence, so that a model runs as long as its inputs claim. As users fill the
sequences that they give, these inputs get the full length.
"""

from collections import defaultdict

from onnx import ModelProto, NodeProto, TensorProto

from costmodel.onnx_io.shape_inference import infer_first_sizes

__all__ = ["sequence_lengths"]

_RECURRENT = {"LSTM", "GRU", "RNN"}
_LENGTHS = 4  # position of the argument of recurrent layers
# Operators whose first output has no other values than their first input.
_PASSED_ON = {
    "Cast", "Expand", "Flatten", "Gather", "Identity", "Reshape", "Slice", "Squeeze", "Tile", "TopK", "Unsqueeze",
}  # fmt: skip
_INTEGERS = (TensorProto.INT32, TensorProto.INT64)


def sequence_lengths(model: ModelProto) -> dict[str, int]:
    """Returns, by the name of an input, the number of steps of the recurrent layers whose sequences it limits.

    Args:
        model: A model whose inputs have sizes. Its weights may have been left out.
    """
    if not any(node.op_type in _RECURRENT and len(node.input) > _LENGTHS for node in model.graph.node):
        return {}
    readers = defaultdict(list)
    for node in model.graph.node:
        for slot, name in enumerate(node.input):
            readers[name].append((node, slot))
    constants = {tensor.name for tensor in model.graph.initializer}
    limited = {
        port.name: _limited_by(port.name, readers)
        for port in model.graph.input
        if port.type.tensor_type.elem_type in _INTEGERS and port.name not in constants
    }
    if not any(limited.values()):
        return {}
    sizes = infer_first_sizes(model)
    steps = {
        name: [sizes[layer.input[0]] for layer in layers if layer.input[0] in sizes] for name, layers in limited.items()
    }
    return {name: max(found) for name, found in steps.items() if found}


def _limited_by(name: str, readers: dict[str, list[tuple[NodeProto, int]]]) -> list[NodeProto]:
    """Returns the recurrent layers that get a value as the lengths of their sequences."""
    waiting, visited, found = [name], set(), []
    while waiting:
        name = waiting.pop()
        if name in visited:
            continue
        visited.add(name)
        for node, slot in readers[name]:
            if node.op_type in _RECURRENT and slot == _LENGTHS:
                found.append(node)
            elif node.op_type in _PASSED_ON and slot == 0:
                waiting.append(node.output[0])
    return found
