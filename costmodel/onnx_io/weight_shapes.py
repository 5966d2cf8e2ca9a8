"""Refuses models whose weights do not fit the tensors that they are applied to.

ONNX's shape inference computes the output of a convolution without looking at how many channels its filter has, and the
runtime's optimiser believes it; only a run would fail. A network that was generated with a mistake would get a price.
"""

from collections.abc import Mapping, Sequence

from onnx import ModelProto, NodeProto, helper

from costmodel.errors import LoweringError
from costmodel.ir.graph import TensorType

__all__ = ["check_weight_shapes"]

_OWN_DOMAINS = ("", "ai.onnx")
_GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}

_Shape = tuple[int, ...]


def check_weight_shapes(name: str, model: ModelProto, types: Mapping[str, TensorType]) -> None:
    """Raises an error if a layer of a model has weights that its input does not allow.

    Convolutions, normalisations, recurrent layers, and the bias of a product are checked; ONNX checks other operators.

    Args:
        name: Name of the model, for error messages.
        model: The model, with fixed input shapes.
        types: Known types of the values that its nodes make or that enter it; a node of which one is unknown is passed.

    Raises:
        LoweringError: The weights of a layer do not fit its input.
    """
    shapes = {tensor.name: tuple(tensor.dims) for tensor in model.graph.initializer}
    shapes.update((value, kind.shape) for value, kind in types.items() if not kind.opaque)
    for node in model.graph.node:
        rule = _RULES.get(node.op_type)
        if rule is None or node.domain not in _OWN_DOMAINS:
            continue
        known = [shapes.get(value) if value else () for value in node.input]
        read = [shape for shape in known if shape is not None]
        if len(read) == len(known) and not rule(node, read):
            data, *weights = (list(shape) for shape in read)
            raise LoweringError(
                f"{name}: the {node.op_type} {node.name or node.output[0]} reads {data} with weights of the shapes "
                f"{', '.join(map(str, filter(None, weights)))}, which do not fit: repair the model"
            )


def _fits_convolution(node: NodeProto, read: Sequence[_Shape]) -> bool:
    data, weights, *bias = read
    group = _attribute(node, "group", 1)
    if len(data) != len(weights) or len(data) < 3 or group < 1:
        return False
    transposed = node.op_type == "ConvTranspose"
    channels, outputs = (weights[0], weights[1] * group) if transposed else (weights[1] * group, weights[0])
    return data[1] == channels and outputs % group == 0 and all(shape in ((), (outputs,)) for shape in bias)


def _fits_channels(node: NodeProto, read: Sequence[_Shape]) -> bool:
    data, *weights = read
    return len(data) > 1 and all(shape == (data[1],) for shape in weights)


def _fits_broadcast(node: NodeProto, read: Sequence[_Shape]) -> bool:
    data, *weights = read
    return all(_reaches(shape, data) for shape in weights)


def _fits_product(node: NodeProto, read: Sequence[_Shape]) -> bool:
    first, second, *bias = read
    rows, columns = first[_attribute(node, "transA", 0)], second[1 - _attribute(node, "transB", 0)]
    return all(_reaches(shape, (rows, columns)) for shape in bias)


def _fits_recurrence(node: NodeProto, read: Sequence[_Shape]) -> bool:
    data, weights, recurrent = read[:3]
    if len(weights) != 3 or len(recurrent) != 3:
        return False
    gates = _GATES[node.op_type]
    hidden = _attribute(node, "hidden_size", recurrent[-1])
    return weights[1:] == (gates * hidden, data[-1]) and recurrent[1:] == (gates * hidden, hidden)


def _reaches(shape: _Shape, target: _Shape) -> bool:
    """Returns whether a tensor of the given shape can be broadcast to the target shape."""
    return len(shape) <= len(target) and all(
        size in (1, wanted) for size, wanted in zip(reversed(shape), reversed(target), strict=False)
    )


def _attribute(node: NodeProto, name: str, default: int) -> int:
    return next((int(helper.get_attribute_value(one)) for one in node.attribute if one.name == name), default)


_RULES = {
    "Conv": _fits_convolution,
    "ConvTranspose": _fits_convolution,
    "InstanceNormalization": _fits_channels,
    "LayerNormalization": _fits_broadcast,
    "PRelu": _fits_broadcast,
    "Gemm": _fits_product,
    **dict.fromkeys(_GATES, _fits_recurrence),
}
