"""How ONNX Runtime divides what is not a product among threads: into which parts, and how often.

A kernel hands out its work in regions, one after the other; before each the threads are woken, and after it they wait
for the slowest. The rules are those of ONNX Runtime 1.31, read in its source or seen in its profile, which lists the
blocks of each region (docs/adr/0030).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from costmodel.features.copies import ONE_AXIS_SINCE, transposition_of
from costmodel.features.products import Types
from costmodel.features.spans import BROADCAST
from costmodel.features.transposition import TransposePath, matrix_rows, moved_range, transpose_path, unmoved_run
from costmodel.ir.attributes import integer
from costmodel.ir.graph import TensorType
from costmodel.ir.sequence import SequenceLayer

__all__ = ["DIVIDED", "Division", "division_of"]

# Many kernels estimate their work in cycles, from the bytes that they read and write and from their arithmetic. They
# divide it if that many are expected, into parts of at least so many.
_LEAST_CYCLES = 210_000
_CYCLES_OF_PART = 40_000
_CYCLES_OF_BYTE = 11 / 64
_MOVED_CYCLES = 1.0  # of an element that is copied
_REDUCED_CYCLES = 24.7  # of an element of a sum in single precision
# Other kernels divide by the size of what they write, whatever it takes. All sizes are numbers of elements.
_OF_GELU, _OF_CLIP, _OF_SOFTMAX, _OF_RESIZE, _OF_REORDER = 4096, 16_384, 16_384, 16_384, 49_152
_LEAST_REORDERED = 1024
_CHANNELS_OF_BLOCK = 16
_LARGEST_ELEMENT = 4  # bytes that the transposition of a matrix moves at once


@dataclass(frozen=True, slots=True)
class Division:
    """The parts into which the work of a kernel can be divided among threads.

    Attributes:
        parts: Number of parts, each of which one thread does.
        regions: Number of times that the kernel hands out parts, one time after the other; 0 if one thread does all, or
            if it is not known.
        undivided: Share of the work that one thread does.
        shared_rows: Number of rows of the result that the threads write piece by piece, side by side.
    """

    parts: float = math.inf
    regions: int = 0
    undivided: float = 0.0
    shared_rows: int = 0

    def speedup(self, threads: int) -> float:
        """Returns how many times as quick the work is on `threads` threads as on one."""
        most = max(1.0, self.parts / math.ceil(self.parts / threads)) if math.isfinite(self.parts) else threads
        return 1 / (self.undivided + (1 - self.undivided) / most)


_ON_ONE_THREAD = Division(parts=1)
DIVIDED = Division()


def division_of(layer: SequenceLayer, inputs: Types, outputs: Sequence[TensorType]) -> Division:
    """Returns how a layer divides what is not a product; without a rule, among all threads.

    Args:
        layer: The layer.
        inputs: Types of its inputs; None for an absent one.
        outputs: Types of its outputs.
    """
    if layer.op_type in _SERIAL:
        return _ON_ONE_THREAD
    rule = _RULES.get(layer.op_type)
    if rule is not None and inputs and inputs[0] is not None and outputs:
        return rule(layer, inputs, outputs)
    cycles = _UNARY_CYCLES.get(layer.op_type)
    return DIVIDED if cycles is None or not outputs else _by_cycles(outputs[0], outputs[0], cycles)


def _in_parts(parts: float, regions: int = 1) -> Division:
    return Division(max(1, parts), regions) if parts > 1 else _ON_ONE_THREAD


def _by_cycles(read: TensorType, written: TensorType, cycles: float, parts: float = math.inf) -> Division:
    """Returns how the elements of a result are divided, if that is worth it.

    Args:
        read: Type of the input, of which each element of the result needs one.
        written: Type of the result.
        cycles: Arithmetic of an element, in cycles.
        parts: Number of parts into which they can be divided at most.
    """
    moved = _item_bytes(read) + _item_bytes(written)
    return _worth(written.elements * (moved * _CYCLES_OF_BYTE + cycles), parts)


def _item_bytes(kind: TensorType) -> float:
    return kind.nbytes / max(1, kind.elements)


def _worth(cycles: float, parts: float = math.inf) -> Division:
    return _in_parts(min(parts, cycles // _CYCLES_OF_PART)) if cycles >= _LEAST_CYCLES else _ON_ONE_THREAD


def _broadcast(_: SequenceLayer, inputs: Types, outputs: Sequence[TensorType]) -> Division:
    """An operand that is repeated along some axes only splits the output into spans, which stay whole."""
    data, output = inputs[0], outputs[0]
    assert data is not None
    spans = 1.0
    for kind in inputs:
        if kind is not None and kind.elements not in (1, output.elements):
            spans = max(spans, output.elements / max(1, _span(kind.shape, output.shape)))
    return _by_cycles(data, output, 1.0, spans if spans > 1 else math.inf)


def _span(shape: Sequence[int], whole: Sequence[int]) -> int:
    """Returns the number of elements of the last axes along which a tensor is repeated throughout, or not at all."""
    if not whole:
        return 1
    sizes = ([1] * len(whole) + list(shape))[-len(whole) :]
    pairs = [(size == 1, of_whole) for size, of_whole in zip(sizes, whole, strict=True) if of_whole != 1]
    span = 1
    for repeated, of_whole in reversed(pairs):
        if repeated != pairs[-1][0]:
            break
        span *= of_whole
    return span


def _transpose(layer: SequenceLayer, inputs: Types, outputs: Sequence[TensorType]) -> Division:
    """Single elements that move along one axis are transposed as a matrix, one region for each matrix.

    Each thread reads some rows of the matrix, and writes its piece of every row of the result.
    """
    data = inputs[0]
    assert data is not None
    order, shape = transposition_of(layer, data, outputs[0])
    if transpose_path(order, shape) != TransposePath.MOVE_ONE_AXIS:
        return _ON_ONE_THREAD
    first, last = moved_range(order)
    middle = order[first : last + 1]
    outwards = middle[1:] == sorted(middle[1:])
    run = unmoved_run(order, shape)
    if run * _item_bytes(data) <= _LARGEST_ELEMENT:
        rows = matrix_rows(order, shape)
        divided = _in_parts(rows, regions=math.prod(shape[:first]))
        return replace(divided, shared_rows=data.elements // rows) if divided.regions else divided
    return _by_cycles(data, data, _MOVED_CYCLES) if outwards and run > 1 else _ON_ONE_THREAD


def _copied_by_tensor(tensors: Sequence[TensorType]) -> Division:
    """Each tensor is copied in a region of its own, if it is large enough."""
    each = [_by_cycles(kind, kind, _MOVED_CYCLES) for kind in tensors]
    whole = sum(kind.elements for kind in tensors)
    divided = [
        (kind.elements, division.parts) for kind, division in zip(tensors, each, strict=True) if division.regions
    ]
    if not divided or not whole:
        return _ON_ONE_THREAD
    parts = sum(elements for elements, _ in divided) / sum(elements / parts for elements, parts in divided)
    return Division(parts, len(divided), 1 - sum(elements for elements, _ in divided) / whole)


def _concat(_: SequenceLayer, inputs: Types, _outputs: Sequence[TensorType]) -> Division:
    return _copied_by_tensor([kind for kind in inputs if kind is not None])


def _split(_: SequenceLayer, _inputs: Types, outputs: Sequence[TensorType]) -> Division:
    return _copied_by_tensor(outputs)


def _gather(layer: SequenceLayer, inputs: Types, outputs: Sequence[TensorType]) -> Division:
    data = inputs[0]
    assert data is not None
    axis = integer(layer.attributes, "axis", 0) % max(1, len(data.shape))
    runs = outputs[0].elements / max(1, math.prod(data.shape[axis + 1 :]))
    return _worth(outputs[0].nbytes, runs)


def _gather_slices(_: SequenceLayer, inputs: Types, outputs: Sequence[TensorType]) -> Division:
    indices = inputs[1] if len(inputs) > 1 else None
    return _worth(outputs[0].nbytes, _rows(indices) if indices is not None else 1)


def _gather_elements(_: SequenceLayer, _inputs: Types, outputs: Sequence[TensorType]) -> Division:
    return _in_parts(_rows(outputs[0]))


def _rows(kind: TensorType, axis: int = -1) -> int:
    """Returns the number of elements along the axes before one."""
    return math.prod(kind.shape[: axis % len(kind.shape)]) if kind.shape else 1


def _normalisation(layer: SequenceLayer, _inputs: Types, outputs: Sequence[TensorType]) -> Division:
    return _in_parts(_rows(outputs[0], integer(layer.attributes, "axis", -1)))


def _softmax(layer: SequenceLayer, _inputs: Types, outputs: Sequence[TensorType]) -> Division:
    output, along_one = outputs[0], layer.since >= ONE_AXIS_SINCE
    axis = layer.attributes.get("axis", {}).get("i", -1 if along_one else 1)
    length = output.shape[axis % len(output.shape)] if output.shape else 1
    rows = output.elements // max(1, length) if along_one else _rows(output, axis)
    return _in_parts(min(rows, output.elements // _OF_SOFTMAX + 1))


def _reduction(_: SequenceLayer, inputs: Types, outputs: Sequence[TensorType]) -> Division:
    data = inputs[0]
    assert data is not None
    return _worth(data.elements * _REDUCED_CYCLES, outputs[0].elements)


def _pool(_: SequenceLayer, inputs: Types, outputs: Sequence[TensorType]) -> Division:
    data, output = inputs[0], outputs[0]
    assert data is not None
    if not data.blocked:
        return _in_parts(math.prod(output.shape[:2]))
    return _in_parts(_blocks(output) * (output.shape[2] if len(output.shape) > 2 else 1))


def _resize(layer: SequenceLayer, inputs: Types, outputs: Sequence[TensorType]) -> Division:
    data, output = inputs[0], outputs[0]
    assert data is not None
    axes = 2 if integer(layer.attributes, "antialias", 0) else 1  # resized one after the other
    divided = ("linear", "cubic") if axes > 1 else ("linear",)
    if layer.attributes.get("mode", {}).get("s", "nearest") not in divided or len(output.shape) < 3:
        return _ON_ONE_THREAD
    if not data.blocked:
        return _in_parts(output.shape[1], regions=axes * output.shape[0])
    rows = _blocks(output) * output.shape[2]
    return _in_parts(rows // max(1, _OF_RESIZE // max(1, output.shape[-1] * _CHANNELS_OF_BLOCK)))


def _reorder_input(layer: SequenceLayer, _inputs: Types, outputs: Sequence[TensorType]) -> Division:
    output = outputs[0]
    if integer(layer.attributes, "channels_last", 0):
        channels = max((1, *output.shape[1:2]))
        return _in_parts(output.elements // channels // max(1, _OF_REORDER // channels))
    return _in_parts(_blocks(output))


def _reorder_output(layer: SequenceLayer, _inputs: Types, outputs: Sequence[TensorType]) -> Division:
    if integer(layer.attributes, "channels_last", 0) or outputs[0].elements <= _LEAST_REORDERED:
        return _ON_ONE_THREAD
    return _in_parts(_blocks(outputs[0]))


def _blocks(kind: TensorType) -> int:
    """Returns the number of blocks of channels of all images."""
    images, channels, *_ = (*kind.shape, 1, 1)
    return images * math.ceil(channels / _CHANNELS_OF_BLOCK)


def _in_chunks(elements: int) -> "_Rule":
    return lambda _, _inputs, outputs: _in_parts(math.ceil(outputs[0].elements / elements))


_Rule = Callable[[SequenceLayer, Types, Sequence[TensorType]], Division]
_NORMALISATIONS = (
    "LayerNormalization", "SkipLayerNormalization", "SimplifiedLayerNormalization", "RMSNormalization",
    "SkipSimplifiedLayerNormalization", "EmbedLayerNormalization",
)  # fmt: skip
_REDUCTIONS = (
    "ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceSumSquare",
    "ReduceLogSumExp", "ArgMax", "ArgMin",
)  # fmt: skip
_GELUS = ("Gelu", "QuickGelu", "FastGelu", "Erf")
_POOLS = ("MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool")
_RULES: Mapping[str, _Rule] = {
    "Transpose": _transpose, "Concat": _concat, "Split": _split, "Gather": _gather, "GatherElements": _gather_elements,
    "GatherND": _gather_slices,
    "Softmax": _softmax, "LogSoftmax": _softmax, "Resize": _resize, "Upsample": _resize,
    "ReorderInput": _reorder_input, "ReorderOutput": _reorder_output,
    "Clip": _in_chunks(_OF_CLIP), **dict.fromkeys(_GELUS, _in_chunks(_OF_GELU)),
    **dict.fromkeys(_NORMALISATIONS, _normalisation), **dict.fromkeys(BROADCAST, _broadcast),
    **dict.fromkeys(_REDUCTIONS, _reduction), **dict.fromkeys(_POOLS, _pool),
}  # fmt: skip
# Arithmetic of an element, in cycles as ONNX Runtime counts them.
_UNARY_CYCLES = {
    "HardSigmoid": 0.5, "Relu": 1.0, "Tanh": 1.0, "Abs": 1.0, "Neg": 1.0, "Floor": 1.0, "Ceil": 1.0, "Reciprocal": 1.0,
    "Sigmoid": 2.0, "Exp": 2.0, "Sqrt": 2.0, "Softplus": 15.0, "Log": 15.0, "LeakyRelu": 25.0, "Elu": 30.0,
}  # fmt: skip
_SERIAL = frozenset({
    "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "AttnLSTM", "BatchNormalization", "Cast", "Cos", "Cosh",
    "CumSum", "DFT", "DepthToSpace", "DequantizeLinear", "Dropout", "Expand", "Hardmax",
    "InstanceNormalization", "IsInf", "IsNaN", "LpNormalization", "LpPool", "MaxRoiPool", "Mean",
    "MeanVarianceNormalization", "Min", "Mod", "NhwcMaxPool", "NonMaxSuppression", "NonZero", "Not", "Pad",
    "QLinearConcat", "QLinearWhere", "RandomNormalLike", "RandomUniformLike", "ReverseSequence",
    "Round", "STFT", "SVMClassifier", "ScatterElements", "ScatterND", "Shape", "Sign", "Sin", "Sinh", "Size", "Slice",
    "SpaceToDepth", "Sum", "Tan", "Tile", "Unique", "Where",
})  # fmt: skip
