"""Fused layers as the features see them: as their main operator, with the work of all operators.

A convolution with a fused activation is described like a convolution, whichever runtime fused it.
"""

from dataclasses import replace

from costmodel.ir.fused import body_of, main_layer
from costmodel.ir.graph import TensorType
from costmodel.ir.sequence import LayerSequence, SequenceLayer, Value

__all__ = ["VECTOR_INSTRUCTIONS", "as_main_operator", "laid_out_body", "operator_of"]

# Activations that runtimes apply to a result before it is written, and about how many instructions each takes for a
# vector of elements.
VECTOR_INSTRUCTIONS = {
    "Relu": 1.0, "LeakyRelu": 2.0, "PRelu": 2.0, "Clip": 3.0, "HardSigmoid": 4.0, "HardSwish": 5.0, "Sigmoid": 10.0,
    "Tanh": 12.0, "Elu": 12.0, "Selu": 12.0, "Erf": 14.0, "Gelu": 15.0, "Softplus": 15.0,
}  # fmt: skip
# Operators whose result lies in memory as its shape says, whatever the layout of what they read.
_TO_PLAIN = ("Flatten", "Squeeze", "Unsqueeze", "Transpose", "MatMul", "Gemm", "Einsum")
_PRODUCTS = ("MatMul", "Einsum")
_SWAPPED = [0, 2, 1]  # the order of axes that brings the last one before the other


def operator_of(layer: SequenceLayer) -> str:
    """Returns the operator that a layer counts as.

    A fused layer counts as its main operator; the products around a softmax that a runtime executes as one layer are an
    attention.
    """
    body = body_of(layer)
    if body is not None and layer.op_type in _PRODUCTS:
        operators = [one.op_type for one in body.layers]
        if "Softmax" in operators and sum(operator in _PRODUCTS for operator in operators) > 1:
            return "Attention"
    return layer.op_type


def laid_out_body(layer: SequenceLayer) -> LayerSequence | None:
    """Returns the operators of a fused layer, with the layouts of the values between them; None if it is not fused.

    A body says in which layout its inputs and outputs are. In between, an operator leaves its result in the layout of
    what it reads. Tokens that are transposed and reshaped to an image are one with its channels last, and a shuffle of
    channels that are last in memory becomes one transposition.
    """
    body = body_of(layer)
    if body is None:
        return None
    shuffle = _channel_shuffle(body)
    if shuffle is not None:
        return shuffle
    values = list[Value](body.values)
    transposed = set[int]()
    for one in body.layers:
        read = [values[i].type for i in one.inputs if i >= 0]
        if one.op_type == "Transpose" and one.attributes.get("perm", {}).get("ints") == _SWAPPED:
            transposed.update(i for i in one.outputs if i >= 0)
        for i in one.outputs:
            if i < 0 or i in body.outputs:
                continue
            kind = values[i].type
            if one.op_type == "Reshape":
                blocked = not transposed.isdisjoint(one.inputs[:1]) and kind.shape[:2] == read[0].shape[:2]
            else:
                same_axes = (other.blocked and len(other.shape) == len(kind.shape) for other in read)
                blocked = one.op_type not in _TO_PLAIN and any(same_axes)
            values[i] = replace(values[i], type=replace(kind, blocked=blocked))
    return LayerSequence(body.layers, tuple(values), body.outputs)


def as_main_operator(sequence: LayerSequence, layer: SequenceLayer) -> tuple[LayerSequence, SequenceLayer]:
    """Returns the operator that characterises a layer, and the sequence to which its values belong.

    For a fused layer, that is its main operator: with the last activation among the operators after it as an attribute,
    and with the other inputs of the layer after its own. What is quantised where it enters and leaves the layer is
    described as quantised, because the runtime computes with that.
    """
    body = laid_out_body(layer)
    if body is None:
        return sequence, layer
    main = main_layer(body)
    after = body.layers[body.layers.index(main) + 1 :]
    activation = next((other.op_type for other in reversed(after) if other.op_type in VECTOR_INSTRUCTIONS), None)
    attributes = dict(main.attributes)
    if activation is not None and "activation" not in attributes:
        attributes["activation"] = {"s": activation}
    quantised = {one.outputs[0]: one.inputs[0] for one in body.layers if one.op_type == "DequantizeLinear"}
    requantised = {one.inputs[0]: one.outputs[0] for one in body.layers if one.op_type == "QuantizeLinear"}
    inputs = tuple(quantised.get(i, i) for i in main.inputs)
    outputs = tuple(requantised.get(i, i) for i in main.outputs)
    read_after = dict.fromkeys(i for other in after for i in other.inputs if i >= 0)
    others = tuple(i for i in read_after if body.values[i].role == "input" and i not in inputs)
    return body, replace(main, attributes=attributes, inputs=inputs + others, outputs=outputs)


def _channel_shuffle(body: LayerSequence) -> LayerSequence | None:
    """Returns a channel shuffle as the transposition of what is in memory, where the channels are the last axis.

    A shuffle splits the axis of the channels in two, exchanges both and joins them again. By its shapes it would move
    whole images; where the channels are last it moves single elements.

    Returns:
        The transposition as a sequence; None if the body is no shuffle, or its channels are not last.
    """
    if [layer.op_type for layer in body.layers] != ["Reshape", "Transpose", "Reshape"]:
        return None
    if any(min((*layer.inputs[:1], *layer.outputs[:1]), default=-1) < 0 for layer in body.layers):
        return None
    split, transpose, joined = body.layers
    read, divided, written = (body.values[i].type for i in (split.inputs[0], transpose.inputs[0], joined.outputs[0]))
    batch, of_channels, sizes = divided.shape[:1], divided.shape[1:3], divided.shape[3:]
    if (
        not (read.blocked and written.blocked and read.shape == written.shape)
        or read.shape[:1] + read.shape[2:] != batch + sizes
        or transpose.attributes.get("perm", {}).get("ints") != [0, 2, 1, *range(3, len(divided.shape))]
    ):
        return None
    shapes = (*batch, *sizes, *of_channels), (*batch, *sizes, *reversed(of_channels))
    values = tuple(
        Value(TensorType(divided.dtype, shape), role) for shape, role in zip(shapes, ("input", "internal"), strict=True)
    )
    last = len(divided.shape) - 1
    order = {"perm": {"ints": [*range(last - 1), last, last - 1]}}
    layer = replace(transpose, attributes=order, inputs=(0,), outputs=(1,))
    return LayerSequence((layer,), values, (1,))
