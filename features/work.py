"""Work of a layer: arithmetic and memory traffic, from its operator, shapes and attributes alone.

The rules for single operators rely on the presence of the inputs and attributes that they read, which holds in a graph
that a runtime has lowered. For a layer that an untrusted client describes, `costmodel.serving.validation` checks their
presence: whoever adds a rule here adds its check there.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from costmodel.features.contraction import Contraction
from costmodel.features.copies import RECURRENT, copy_flops, implicit_output
from costmodel.ir.graph import Attributes, TensorType
from costmodel.ir.sequence import LayerSequence, SequenceLayer

Types = Sequence[TensorType | None]

__all__ = ["Work", "layer_work", "window_area"]


@dataclass(frozen=True, slots=True)
class Work:
    """Arithmetic and memory traffic of one layer.

    Attributes:
        multiply_flops: Floating-point operations of the layer's matrix products, of which a multiply-add counts as two.
        other_flops: All other arithmetic, in simple operations: 1 for an addition, about 10 for an exponential.
        scalar_calls: Number of calls into the C library, each for one element.
        input_bytes: Bytes read from tensors other than constants.
        weight_bytes: Bytes read from constants.
        output_bytes: Bytes written.
        contraction: The contraction that characterises the layer: the recurrence of a recurrent layer, else its largest
            one by its operations; None if it has none.
        copy_flops: Time that the kernel spends on copying elements into another order, besides the memory traffic, in
            simple operations; see `costmodel.features.copies`.
        vectorised: Number of elements along the axis that the kernel of a matrix product computes in vectors, which it
            fills up to whole ones; 0 if it computes in another way.
    """

    multiply_flops: float
    other_flops: float
    scalar_calls: float
    input_bytes: int
    weight_bytes: int
    output_bytes: int
    contraction: Contraction | None
    copy_flops: float = 0.0
    vectorised: int = 0

    @property
    def flops(self) -> float:
        """Number of all operations: `multiply_flops` plus `other_flops`."""
        return self.multiply_flops + self.other_flops

    @property
    def moved_bytes(self) -> int:
        """Memory traffic in bytes, each tensor counted once."""
        return self.input_bytes + self.weight_bytes + self.output_bytes


def layer_work(sequence: LayerSequence, layer: SequenceLayer) -> Work:
    """Returns the work of one layer of a sequence."""
    inputs = [sequence.values[i].type if i >= 0 else None for i in layer.inputs]
    outputs = [sequence.values[i].type for i in layer.outputs if i >= 0]
    # Each tensor counts once, even if the layer lists it several times.
    present = [sequence.values[i] for i in dict.fromkeys(layer.inputs) if i >= 0]
    weights = [value.type for value in present if value.role == "constant"]
    activations = [value.type for value in present if value.role != "constant"]
    largest = max((value.type.elements for value in present), default=0)
    rule = _CONTRACTIONS.get(layer.op_type)
    contractions = rule(inputs, outputs, layer.attributes) if rule is not None else []
    if layer.op_type not in RECURRENT:
        contractions.sort(key=lambda contraction: -contraction.flops)
    multiply = sum(c.flops for c in contractions)
    written = sum(t.nbytes for t in outputs)
    read = sum(t.nbytes for t in activations)
    if layer.op_type in _SELECTIVE:  # it reads only the elements that it writes
        read = min(read, written)
        weights_read = min(sum(t.nbytes for t in weights), written)
    else:
        weights_read = sum(t.nbytes for t in weights)
    return Work(
        multiply_flops=multiply,
        other_flops=_other_flops(sequence, layer, inputs, outputs, largest, multiply > 0),
        copy_flops=copy_flops(layer, inputs, outputs, contractions[0] if contractions else None),
        scalar_calls=float(sum(t.elements for t in outputs)) if _calls_library(sequence, layer) else 0.0,
        input_bytes=read,
        weight_bytes=weights_read,
        output_bytes=written,
        vectorised=_vectorised(layer, inputs, outputs, contractions[0]) if contractions else 0,
        contraction=contractions[0] if contractions else None,
    )


def _vectorised(layer: SequenceLayer, inputs: Types, outputs: Sequence[TensorType], product: Contraction) -> int:
    """Returns `Work.vectorised`.

    The axis is that of the output channels of a blocked convolution, the positions of any other one, and the columns of
    a product. A product with a single column, or a convolution with a single position, is computed along its depth.
    """
    data = inputs[0]
    if layer.op_type in ("Conv", "FusedConv") and data is not None:
        if data.blocked or outputs[0].blocked:
            return product.columns if layer.attributes.get("group", {"i": 1})["i"] == 1 else 0
        return product.rows if product.rows > 1 else 0
    if layer.op_type in ("Gemm", "FusedGemm", "MatMul", "FusedMatMul"):
        return product.columns if product.columns > 1 else 0
    return 0


_SELECTIVE = {"Gather", "GatherElements", "GatherND", "Slice", "Split", "Shape", "Size"}
# Views: the runtime passes the buffer on without copying.
_FREE = {"Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity", "Shape", "Size", "Dropout"}
_TRANSCENDENTAL = {
    "Exp", "Log", "Erf", "Tanh", "Sigmoid", "Gelu", "FastGelu", "QuickGelu", "BiasGelu", "Softmax", "LogSoftmax",
    "Softplus", "Elu", "Selu", "Celu", "Mish", "Swish", "Sin", "Cos", "HardSwish", "QLinearSoftmax", "QLinearSigmoid",
}  # fmt: skip
_TRANSCENDENTAL_FLOPS = 10.0
_FUSED_FLOPS = {"Selu": 40.0, "Elu": 40.0}  # without a kernel of their own
_PRELU_FLOPS = 50.0  # one element at a time, with a branch that is hard to predict
_EXPONENTS_AS_PRODUCTS = ((2.0,), (3.0,))
_PER_INPUT = {
    "ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceSumSquare",
    "GlobalAveragePool", "GlobalMaxPool", "ArgMax", "ArgMin", "TopK", "CumSum", "NonZero", "LpNormalization",
}  # fmt: skip
_NORMALISATIONS = {
    "LayerNormalization": 8, "SkipLayerNormalization": 9, "SimplifiedLayerNormalization": 5,
    "SkipSimplifiedLayerNormalization": 6, "InstanceNormalization": 8, "GroupNorm": 8, "GroupNormalization": 8,
    "BatchNormalization": 2, "MeanVarianceNormalization": 8, "RMSNormalization": 5, "EmbedLayerNormalization": 10,
}  # fmt: skip


def window_area(layer: SequenceLayer, data: TensorType) -> int:
    """Returns the number of elements in a layer's window (kernel), clipped to the input's shape; 1 without a window."""
    kernel = layer.attributes.get("kernel_shape", {}).get("ints", [])
    sizes = data.shape[len(data.shape) - len(kernel) :]
    return math.prod(min(k, max(1, size)) for k, size in zip(kernel, sizes, strict=True))


def _calls_library(sequence: LayerSequence, layer: SequenceLayer) -> bool:
    """Returns whether ONNX Runtime runs a layer by std::pow for each element, at least ten times as slow as exp."""
    if layer.op_type == "Pow":
        exponent = layer.inputs[1]
        assert exponent >= 0
        return sequence.values[exponent].data not in _EXPONENTS_AS_PRODUCTS
    return layer.op_type == "LRN"


def _other_flops(
    sequence: LayerSequence,
    layer: SequenceLayer,
    inputs: Types,
    outputs: Sequence[TensorType],
    largest: int,
    has_contraction: bool,
) -> float:
    elements = sum(t.elements for t in outputs)
    if layer.op_type in _FREE:
        return 0.0
    if layer.op_type in RECURRENT:
        return _TRANSCENDENTAL_FLOPS * _gate_elements(inputs)
    if layer.op_type == "PRelu":
        return _PRELU_FLOPS * elements
    if layer.op_type == "Resize" and inputs[0] is not None and inputs[0].shape == outputs[0].shape:
        return 0.0  # a copy
    if has_contraction:  # bias, rescaling, and a fused activation
        fused = layer.attributes.get("activation", {}).get("s", "")
        return float(elements) * _FUSED_FLOPS.get(fused, _TRANSCENDENTAL_FLOPS if fused in _TRANSCENDENTAL else 1.0)
    if layer.op_type == "DFT":
        return _fourier_flops(inputs[0], _fourier_axis(sequence, layer))
    if layer.op_type in _TRANSCENDENTAL:
        return _TRANSCENDENTAL_FLOPS * elements
    if layer.op_type in _NORMALISATIONS:
        return float(_NORMALISATIONS[layer.op_type] * elements)
    if layer.op_type in _PER_INPUT:
        return float(largest)
    if layer.op_type in ("MaxPool", "AveragePool", "LpPool"):
        assert inputs[0] is not None
        return float(elements * window_area(layer, inputs[0]))
    if layer.op_type == "LRN":
        return float(elements * layer.attributes["size"]["i"])
    if layer.op_type in ("Sum", "Mean", "Max", "Min"):
        return float(elements * max(1, len(inputs) - 1))
    if layer.op_type in ("Resize", "Upsample", "GridSample", "RoiAlign"):
        return 8.0 * elements
    return float(elements)


def _fourier_axis(sequence: LayerSequence, layer: SequenceLayer) -> int:
    """Returns the axis that a DFT transforms: an attribute before version 20, then an input."""
    if layer.since < 20:
        return int(layer.attributes.get("axis", {"i": 1})["i"])
    given = layer.inputs[2] if len(layer.inputs) > 2 else -1
    data = sequence.values[given].data if given >= 0 else None
    return int(data[0]) if data else -2


def _fourier_flops(data: TensorType | None, axis: int) -> float:
    """Returns the operations of a Fourier transform: 5 per element on each of the log2(length) levels of an FFT.

    A transform whose length is not a power of two takes four times as many, because ONNX Runtime then computes two
    longer transforms (Bluestein, 1970).

    Args:
        data: Type of the input.
        axis: Axis that is transformed.
    """
    assert data is not None
    length = data.shape[axis] if -len(data.shape) <= axis < len(data.shape) else 1
    factor = 1.0 if length & (length - 1) == 0 else 4.0
    return 5.0 * factor * data.elements * math.log2(max(2, length))


def _convolution(
    inputs: Types, outputs: Sequence[TensorType], attributes: Attributes, *, weight: int = 1
) -> list[Contraction]:
    filters, output = inputs[weight], outputs[0]
    assert filters is not None
    group = attributes.get("group", {"i": 1})["i"]
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
    group = attributes.get("group", {"i": 1})["i"]
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


def _gate_elements(inputs: Types) -> int:
    data, recurrence = inputs[0], inputs[2]
    assert data is not None
    assert recurrence is not None
    return data.shape[0] * data.shape[1] * recurrence.shape[0] * max(recurrence.shape[1:])


def _einsum(inputs: Types, outputs: Sequence[TensorType], attributes: Attributes) -> list[Contraction]:
    equation = attributes["equation"]["s"].replace(" ", "")
    terms = equation.split("->")[0].split(",")
    sizes: dict[str, int] = {}
    for term, kind in zip(terms, inputs, strict=True):
        if kind is None or "." in term:
            return []
        for letter, size in zip(term, kind.shape, strict=True):
            sizes[letter] = max(size, sizes.get(letter, 1))  # an axis of size 1 is broadcast
    out = equation.split("->")[1] if "->" in equation else implicit_output(terms)
    first, *others = terms
    second = set("".join(others))
    kept = set(out)
    batch = set(first) & second & kept
    parts = (batch, (set(first) & kept) - batch, (second & kept) - batch, sizes.keys() - kept)
    return [Contraction(*(math.prod(sizes[letter] for letter in part) for part in parts))]


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


_CONTRACTIONS: dict[str, Callable[[Types, Sequence[TensorType], Attributes], list[Contraction]]] = {
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
}
