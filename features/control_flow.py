"""Work of control flow: the layers in the bodies of Scan, Loop and If, and how often they run.

The values inside a body have no recorded types unless they are its inputs and outputs. What is not known is taken to
have the shape to which the inputs of its node broadcast.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod

import numpy as np
from onnx import GraphProto, NodeProto, ValueInfoProto

from costmodel.ir.attributes import integer, subgraphs
from costmodel.ir.sequence import LayerSequence, SequenceLayer

__all__ = ["CONTROL_FLOW", "BodyWork", "body_work"]

CONTROL_FLOW = frozenset({"Scan", "Loop", "If"})
_PRODUCTS = {"MatMul", "FusedMatMul", "Gemm", "FusedGemm"}
_CONVOLUTIONS = {"Conv", "FusedConv"}
# Simple operations for each element that a layer of a body reads or writes, and for each row of a tensor that it
# broadcasts or reduces (Zen 4: 0.3 and 10 ns).
_ELEMENT_FLOPS = 6.0
_ROW_FLOPS = 200.0
# For each element of the matrix that a product reads again in each run of a body, mostly for a single row.
_REREAD_FLOPS = 2.0
# For each element of each window that a convolution copies before it multiplies.
_SPREAD_FLOPS = 8.0
# A layer of a body takes about as long to begin as two empty layers of a model.
_EMPTY_LAYERS = 2
# A larger limit of a Loop stands for none: exporters write the largest integer there.
_MOST_TRIPS = 1_000_000
# More elements than any tensor has.
_MOST_ELEMENTS = 1 << 45

_Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BodyWork:
    """The work of the bodies of a control flow layer in all their runs.

    Attributes:
        empty_layers: Number of empty layers that take as long as the runtime takes to begin those of the bodies.
        multiply_flops: Floating-point operations of matrix products.
        other_flops: All other arithmetic, in simple operations.
    """

    empty_layers: int
    multiply_flops: float
    other_flops: float


def body_work(sequence: LayerSequence, layer: SequenceLayer) -> BodyWork:
    """Returns the work in the bodies of a Scan, Loop or If.

    Of the two branches of an If, the one with more work counts. Bodies inside bodies count as one layer.
    """
    bodies = subgraphs(layer.attributes)
    shapes: dict[str, _Shape] = {
        f"c{slot}": sequence.values[index].type.shape
        for slot, index in enumerate(layer.inputs[len(layer.inputs) - layer.num_captured :])
    }
    trips = _trips(sequence, layer, bodies[0]) if bodies and layer.op_type != "If" else 1
    works = [_work_of(body, {**shapes, **_states(sequence, layer, body)}) for body in bodies]
    layers, multiply, other = max(works, key=lambda work: (work[1] + work[2], work[0]), default=(0, 0.0, 0.0))
    return BodyWork(trips * layers * _EMPTY_LAYERS, trips * multiply, trips * other)


def _states(sequence: LayerSequence, layer: SequenceLayer, body: GraphProto) -> dict[str, _Shape]:
    """Returns the shapes of what a body reads as its inputs, by name: the states, and of a Scan also one element each.

    Exporters need not declare them: tf2onnx and Paddle2ONNX leave them out.
    """
    own = layer.inputs[: len(layer.inputs) - layer.num_captured]
    given = [sequence.values[index].type.shape if index >= 0 else None for index in own]
    if layer.op_type == "Scan":
        scanned = min(len(given), max(0, integer(layer.attributes, "num_scan_inputs", 0)))
        axes = layer.attributes.get("scan_input_axes", {}).get("ints", [0] * scanned)
        for place, axis in zip(range(len(given) - scanned, len(given)), axes, strict=False):
            shape = given[place]
            if shape:
                kept = axis % len(shape)
                given[place] = (*shape[:kept], *shape[kept + 1 :])
    return {port.name: shape for port, shape in zip(body.input, given, strict=False) if shape is not None}


def _trips(sequence: LayerSequence, layer: SequenceLayer, body: GraphProto) -> int:
    """Returns how often a body runs: once for each element along the axis that is scanned, or the limit of a Loop.

    A Loop collects an element in each run, or else its constant limit says how often it runs. A limit that no model
    reaches is that of a loop which ends by its condition: how often is not known then, and taken to be once.
    """
    own = layer.inputs[: len(layer.inputs) - layer.num_captured]
    if layer.op_type == "Scan":
        axes = layer.attributes.get("scan_input_axes", {}).get("ints", [0])
        shape = sequence.values[own[-1]].type.shape if own and own[-1] >= 0 else ()
        return shape[axes[-1]] if axes and -len(shape) <= axes[-1] < len(shape) else 1
    collected = [index for index in layer.outputs[max(0, len(body.input) - 2) :] if index >= 0]
    found = next((shape[0] for index in collected if (shape := sequence.values[index].type.shape)), None)
    if found is not None:
        return max(1, found)
    limit = sequence.values[own[0]].data if own and own[0] >= 0 else None
    known = limit and isinstance(limit[0], int) and limit[0] <= _MOST_TRIPS
    return max(1, limit[0]) if limit and known else 1


def _work_of(body: GraphProto, captured: Mapping[str, _Shape]) -> tuple[int, float, float]:
    """Returns the number of layers of a body, the operations of its matrix products, and all others."""
    declared = {port.name: _shape_of(port) for port in (*body.input, *body.output)}
    shapes = {**captured, **{tensor.name: _not_negative(tensor.dims) for tensor in body.initializer}}
    shapes |= {name: shape for name, shape in declared.items() if shape is not None}
    multiply = other = 0.0
    for node in body.node:
        known = [shapes.get(name) for name in node.input]
        read = [shape for shape in known if shape is not None]
        result = _bounded(_result(node, known, read), read)
        for name in node.output:
            shapes.setdefault(name, result)
        if node.op_type in _PRODUCTS and read and read[0]:
            multiply += 2.0 * _elements(result) * read[0][-1]
            other += _REREAD_FLOPS * (_elements(known[1] or ()) if len(known) > 1 else 0)
            continue
        if node.op_type in _CONVOLUTIONS and (filters := _filters(known)):
            multiply += 2.0 * _elements(result) * _elements(filters[1:])
            if prod(filters[2:]) > 1:
                window = _elements((*(known[0] or ())[1:2], *filters[2:]))
                other += _SPREAD_FLOPS * _elements((*result[:1], *result[2:])) * window
            continue
        touched = [*read, *(shapes[name] for name in node.output if name)]
        largest = max(touched, key=prod, default=())
        other += _ELEMENT_FLOPS * _elements(largest)
        if any(shape != largest for shape in touched):
            other += _ROW_FLOPS * _elements(largest[:-1])
    return len(body.node), multiply, other


def _elements(shape: _Shape) -> int:
    """Returns the number of elements of a shape, `_MOST_ELEMENTS` at most: a client may send any sizes."""
    return min(prod(shape), _MOST_ELEMENTS)


def _bounded(shape: _Shape, read: list[_Shape]) -> _Shape:
    """Returns the shape of a result, or that of the largest operand if no tensor can have so many elements."""
    return shape if prod(shape) <= _MOST_ELEMENTS else max(read, key=prod, default=())


def _filters(known: list[_Shape | None]) -> _Shape:
    """Returns the shape of the filters of a convolution; an empty one if it or that of the data is not known."""
    return known[1] or () if len(known) > 1 and known[0] else ()


def _result(node: NodeProto, known: list[_Shape | None], read: list[_Shape]) -> _Shape:
    """Returns the shape that the result of a node is taken to have.

    A convolution is taken to keep the size of its image, as those of recurrent networks do. A Split is taken to divide
    its axis into equal parts, and a Gather to take one element along the first axis, such as one step.

    Args:
        node: Node of a body.
        known: Shape of each input, by position; None if it is not known.
        read: The shapes that are known.
    """
    first = known[0] if known else None
    if node.op_type in _PRODUCTS and len(read) > 1 and read[0] and read[1]:
        return (*read[0][:-1], read[1][-1])
    if node.op_type in _CONVOLUTIONS and first and (filters := _filters(known)):
        return (first[0], filters[0], *first[2:])
    if node.op_type == "Transpose" and first is not None:
        order = next((list(a.ints) for a in node.attribute if a.name == "perm"), [])
        return tuple(first[axis] for axis in order) if sorted(order) == [*range(len(first))] else first[::-1]
    if node.op_type == "Split" and first:
        axis = next((a.i for a in node.attribute if a.name == "axis"), 0) % len(first)
        return (*first[:axis], first[axis] // max(1, len(node.output)), *first[axis + 1 :])
    if node.op_type == "Gather" and first is not None:
        return first[1:]
    try:
        return np.broadcast_shapes(*read)
    except (ValueError, OverflowError):  # a client may send any shapes
        return max(read, key=prod)


def _shape_of(port: ValueInfoProto) -> _Shape | None:
    kind = port.type.tensor_type
    if not kind.HasField("shape") or not all(dim.HasField("dim_value") for dim in kind.shape.dim):
        return None
    return _not_negative(dim.dim_value for dim in kind.shape.dim)


def _not_negative(sizes: Iterable[int]) -> _Shape:
    return tuple(max(0, size) for size in sizes)
