"""Memory access pattern of a layer.

The pattern says which axes the layer works along, how many elements stay adjacent in memory, and which operands are
broadcast.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from costmodel.features.copies import ALONG_ONE_AXIS, ONE_AXIS_SINCE, transposition_of
from costmodel.features.reductions import reduced_axes
from costmodel.features.transposition import unmoved_run
from costmodel.ir.graph import TensorType
from costmodel.ir.operators import attribute_of
from costmodel.ir.sequence import LayerSequence, SequenceLayer

__all__ = ["AccessPattern", "access_pattern_of", "worked_axes"]

_INTERPOLATIONS = {"nearest": 0.0, "linear": 1.0, "bilinear": 1.0, "cubic": 2.0, "bicubic": 2.0}

# With one scale for all elements, these have no axis.
_QUANTISATIONS = frozenset({"QuantizeLinear", "DequantizeLinear"})
# These work along all axes from the one that they name.
_NORMALISATIONS = frozenset({"LayerNormalization", "RMSNormalization"})


@dataclass(frozen=True, slots=True)
class AccessPattern:
    """The order in which a layer accesses the elements of its tensors.

    Attributes:
        axes: Axes of the first input that the layer works along; none for a transposition.
        last_axis_kept: Whether elements adjacent in memory are processed alike: the layer does not work along the last
            axis, or, for a transposition, the last axis stays the last.
        inner_run: Number of elements that the layer leaves adjacent in memory. For a layer that works along axes, the
            elements of all later axes; for a transposition, those of all axes after the last one that it moves; for
            other layers, the longest run that is contiguous in both input and output.
        axis_size: Number of elements along the axes that the layer works along; 1 if there are none.
        other_operand: Number of elements of the smallest operand, the first one left out, divided by the number of
            elements of the output; 1 if no operand is broadcast.
        other_operand_inner: Whether the last axis of that smallest operand has the size of the output's last axis.
        interpolation: Interpolation mode: 0 for nearest or none, 1 for linear, 2 for cubic.
    """

    axes: tuple[int, ...]
    last_axis_kept: bool
    inner_run: int
    axis_size: int
    other_operand: float
    other_operand_inner: bool
    interpolation: float


def access_pattern_of(sequence: LayerSequence, layer: SequenceLayer) -> AccessPattern:
    """Returns the access pattern of one layer of a sequence."""
    inputs = [i for i in layer.inputs if i >= 0]
    data = sequence.values[inputs[0]].type if inputs else TensorType("float32", (1,))
    output = sequence.values[next(i for i in layer.outputs if i >= 0)].type
    # Each operand counts once, even if the layer lists it several times.
    operand, inner = _other_operand([sequence.values[i].type for i in dict.fromkeys(inputs[1:])], output)
    mode = attribute_of(layer.op_type, layer.domain, layer.since, layer.attributes, "mode") or {}
    interpolation = _INTERPOLATIONS.get(mode.get("s", ""), 0.0)
    if layer.op_type in ("Transpose", "Reorder"):
        order, shape = transposition_of(layer, data, output)
        kept = not order or order[-1] == len(order) - 1
        return AccessPattern((), kept, unmoved_run(order, shape), 1, operand, inner, interpolation)
    axes = worked_axes(sequence, layer, data)
    inner_run = math.prod(data.shape[max(axes) + 1 :]) if axes else _common_run(data.shape, output.shape)
    return AccessPattern(
        axes=tuple(axes),
        last_axis_kept=len(data.shape) - 1 not in axes,
        inner_run=inner_run,
        axis_size=math.prod(data.shape[axis] for axis in axes),
        other_operand=operand,
        other_operand_inner=inner,
        interpolation=interpolation,
    )


def worked_axes(sequence: LayerSequence, layer: SequenceLayer, data: TensorType) -> list[int]:
    """Returns the axes that a layer works along, as it says itself or by its operator's default; [] if elementwise."""
    rank = len(data.shape)
    if not rank:
        return []
    if layer.op_type.startswith("Reduce"):
        return reduced_axes(sequence, layer, data)
    if layer.op_type in _QUANTISATIONS and (
        len(layer.inputs) < 2 or sequence.values[layer.inputs[1]].type.elements == 1
    ):
        return []
    attribute = attribute_of(layer.op_type, layer.domain, layer.since, layer.attributes, "axis")
    if attribute is None or "i" not in attribute:
        return []
    axis = attribute["i"] % rank
    if layer.op_type in _NORMALISATIONS or (layer.op_type in ALONG_ONE_AXIS and layer.since < ONE_AXIS_SINCE):
        return list(range(axis, rank))
    return [axis]


def _common_run(first: Sequence[int], second: Sequence[int]) -> int:
    """Returns how many elements can be copied at once: the longest run contiguous in tensors of both shapes."""
    if len(first) != len(second):
        return math.prod(second)
    run = 1
    for a, b in zip(reversed(first), reversed(second), strict=True):
        run *= min(a, b)
        if a != b:
            break
    return run


def _other_operand(operands: Sequence[TensorType], output: TensorType) -> tuple[float, bool]:
    """Returns `AccessPattern.other_operand` and `other_operand_inner`, from the types of all operands but the first."""
    sizes = [t for t in operands if not t.opaque]
    if not sizes or not output.elements:
        return 1.0, True
    smallest = min(sizes, key=lambda t: t.elements)
    inner = bool(smallest.shape and output.shape and smallest.shape[-1] == output.shape[-1])
    return smallest.elements / output.elements, inner
