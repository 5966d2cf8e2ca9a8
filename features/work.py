"""Work of a layer: arithmetic and memory traffic, from its operator, shapes and attributes alone.

The rules for single operators rely on the presence of the inputs and attributes that they read, which holds in a graph
that a runtime has lowered. For a layer that an untrusted client describes, `costmodel.serving.validation` checks their
presence: whoever adds a rule here adds its check there.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from costmodel.features.arithmetic import one_by_one_flops, other_flops
from costmodel.features.blocked_convolution import BlockedConvolution
from costmodel.features.cache_conflicts import conflicting_writes
from costmodel.features.channel_order import channels_of
from costmodel.features.channels_last_convolution import ChannelsLastConvolution
from costmodel.features.contraction import Contraction
from costmodel.features.control_flow import CONTROL_FLOW, BodyWork, body_work
from costmodel.features.copies import copy_flops, run_flops
from costmodel.features.divided_kernels import DIVIDED, Division, division_of
from costmodel.features.divided_products import ProductTasks, copies_on_one_thread, product_tasks, undivided_flops
from costmodel.features.estimators import ESTIMATORS, NO_ESTIMATOR, estimator_of
from costmodel.features.fused import VECTOR_INSTRUCTIONS, laid_out_body
from costmodel.features.integer_products import NO_PRODUCTS, IntegerProducts, integer_products_of
from costmodel.features.products import Types, products_of
from costmodel.features.recurrence import layers_of_recurrence
from costmodel.features.row_copies import row_copy_flops
from costmodel.ir.attributes import integer
from costmodel.ir.fused import main_layer
from costmodel.ir.graph import TensorType
from costmodel.ir.sequence import LayerSequence, SequenceLayer

__all__ = ["Work", "layer_work"]

_NO_BODY = BodyWork(0, 0.0, 0.0)
# The runtime passes the buffer on: such a layer takes as long as an empty one, whatever the size of its tensors.
_VIEWS = {"Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity", "ExpandDims"}
_SELECTIVE = {"Gather", "GatherElements", "GatherND", "Slice", "Split", "Shape", "Size"}
_EXPONENTS_AS_PRODUCTS = ((2.0,), (3.0,))
_ELEMENTWISE = {*VECTOR_INSTRUCTIONS, "Add", "Sub", "Mul", "Div"}


@dataclass(frozen=True, slots=True)
class Work:
    """Arithmetic and memory traffic of one layer.

    Attributes:
        multiply_flops: Floating-point operations of the layer's matrix products, of which a multiply-add counts as two.
        other_flops: All other arithmetic, in simple operations: 1 for an addition, about 10 for an exponential.
        one_by_one_flops: What ONNX Runtime takes longer than `other_flops`, because it computes one element after
            another where a runtime that keeps channels last computes vectors; negative where it is quicker than what is
            assumed of others.
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
        inner_layers: Number of empty layers that take as long as the runtime takes to begin the layers of a body in all
            its runs, or to prepare a recurrent layer and its steps.
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


_NO_WORK = Work(
    multiply_flops=0.0,
    other_flops=0.0,
    scalar_calls=0.0,
    input_bytes=0,
    weight_bytes=0,
    output_bytes=0,
    contraction=None,
)


def layer_work(sequence: LayerSequence, layer: SequenceLayer) -> Work:
    """Returns the work of one layer of a sequence; for a fused layer, that of all its operators."""
    fused = laid_out_body(layer)
    if fused is not None:
        return _fused_work(fused)
    if layer.op_type in _VIEWS:
        return _NO_WORK
    inputs = [sequence.values[i].type if i >= 0 else None for i in layer.inputs]
    outputs = [sequence.values[i].type for i in layer.outputs if i >= 0]
    # Each tensor counts once, even if the layer lists it several times.
    present = [sequence.values[i] for i in dict.fromkeys(layer.inputs) if i >= 0]
    weights = [value.type for value in present if value.role == "constant"]
    activations = [value.type for value in present if value.role != "constant"]
    largest = max((value.type.elements for value in present), default=0)
    contractions = products_of(layer, inputs, outputs)
    integers = integer_products_of(
        layer, inputs, outputs[0] if outputs else None, contractions[0] if contractions else None
    )
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
    copies = copy_flops(layer, inputs, outputs, contractions)
    copies_by_rows = row_copy_flops(layer, inputs[0], outputs[0]) if inputs and inputs[0] and outputs else None
    other_copies = run_flops(sequence, layer) + integers.copy_flops
    return Work(
        multiply_flops=multiply + body.multiply_flops,
        one_by_one_flops=one_by_one_flops(sequence, layer, inputs, outputs),
        other_flops=estimator.flops
        or other_flops(sequence, layer, inputs, outputs, largest, multiply > 0)
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
        tasks=product_tasks(layer, inputs, outputs, contractions[0]) if contractions else None,
        division=division_of(layer, inputs, outputs),
        copies_on_one_thread=copies_on_one_thread(layer, inputs, outputs, contractions[0] if contractions else None),
        undivided_flops=undivided_flops(layer, inputs, outputs, contractions[0] if contractions else None),
        inner_layers=body.empty_layers + layers_of_recurrence(layer.op_type, contractions[0] if contractions else None),
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
        one_by_one_flops=sum(
            work.one_by_one_flops
            for layer, work in zip(body.layers, works, strict=True)
            if layer.op_type not in VECTOR_INSTRUCTIONS
        ),
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
    written = next((body.values[i].type for i in layer.outputs if i >= 0), None)
    return integer_products_of(layer, [body.values[i].type if i >= 0 else None for i in read], written, contraction)


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
        return channels_of(outputs[0]) if integer(layer.attributes, "group", 1) == 1 else 0
    if layer.op_type in ("Conv", "FusedConv") and data is not None:
        return product.rows if product.rows > 1 and not outputs[0].blocked else 0
    if layer.op_type in ("Gemm", "FusedGemm", "MatMul", "FusedMatMul"):
        return product.columns if product.columns > 1 else 0
    return 0


def _calls_library(sequence: LayerSequence, layer: SequenceLayer) -> bool:
    """Returns whether ONNX Runtime runs a layer by std::pow for each element, at least ten times as slow as exp."""
    if layer.op_type == "Pow":
        exponent = layer.inputs[1]
        assert exponent >= 0
        return sequence.values[exponent].data not in _EXPONENTS_AS_PRODUCTS
    return layer.op_type == "LRN"
