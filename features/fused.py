"""Fused layers as the features see them: as their main operator, with the work of all operators.

A convolution with a fused activation is described like a convolution, whichever runtime fused it.
"""

from dataclasses import replace

from costmodel.ir.fused import body_of, main_layer
from costmodel.ir.graph import TensorType
from costmodel.ir.sequence import LayerSequence, SequenceLayer, Value

__all__ = ["as_main_operator", "laid_out_body", "operator_of"]

# Operators that runtimes apply to the result of a product before it is written.
_ACTIVATIONS = (
    "Relu", "LeakyRelu", "PRelu", "Clip", "HardSigmoid", "HardSwish", "Sigmoid", "Tanh", "Gelu", "Erf", "Elu", "Selu",
    "Softplus",
)  # fmt: skip
# Operators whose result lies in memory as its shape says, whatever the layout of what they read.
_TO_PLAIN = ("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "MatMul", "Gemm", "Einsum")
_PRODUCTS = ("MatMul", "Einsum")


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
    what it reads. A shuffle of channels that are the last axis in memory becomes one transposition.
    """
    body = body_of(layer)
    if body is None or not any(value.type.blocked for value in body.values):
        return body
    shuffle = _channel_shuffle(body)
    if shuffle is not None:
        return shuffle
    values = list[Value](body.values)
    for one in body.layers:
        read = [values[i].type for i in one.inputs if i >= 0]
        for i in one.outputs:
            if i >= 0 and values[i].role == "internal" and i not in body.outputs and one.op_type not in _TO_PLAIN:
                kind = values[i].type
                blocked = any(other.blocked and len(other.shape) == len(kind.shape) for other in read)
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
    activation = next((other.op_type for other in reversed(after) if other.op_type in _ACTIVATIONS), None)
    attributes = dict(main.attributes)
    if activation is not None and "activation" not in attributes:
        attributes["activation"] = {"s": activation}
    quantised = {one.outputs[0]: one.inputs[0] for one in body.layers if one.op_type == "DequantizeLinear"}
    requantised = {one.inputs[0]: one.outputs[0] for one in body.layers if one.op_type == "QuantizeLinear"}
    inputs = tuple(quantised.get(i, i) for i in main.inputs)
    outputs = tuple(requantised.get(i, i) for i in main.outputs)
    others = tuple(i for i, value in enumerate(body.values) if value.role == "input" and i not in inputs)
    return body, replace(main, attributes=attributes, inputs=inputs + others, outputs=outputs)


def _channel_shuffle(body: LayerSequence) -> LayerSequence | None:
    """Returns a channel shuffle as the transposition of what is in memory, where the channels are the last axis.

    A shuffle splits the axis of the channels in two, exchanges both and joins them again. By its shapes it would move
    whole images; where the channels are last it moves single elements.

    Returns:
        The transposition as a sequence; None if the body is no shuffle.
    """
    if [layer.op_type for layer in body.layers] != ["Reshape", "Transpose", "Reshape"]:
        return None
    split, transpose, joined = body.layers
    kinds = [body.values[i].type for i in (split.inputs[0], transpose.inputs[0], joined.outputs[0])]
    outer, inner, _ = kinds
    order = list(transpose.attributes.get("perm", {}).get("ints", ()))
    rank = len(inner.shape)
    if (
        len({kind.shape for kind in (kinds[0], kinds[2])}) != 1
        or (outer.shape[0], *outer.shape[2:]) != (inner.shape[0], *inner.shape[3:])
        or order != [0, 2, 1, *range(3, rank)]
    ):
        return None
    kept = (inner.shape[0], *inner.shape[3:])
    values = tuple(
        Value(TensorType(inner.dtype, (*kept, *last)), role)
        for last, role in ((inner.shape[1:3], "input"), (inner.shape[2:0:-1], "internal"))
    )
    perm = [*range(rank - 2), rank - 1, rank - 2]
    layer = replace(transpose, attributes={"perm": {"ints": perm}}, inputs=(0,), outputs=(1,))
    return LayerSequence((layer,), values, (1,))
