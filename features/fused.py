"""Fused layers as the features see them: as their main operator, with the work of all operators.

A convolution with a fused activation is described like a convolution, whichever runtime fused it.
"""

from dataclasses import replace

from costmodel.ir.fused import body_of, main_layer
from costmodel.ir.sequence import LayerSequence, SequenceLayer

__all__ = ["as_main_operator"]

# Operators that runtimes apply to the result of a product before it is written.
_ACTIVATIONS = (
    "Relu", "LeakyRelu", "Clip", "HardSigmoid", "HardSwish", "Sigmoid", "Tanh", "Gelu", "Erf", "Elu", "Selu",
    "Softplus",
)  # fmt: skip


def as_main_operator(sequence: LayerSequence, layer: SequenceLayer) -> tuple[LayerSequence, SequenceLayer]:
    """Returns the operator that characterises a layer, and the sequence to which its values belong.

    For a fused layer, that is its main operator: with the last activation among the operators after it as an attribute,
    and with the other inputs of the layer after its own. What is quantised where it enters and leaves the layer is
    described as quantised, because the runtime computes with that.
    """
    body = body_of(layer)
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
