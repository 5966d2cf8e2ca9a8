"""How a layer walks through its tensors: along which axes, in runs of how many elements, and over which operands."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from costmodel.graph import TensorType
from costmodel.operators import attribute_of
from costmodel.sequence import LayerSequence, SequenceLayer

__all__ = ["Walk", "walk_of"]

_INTERPOLATIONS = {"nearest": 0.0, "linear": 1.0, "bilinear": 1.0, "cubic": 2.0, "bicubic": 2.0}
# The version from which on softmax works along one axis; before, along all from that one on.
_ONE_AXIS_SINCE = 13
_FLATTENING = ("Softmax", "LogSoftmax", "Hardmax")


@dataclass(frozen=True, slots=True)
class Walk:
    """The order in which a layer touches elements.

    Attributes:
        last_axis_kept: Whether neighbours in memory are treated alike: the last axis is not the one worked along, or
            stays the last.
        inner_run: Elements that stay together.
        axis_size: Elements along the axes that are worked along, 1 if there are none.
        other_operand: Elements of the smallest operand over those of the output: 1 where none is broadcast.
        other_operand_inner: Whether the smallest operand has the last axis of the output.
        interpolation: 0 for nearest, 1 for linear, 2 for cubic.
    """

    last_axis_kept: bool
    inner_run: int
    axis_size: int
    other_operand: float
    other_operand_inner: bool
    interpolation: float


def walk_of(sequence: LayerSequence, layer: SequenceLayer) -> Walk:
    """How a layer of a sequence walks."""
    inputs = [i for i in layer.inputs if i >= 0]
    data = sequence.values[inputs[0]].type if inputs else TensorType("float32", (1,))
    made = sequence.values[next(i for i in layer.outputs if i >= 0)].type
    # Each operand once, however often the layer names it.
    operand, inner = _other_operand([sequence.values[i].type for i in dict.fromkeys(inputs[1:])], made)
    mode = attribute_of(layer.op_type, layer.domain, layer.since, layer.attributes, "mode") or {}
    interpolation = _INTERPOLATIONS.get(mode.get("s", ""), 0.0)
    if layer.op_type == "Transpose":
        order = layer.attributes.get("perm", {}).get("ints", list(range(len(data.shape)))[::-1])
        kept, run = _kept_together(order, data.shape)
        return Walk(kept, run, 1, operand, inner, interpolation)
    axes = _axes(sequence, layer, data)
    rest = math.prod(data.shape[max(axes) + 1 :]) if axes else _common_run(data.shape, made.shape)
    return Walk(
        last_axis_kept=len(data.shape) - 1 not in axes,
        inner_run=rest,
        axis_size=math.prod(data.shape[axis] for axis in axes),
        other_operand=operand,
        other_operand_inner=inner,
        interpolation=interpolation,
    )


def _axes(sequence: LayerSequence, layer: SequenceLayer, data: TensorType) -> list[int]:
    """The axes that a layer names, or means by naming none."""
    rank = len(data.shape)
    if not rank:
        return []
    if layer.op_type.startswith("Reduce"):
        given = layer.attributes.get("axes", {}).get("ints")
        if given is None and len(layer.inputs) > 1 and layer.inputs[1] >= 0:
            given = sequence.values[layer.inputs[1]].data
        return sorted(axis % rank for axis in given or range(rank))
    named = attribute_of(layer.op_type, layer.domain, layer.since, layer.attributes, "axis")
    if named is None or "i" not in named:
        return []
    axis = named["i"] % rank
    if layer.op_type in _FLATTENING and layer.since < _ONE_AXIS_SINCE:
        return list(range(axis, rank))
    return [axis]


def _kept_together(order: Sequence[int], shape: Sequence[int]) -> tuple[bool, int]:
    """Whether the last axis stays the last, and the elements of all that stay at the end."""
    kept = len(shape)
    while kept and order[kept - 1] == kept - 1:
        kept -= 1
    return not shape or order[-1] == len(shape) - 1, math.prod(shape[kept:])


def _common_run(one: Sequence[int], other: Sequence[int]) -> int:
    """Elements in a run that two tensors of one rank have in common: what is copied at once."""
    if len(one) != len(other):
        return math.prod(other)
    run = 1
    for a, b in zip(reversed(one), reversed(other), strict=True):
        run *= min(a, b)
        if a != b:
            break
    return run


def _other_operand(operands: Sequence[TensorType], made: TensorType) -> tuple[float, bool]:
    sizes = [t for t in operands if not t.opaque]
    if not sizes or not made.elements:
        return 1.0, True
    smallest = min(sizes, key=lambda t: t.elements)
    inner = bool(smallest.shape and made.shape and smallest.shape[-1] == made.shape[-1])
    return smallest.elements / made.elements, inner
