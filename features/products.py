"""The matrix products of a layer, by its operator.

A convolution, a recurrence and attention are matrix products too. The rules rely on the presence of the inputs and
attributes that they read, as those of `costmodel.features.work` do.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial

from costmodel.features.contraction import Contraction
from costmodel.features.einsum import EinsumSteps
from costmodel.features.estimators import estimator_products
from costmodel.ir.attributes import integer
from costmodel.ir.graph import Attributes, TensorType
from costmodel.ir.sequence import SequenceLayer

__all__ = ["RECURRENT", "Types", "products_of"]

Types = Sequence[TensorType | None]

RECURRENT = ("LSTM", "GRU", "RNN", "DynamicQuantizeLSTM")


def products_of(layer: SequenceLayer, inputs: Types, outputs: Sequence[TensorType]) -> list[Contraction]:
    """Returns the matrix products of a layer, the one that characterises it first; none if it has none.

    The recurrence characterises a recurrent layer, the product with most operations any other.

    Args:
        layer: The layer.
        inputs: Types of its inputs; None for an absent one.
        outputs: Types of its outputs.
    """
    rule = _RULES.get(layer.op_type)
    products = rule(inputs, outputs, layer.attributes) if rule is not None else []
    return products if layer.op_type in RECURRENT else sorted(products, key=lambda product: -product.flops)


def _convolution(
    inputs: Types, outputs: Sequence[TensorType], attributes: Attributes, *, weight: int = 1
) -> list[Contraction]:
    filters, output = inputs[weight], outputs[0]
    assert filters is not None
    group = integer(attributes, "group", 1)
    images, channels = output.shape[0], filters.shape[0]
    return [
        Contraction(
            batch=images * group,
            rows=output.elements // max(1, images * channels),  # holds for any position of the channel axis
            columns=channels // group,
            depth=math.prod(filters.shape[1:]),
        )
    ]


def _transposed_convolution(inputs: Types, outputs: Sequence[TensorType], attributes: Attributes) -> list[Contraction]:
    data, filters = inputs[0], inputs[1]
    assert data is not None
    assert filters is not None
    group = integer(attributes, "group", 1)
    return [
        Contraction(
            batch=data.shape[0] * group,
            rows=math.prod(data.shape[2:]),
            columns=math.prod(filters.shape[1:]),
            depth=filters.shape[0] // group,
        )
    ]


def _gemm(inputs: Types, outputs: Sequence[TensorType], attributes: Attributes) -> list[Contraction]:
    a, output = inputs[0], outputs[0]
    assert a is not None
    depth = a.shape[0] if attributes.get("transA", {"i": 0})["i"] else a.shape[-1]
    return [Contraction(1, math.prod(output.shape[:-1]), output.shape[-1], depth)]


def _matmul(inputs: Types, outputs: Sequence[TensorType], attributes: Attributes) -> list[Contraction]:
    a, output = inputs[0], outputs[0]
    b = next((t for t in inputs[1:] if t is not None and len(t.shape) > 0 and t.elements > 1), None)
    assert a is not None
    depth = a.shape[-1]
    if attributes.get("transA", {"i": 0})["i"] and len(a.shape) > 1:
        depth = a.shape[0] if attributes.get("transBatchA", {"i": 0})["i"] else a.shape[-2]
    if not output.shape:
        return [Contraction(1, 1, 1, depth)]
    if b is not None and len(b.shape) <= 2:  # one matrix for the whole batch, which the runtime folds into the rows
        return [Contraction(1, math.prod(output.shape[:-1]), output.shape[-1], depth)]
    rows = output.shape[-2] if len(output.shape) > 1 else 1
    return [Contraction(math.prod(output.shape[:-2]), rows, output.shape[-1], depth)]


def _recurrent(inputs: Types, outputs: Sequence[TensorType], attributes: Attributes) -> list[Contraction]:
    data, kernel, recurrence = inputs[0], inputs[1], inputs[2]
    assert data is not None
    assert kernel is not None
    assert recurrence is not None
    steps, batch = data.shape[0], data.shape[1]
    # The gates are the larger axis, since each hidden unit has several; quantised weights have the two axes exchanged.
    directions, hidden, gates_hidden = recurrence.shape[0], min(recurrence.shape[1:]), max(recurrence.shape[1:])
    width = kernel.elements // max(1, directions * gates_hidden)
    return [
        Contraction(steps * directions, batch, gates_hidden, hidden),  # one after the other
        Contraction(directions, steps * batch, gates_hidden, width),  # of all steps at once
    ]


def _einsum(inputs: Types, outputs: Sequence[TensorType], attributes: Attributes) -> list[Contraction]:
    return EinsumSteps.of(attributes["equation"]["s"], [kind.shape for kind in inputs if kind is not None]).products


def _attention(inputs: Types, outputs: Sequence[TensorType], attributes: Attributes, *, past: int) -> list[Contraction]:
    """Returns the matrix products of an attention layer.

    The scores and the weighted sum of the values, two products of the same size, are written as one product of twice
    the depth. An operator with weights of its own (com.microsoft's Attention) first projects its input to queries, keys
    and values.

    Args:
        inputs: Types of the inputs: query, key, ...; the key may be absent, or packed with the query.
        outputs: Types of the outputs; the first has shape [batch, tokens, heads * size] or [batch, heads, tokens,
            size].
        attributes: Attributes of the layer.
        past: Position, among the inputs, of the keys of earlier runs, which have shape [..., keys, size].
    """
    output_shape = outputs[0].shape
    if len(output_shape) == 4:
        batch, heads, length, size = output_shape
    elif len(output_shape) == 3:
        batch, length, width = output_shape
        heads = attributes.get("num_heads", attributes.get("q_num_heads", {"i": 1}))["i"]
        size = width // heads
    else:
        return []
    query, key, earlier = (inputs[slot] if slot < len(inputs) else None for slot in (0, 1, past))
    keys, projection = length, []
    if key is not None and len(key.shape) == 2:
        assert query is not None
        projection = [Contraction(1, batch * length, key.shape[1], query.shape[-1])]
    elif key is not None:
        keys = key.shape[-2] if len(key.shape) == 4 else key.shape[1]
    if earlier is not None:
        keys += earlier.shape[-2]
    return [Contraction(batch * heads, length, keys, 2 * size), *projection]


def _block_quantised(inputs: Types, outputs: Sequence[TensorType], attributes: Attributes) -> list[Contraction]:
    return [
        Contraction(1, math.prod(outputs[0].shape[:-1]), attributes["N"]["i"], attributes["K"]["i"]),
    ]


_RULES: dict[str, Callable[[Types, Sequence[TensorType], Attributes], list[Contraction]]] = {
    "Conv": _convolution,
    "FusedConv": _convolution,
    "NhwcFusedConv": _convolution,
    "ConvInteger": _convolution,
    "QLinearConv": partial(_convolution, weight=3),
    "ConvTranspose": _transposed_convolution,
    "Gemm": _gemm,
    "FusedGemm": _gemm,
    "QGemm": _gemm,
    "MatMul": _matmul,
    "FusedMatMul": _matmul,
    "MatMulInteger": _matmul,
    "MatMulIntegerToFloat": _matmul,
    "DynamicQuantizeMatMul": _matmul,
    "QLinearMatMul": _matmul,
    "MatMulNBits": _block_quantised,
    "LSTM": _recurrent,
    "GRU": _recurrent,
    "RNN": _recurrent,
    "DynamicQuantizeLSTM": _recurrent,
    "Einsum": _einsum,
    "Attention": partial(_attention, past=4),
    "MultiHeadAttention": partial(_attention, past=6),
    "GroupQueryAttention": partial(_attention, past=3),
    "QAttention": partial(_attention, past=8),
    "SVMClassifier": estimator_products,
    "SVMRegressor": estimator_products,
    "LinearClassifier": estimator_products,
    "LinearRegressor": estimator_products,
}
