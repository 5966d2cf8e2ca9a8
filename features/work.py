"""Work of a layer: arithmetic and memory traffic, from its operator, shapes and attributes alone.

The rules for single operators rely on the presence of the inputs and attributes that they read, which holds in a graph
that a runtime has lowered. For a layer that an untrusted client describes, `costmodel.serving.validation` checks their
presence: whoever adds a rule here adds its check there.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from costmodel.features.access_pattern import worked_axes
from costmodel.features.blocked_convolution import BlockedConvolution
from costmodel.features.cache_conflicts import conflicting_writes
from costmodel.features.channel_order import channels_first
from costmodel.features.channels_last_convolution import ChannelsLastConvolution
from costmodel.features.contraction import Contraction
from costmodel.features.control_flow import CONTROL_FLOW, BodyWork, body_work
from costmodel.features.copies import copy_flops, run_flops
from costmodel.features.divided_kernels import DIVIDED, Division, division_of
from costmodel.features.divided_products import ProductTasks, copies_on_one_thread, product_tasks, undivided_flops
from costmodel.features.estimators import ESTIMATORS, NO_ESTIMATOR, estimator_of
from costmodel.features.fused import VECTOR_INSTRUCTIONS, laid_out_body
from costmodel.features.integer_products import NO_PRODUCTS, IntegerProducts, integer_products_of
from costmodel.features.products import RECURRENT, Types, products_of
from costmodel.features.reductions import is_reduction, reduction_flops
from costmodel.features.resampling import RESAMPLING, resampling_flops, resampling_flops_by_elements
from costmodel.features.row_copies import row_copy_flops
from costmodel.ir.attributes import integer
from costmodel.ir.fused import main_layer
from costmodel.ir.graph import TensorType
from costmodel.ir.sequence import LayerSequence, SequenceLayer

__all__ = ["Work", "layer_work", "window_area"]


@dataclass(frozen=True, slots=True)
class Work:
    """Arithmetic and memory traffic of one layer.

    Attributes:
        multiply_flops: Floating-point operations of the layer's matrix products, of which a multiply-add counts as two.
        other_flops: All other arithmetic, in simple operations: 1 for an addition, about 10 for an exponential.
        one_by_one_flops: What ONNX Runtime takes longer than `other_flops`, because it computes one element after
            another where a runtime that keeps channels last computes vectors.
        scalar_calls: Number of calls into the C library, each for one element.
        input_bytes: Bytes read from tensors other than constants.
        weight_bytes: Bytes read from constants.
        output_bytes: Bytes written.
        contraction: The contraction that characterises the layer: the recurrence of a recurrent layer, else its largest
            one by its operations; None if it has none.
        copy_flops: Time that the kernel spends on copying elements into another order, besides the memory traffic, in
            simple operations; see `costmodel.features.copies`.
        row_copy_flops: The same for a runtime that keeps channels last; see `costmodel.features.row_copies`.
        conflicting_writes: Number of elements that are written in conflict with others in the level 1 cache; see
            `costmodel.features.cache_conflicts`.
        vectorised: Number of elements along the axis that the kernel of a matrix product computes in vectors, which it
            fills up to whole ones; 0 if it computes in another way, and for a blocked convolution.
        blocked: The layer as a convolution that is computed in blocks of channels; None if it is none.
        channels_last: The layer as a convolution of an image whose channels are last; None if it is none.
        integers: How the layer multiplies integers, if it does.
        tasks: The tasks into which other products are divided among threads; None if there are none.
        division: The parts into which everything but the products is divided among threads.
        copies_on_one_thread: Whether the copies beside products run on one thread.
        undivided_flops: Work that one thread does while the others wait, in simple operations; ignored with a single
            thread.
        inner_layers: Number of layers that run inside the layer: those of the body of a loop, in all its runs.
        parameter_bytes: Bytes of the parameters that an estimator has as attributes, read or not.
    """

    multiply_flops: float
    other_flops: float
    scalar_calls: float
    input_bytes: int
    weight_bytes: int
    output_bytes: int
    contraction: Contraction | None
    copy_flops: float = 0.0
    row_copy_flops: float = 0.0
    one_by_one_flops: float = 0.0
    conflicting_writes: int = 0
    vectorised: int = 0
    blocked: BlockedConvolution | None = None
    channels_last: ChannelsLastConvolution | None = None
    integers: IntegerProducts = NO_PRODUCTS
    tasks: ProductTasks | None = None
    division: Division = DIVIDED
    copies_on_one_thread: bool = False
    undivided_flops: float = 0.0
    inner_layers: int = 0
    parameter_bytes: int = 0

    @property
    def flops(self) -> float:
        """Number of all operations: `multiply_flops` plus `other_flops`."""
        return self.multiply_flops + self.other_flops

    @property
    def moved_bytes(self) -> int:
        """Memory traffic in bytes, each tensor counted once."""
        return self.input_bytes + self.weight_bytes + self.output_bytes


def layer_work(sequence: LayerSequence, layer: SequenceLayer) -> Work:
    """Returns the work of one layer of a sequence; for a fused layer, that of all its operators."""
    fused = laid_out_body(layer)
    if fused is not None:
        return _fused_work(fused)
    inputs = [sequence.values[i].type if i >= 0 else None for i in layer.inputs]
    outputs = [sequence.values[i].type for i in layer.outputs if i >= 0]
    # Each tensor counts once, even if the layer lists it several times.
    present = [sequence.values[i] for i in dict.fromkeys(layer.inputs) if i >= 0]
    weights = [value.type for value in present if value.role == "constant"]
    activations = [value.type for value in present if value.role != "constant"]
    largest = max((value.type.elements for value in present), default=0)
    contractions = products_of(layer, inputs, outputs)
    integers = integer_products_of(layer, inputs, contractions[0] if contractions else None)
    multiply = sum(c.flops for c in contractions)
    written = sum(t.nbytes for t in outputs)
    read = sum(t.nbytes for t in activations)
    if layer.op_type in _SELECTIVE:  # it reads only the elements that it writes
        read = min(read, written)
        weights_read = min(sum(t.nbytes for t in weights), written)
    else:
        weights_read = sum(t.nbytes for t in weights)
    estimates = layer.op_type in ESTIMATORS
    estimator = estimator_of(layer.op_type, inputs, outputs, layer.attributes) if estimates else NO_ESTIMATOR
    body = body_work(sequence, layer) if layer.op_type in CONTROL_FLOW else _NO_BODY
    copies = copy_flops(layer, inputs, outputs, contractions[0] if contractions else None)
    copies_by_rows = row_copy_flops(layer, inputs[0], outputs[0]) if inputs and inputs[0] and outputs else None
    other_copies = run_flops(sequence, layer) + integers.copy_flops
    return Work(
        multiply_flops=multiply + body.multiply_flops,
        one_by_one_flops=_one_by_one_flops(sequence, layer, inputs, outputs),
        other_flops=estimator.flops
        or _other_flops(sequence, layer, inputs, outputs, largest, multiply > 0)
        + (integers.rescaled_flops - 1) * sum(t.elements for t in outputs)
        + body.other_flops,
        copy_flops=copies + other_copies,
        row_copy_flops=(copies if copies_by_rows is None else copies_by_rows) + other_copies,
        conflicting_writes=conflicting_writes(layer, inputs, outputs),
        scalar_calls=float(sum(t.elements for t in outputs)) if _calls_library(sequence, layer) else 0.0,
        input_bytes=read,
        weight_bytes=weights_read + estimator.bytes_read,
        output_bytes=written,
        vectorised=_vectorised(layer, inputs, outputs, contractions[0]) if contractions else 0,
        contraction=contractions[0] if contractions else None,
        blocked=BlockedConvolution.of(layer, inputs[0], outputs[0]) if contractions and inputs[0] else None,
        channels_last=ChannelsLastConvolution.of(layer, inputs[0], outputs[0]) if contractions and inputs[0] else None,
        integers=integers,
        tasks=product_tasks(layer, inputs, contractions[0]) if contractions else None,
        division=division_of(layer, inputs, outputs),
        copies_on_one_thread=copies_on_one_thread(layer, inputs, contractions[0] if contractions else None),
        undivided_flops=undivided_flops(layer, inputs, outputs, contractions[0] if contractions else None),
        inner_layers=body.layers,
        parameter_bytes=estimator.parameter_bytes,
    )


def _fused_work(body: LayerSequence) -> Work:
    """Returns the work of the operators of a fused layer, which read and write nothing but its inputs and outputs."""
    works = [layer_work(body, layer) for layer in body.layers]
    place = body.layers.index(main_layer(body))
    main = works[place]
    # A transposition beside the main operator is how that one reads or writes.
    copying = [work for i, work in enumerate(works) if i == place or body.layers[i].op_type != "Transpose"]
    integers = _fused_integers(body, body.layers[place], main.contraction)
    written = sum(body.values[i].type.nbytes for i in body.outputs)
    read = sum(value.type.nbytes for value in body.values if value.role == "input")
    return replace(
        main,
        multiply_flops=sum(work.multiply_flops for work in works),
        other_flops=sum(_fused_flops(body, layer, work) for layer, work in zip(body.layers, works, strict=True)),
        one_by_one_flops=sum(work.one_by_one_flops for work in works),
        copy_flops=sum(work.copy_flops for work in copying),
        row_copy_flops=sum(work.row_copy_flops for work in copying),
        conflicting_writes=sum(work.conflicting_writes for work in works),
        scalar_calls=sum(work.scalar_calls for work in works),
        input_bytes=min(read, sum(work.input_bytes for work in works)),
        weight_bytes=sum(work.weight_bytes for work in works),
        output_bytes=written,
        integers=integers,
    )


def _fused_integers(body: LayerSequence, layer: SequenceLayer, contraction: Contraction | None) -> IntegerProducts:
    """Returns how the main operator of a fused layer multiplies integers: those that it reads as floats."""
    quantised = {one.outputs[0]: one.inputs[0] for one in body.layers if one.op_type == "DequantizeLinear"}
    read = [quantised.get(i, i) for i in layer.inputs]
    return integer_products_of(layer, [body.values[i].type if i >= 0 else None for i in read], contraction)


def _fused_flops(body: LayerSequence, layer: SequenceLayer, work: Work) -> float:
    """Returns `Work.other_flops` of an operator of a fused layer, in which activations are computed in vectors.

    What such a layer reads as floats it multiplies as integers.
    """
    if layer.op_type == "DequantizeLinear":
        return 0.0
    instructions = VECTOR_INSTRUCTIONS.get(layer.op_type)
    if instructions is None:
        return work.other_flops
    written = layer.outputs
    if main_layer(body).op_type in _ELEMENTWISE:  # one loop over the result computes even what it broadcasts
        written = (*written, *body.outputs)
    return instructions * max(body.values[i].type.elements for i in written if i >= 0)


def _vectorised(layer: SequenceLayer, inputs: Types, outputs: Sequence[TensorType], product: Contraction) -> int:
    """Returns `Work.vectorised`.

    The axis is that of the positions of a convolution, of the channels of a transposed one with channels last, and of
    the columns of a product. A product with a single column, or a convolution with a single position, is computed along
    its depth. `Work.blocked` and `Work.channels_last` describe other convolutions.
    """
    data = inputs[0]
    if layer.op_type == "ConvTranspose" and data is not None and (data.blocked or outputs[0].blocked):
        return _channels(outputs[0]) if integer(layer.attributes, "group", 1) == 1 else 0
    if layer.op_type in ("Conv", "FusedConv") and data is not None:
        return product.rows if product.rows > 1 and not outputs[0].blocked else 0
    if layer.op_type in ("Gemm", "FusedGemm", "MatMul", "FusedMatMul"):
        return product.columns if product.columns > 1 else 0
    return 0


_NO_BODY = BodyWork(0, 0.0, 0.0)
_SELECTIVE = {"Gather", "GatherElements", "GatherND", "Slice", "Split", "Shape", "Size"}
# Views: the runtime passes the buffer on without copying.
_FREE = {"Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity", "Shape", "Size", "Dropout"}
_TRANSCENDENTAL = {
    "Exp", "Log", "Erf", "Tanh", "Sigmoid", "Gelu", "FastGelu", "QuickGelu", "BiasGelu", "Softmax", "LogSoftmax",
    "Softplus", "Elu", "Selu", "Celu", "Mish", "Swish", "Sin", "Cos", "HardSwish", "QLinearSigmoid",
}  # fmt: skip
_TRANSCENDENTAL_FLOPS = 10.0
_FUSED_FLOPS = {"Selu": 40.0, "Elu": 40.0}  # without a kernel of their own
_PRELU_FLOPS = 50.0  # one element at a time, with a branch that is hard to predict
_AVERAGE_FLOPS = 30.0  # for each element of a window, where channels are not blocked: one element at a time
# One element at a time: it is looked up, or chosen and rescaled, or moved by the distances of six axes.
_INTEGER_SOFTMAX_FLOPS, _CHOSEN_FLOPS, _MOVED_FLOPS = 50.0, 20.0, 20.0
_POINTER_FLOPS = 40.0  # for each element of a window of all channels
_INDEX_FLOPS = 90.0  # for each element of a window whose largest element is also returned by its place
# With channels last, OpenVINO pools bytes position by position, in each of them vector by vector.
_BYTES, _BYTES_OF_VECTOR, _POSITION_FLOPS, _VECTOR_FLOPS = ("int8", "uint8"), 64, 280.0, 12.0
_COMPARED_FLOPS = 9.0  # an element of a row of which the best are chosen
_ENTERING_FLOPS = 100.0  # a level of the heap that an element enters
_FOURIER_FLOPS = 40.0  # for each complex number, on each level of a fast Fourier transform
_EXPONENTS_AS_PRODUCTS = ((2.0,), (3.0,))
_PER_INPUT = {
    "GlobalAveragePool", "GlobalMaxPool", "CumSum", "NonZero", "LpNormalization", "QLinearGlobalAveragePool",
}  # fmt: skip
_ELEMENTWISE = {*VECTOR_INSTRUCTIONS, "Add", "Sub", "Mul", "Div"}
_POOLINGS = {"MaxPool", "AveragePool", "LpPool", "NhwcMaxPool", "QLinearAveragePool"}
_SCALAR_FLOPS = {
    "QLinearSoftmax": _INTEGER_SOFTMAX_FLOPS, "QLinearWhere": _CHOSEN_FLOPS, "DepthToSpace": _MOVED_FLOPS,
    "SpaceToDepth": _MOVED_FLOPS,
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
    if layer.op_type in RESAMPLING and inputs[0] is not None:
        return resampling_flops(layer, inputs[0], outputs[0])
    if is_reduction(layer) and inputs[0] is not None:
        return float(inputs[0].elements)
    if has_contraction:  # bias, rescaling, and a fused activation
        fused = layer.attributes.get("activation", {}).get("s", "")
        return float(elements) * _FUSED_FLOPS.get(fused, _TRANSCENDENTAL_FLOPS if fused in _TRANSCENDENTAL else 1.0)
    if layer.op_type == "DFT":
        return _fourier_flops(inputs[0], _fourier_axis(sequence, layer))
    if layer.op_type in _SCALAR_FLOPS:
        return _SCALAR_FLOPS[layer.op_type] * elements
    if layer.op_type in _TRANSCENDENTAL:
        return _TRANSCENDENTAL_FLOPS * elements
    if layer.op_type in _NORMALISATIONS:
        return float(_NORMALISATIONS[layer.op_type] * elements)
    if layer.op_type in _PER_INPUT:
        return float(largest)
    if layer.op_type == "TopK" and inputs[0] is not None:
        return _selection_flops(layer, inputs[0], outputs[0])
    if layer.op_type in _POOLINGS:
        assert inputs[0] is not None
        each = 1.0 if "Max" in layer.op_type or inputs[0].blocked else _AVERAGE_FLOPS
        window = window_area(layer, channels_first(layer, inputs[0]))
        if inputs[0].blocked and inputs[0].dtype in _BYTES:
            channels = _channels(outputs[0])
            positions, vectors = elements / channels, -(-channels // _BYTES_OF_VECTOR)
            return positions * (_POSITION_FLOPS + _VECTOR_FLOPS * vectors * window)
        if layer.op_type == "NhwcMaxPool":  # reads its windows through pointers
            return window * (elements + _POINTER_FLOPS * elements / max(1, outputs[0].shape[-1]))
        if layer.op_type == "MaxPool" and len(outputs) > 1:
            each, elements = _INDEX_FLOPS, outputs[0].elements
        return each * elements * window
    if layer.op_type == "LRN":
        return float(elements * layer.attributes["size"]["i"])
    if layer.op_type in ("Sum", "Mean", "Max", "Min"):
        return float(elements * max(1, len(inputs) - 1))
    return float(elements)


def _one_by_one_flops(
    sequence: LayerSequence, layer: SequenceLayer, inputs: Types, outputs: Sequence[TensorType]
) -> float:
    """Returns `Work.one_by_one_flops`."""
    data = inputs[0] if inputs else None
    if data is None:
        return 0.0
    if is_reduction(layer):
        axes = worked_axes(sequence, layer, data)
        return reduction_flops(layer.op_type, data, axes) - data.elements
    if layer.op_type in RESAMPLING:
        by_elements = resampling_flops_by_elements(layer, data, outputs[0])
        return max(0.0, by_elements - resampling_flops(layer, data, outputs[0]))
    return 0.0


def _channels(image: TensorType) -> int:
    return max(1, image.shape[1]) if len(image.shape) > 1 else 1


def _selection_flops(layer: SequenceLayer, data: TensorType, chosen: TensorType) -> float:
    """Returns the operations of a TopK, which keeps the best elements so far of each row in a heap.

    Of `length` elements in random order, k (1 + ln(length / k)) enter a heap of k.
    """
    axis = integer(layer.attributes, "axis", -1)
    known = -min(len(data.shape), len(chosen.shape)) <= axis < min(len(data.shape), len(chosen.shape))
    length, k = (max(1, data.shape[axis]), max(1, chosen.shape[axis])) if known else (1, 1)
    entering = k * (1 + max(0.0, math.log(length / k)))
    return _COMPARED_FLOPS * data.elements + _ENTERING_FLOPS * data.elements / length * entering * math.log2(k + 1)


def _gate_elements(inputs: Types) -> int:
    data, recurrence = inputs[0], inputs[2]
    assert data is not None
    assert recurrence is not None
    return data.shape[0] * data.shape[1] * recurrence.shape[0] * max(recurrence.shape[1:])


def _fourier_axis(sequence: LayerSequence, layer: SequenceLayer) -> int:
    """Returns the axis that a DFT transforms: an attribute before version 20, then an input."""
    if layer.since < 20:
        return integer(layer.attributes, "axis", 1)
    given = layer.inputs[2] if len(layer.inputs) > 2 else -1
    data = sequence.values[given].data if given >= 0 else None
    return int(data[0]) if data else -2


def _fourier_flops(data: TensorType | None, axis: int) -> float:
    """Returns the operations of Fourier transforms, each of log2(length) levels if the length is a power of two.

    For other lengths, ONNX Runtime computes two transforms of at least twice the length, and a third one for all of
    them together (Bluestein, 1970).

    Args:
        data: Type of the input.
        axis: Axis that is transformed.
    """
    assert data is not None
    length = max(1, data.shape[axis] if -len(data.shape) <= axis < len(data.shape) else 1)
    parts = data.shape[-1] if data.shape and data.shape[-1] in (1, 2) else 1  # real numbers, or complex ones
    transforms = data.elements / parts / length
    if length & (length - 1):
        length, transforms = 1 << (2 * length - 2).bit_length(), 2 * transforms + 1
    return _FOURIER_FLOPS * transforms * length * math.log2(max(2, length))
