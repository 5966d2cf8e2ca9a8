"""Layers described in a line of Python, for programs that draw networks and have no ONNX file of them.

A description is of the operator as ONNX has it. What the runtime makes of it (a layout in blocks, an activation fused
into the layer before) is asked of the runtime, as it is for every model.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

from costmodel.blocked import BLOCKED_DOMAIN
from costmodel.constants import data_type_of
from costmodel.errors import ShapeError
from costmodel.external import omitted_bytes, set_location
from costmodel.graph import ITEM_BYTES, LayerGraph, TensorType
from costmodel.skim import FLOAT_BYTES, OMITTED

__all__ = ["SPEC_OPSET", "LayerSpec", "Operand", "block_model", "constant", "inner_layers", "layer", "weight"]

# What exporters of today write; layers of two opsets may be two layers.
SPEC_OPSET = 18
_IR_VERSION = 10

# Of weights that are so small that they are written down: neither 0 nor 1, which the runtime would leave out.
_FILL = 0.5


@dataclass(frozen=True, slots=True)
class Operand:
    """What a layer reads.

    Attributes:
        type: Element type and shape.
        fixed: Whether it is known before the model runs, as weights are.
        values: Of a small constant that shapes the work, such as the shape of a Reshape; None for all others.
    """

    type: TensorType
    fixed: bool = False
    values: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class LayerSpec:
    """One operator with the sizes of what it reads.

    Attributes:
        op_type: As ONNX calls it.
        inputs: In the operator's order; None where an optional one is absent.
        attributes: Name and value, sorted by name.
        domain: Of the operator; "" is ONNX's own.
        outputs: How many results it has.
    """

    op_type: str
    inputs: tuple[Operand | None, ...]
    attributes: tuple[tuple[str, Any], ...] = ()
    domain: str = ""
    outputs: int = 1


def layer(
    op_type: str,
    *inputs: "Operand | tuple[int, ...] | np.ndarray | None",
    domain: str = "",
    outputs: int = 1,
    **attributes: Any,
) -> LayerSpec:
    """Describe a layer.

    Example:
        >>> conv = layer("Conv", (1, 32, 56, 56), weight(64, 32, 3, 3), pads=[1, 1, 1, 1])
        >>> relu = layer("Relu", (1, 64, 56, 56))

    Args:
        op_type: As ONNX calls it.
        inputs: A shape for a float32 tensor that arrives, an array for one of its shape and type, `weight(...)`,
            `constant(...)`, or None for an optional one that is absent.
        domain: Of the operator.
        outputs: How many results it has.
        attributes: By name: numbers, strings, lists of them.

    Raises:
        ShapeError: A dimension is less than 1.
    """
    attributes = {name: tuple(value) if isinstance(value, list) else value for name, value in attributes.items()}
    return LayerSpec(op_type, tuple(map(_operand, inputs)), tuple(sorted(attributes.items())), domain, outputs)


def weight(*shape: int, dtype: str = "float32") -> Operand:
    """A weight of a shape: its values do not matter."""
    return Operand(_type(dtype, shape), fixed=True)


def constant(*values: int) -> Operand:
    """A list of integers that shapes the work: axes, a shape, sizes of parts."""
    return Operand(TensorType("int64", (len(values),)), fixed=True, values=values)


def _operand(given: "Operand | tuple[int, ...] | np.ndarray | None") -> Operand | None:
    if given is None or isinstance(given, Operand):
        return given
    if isinstance(given, np.ndarray):
        return Operand(_type(str(given.dtype), given.shape))
    return Operand(_type("float32", tuple(given)))


def _type(dtype: str, shape: Sequence[int]) -> TensorType:
    if dtype not in ITEM_BYTES:
        raise ShapeError(f"a tensor of {dtype} cannot be priced: give one of {', '.join(ITEM_BYTES)}")
    if any(size < 1 for size in shape):
        raise ShapeError(f"a tensor has the shape {tuple(shape)}: every dimension must be 1 or more")
    return TensorType(dtype, tuple(map(int, shape)))


def block_model(block: Sequence[LayerSpec], name: str = "block", opset: int = SPEC_OPSET) -> ModelProto:
    """The model of layers that follow each other: each reads the result of the one before as its first input.

    Args:
        block: At least one layer.
        name: Of the model.
        opset: Of ONNX's own operators.
    """
    nodes, ports, weights = [], [], []
    result = ""
    for place, spec in enumerate(block):
        names = []
        for slot, operand in enumerate(spec.inputs):
            if operand is None:
                names.append("")
                continue
            if place and not slot and not operand.fixed:
                names.append(result)
                continue
            names.append(f"v{place}_{slot}")
            if operand.fixed:
                weights.append(_initializer(names[-1], operand))
            else:
                kind = data_type_of(operand.type.dtype)
                ports.append(helper.make_tensor_value_info(names[-1], kind, operand.type.shape))
        made = [f"r{place}_{slot}" for slot in range(spec.outputs)]
        attributes: dict[str, Any] = {
            key: list(value) if isinstance(value, tuple) else value for key, value in spec.attributes
        }
        nodes.append(helper.make_node(spec.op_type, names, made, name=made[0], domain=spec.domain, **attributes))
        result = made[0]
    last = [helper.make_empty_tensor_value_info(name) for name in nodes[-1].output]
    domains = dict.fromkeys(["", *(spec.domain for spec in block)])
    return helper.make_model(
        helper.make_graph(nodes, name, ports, last, weights),
        ir_version=_IR_VERSION,
        opset_imports=[helper.make_opsetid(domain, opset if domain == "" else 1) for domain in domains],
    )


def _initializer(name: str, operand: Operand) -> TensorProto:
    """A constant with its values where they matter, and else without any, as `costmodel.skim` leaves it."""
    kind = operand.type
    if operand.values is not None:
        return numpy_helper.from_array(np.array(operand.values, dtype=np.int64), name)
    if kind.nbytes <= FLOAT_BYTES and kind.dtype in ("float32", "float64", "float16"):
        return numpy_helper.from_array(np.full(kind.shape, _FILL, dtype=kind.dtype), name)
    tensor = TensorProto(name=name, dims=kind.shape, data_type=data_type_of(kind.dtype))
    tensor.data_location = TensorProto.EXTERNAL
    assert omitted_bytes(tensor)
    set_location(tensor, OMITTED)
    return tensor


def inner_layers(graph: LayerGraph) -> list[bool]:
    """For each layer of a block whether it would be there among others like it.

    What only changes the layout at the border of the block would not: its neighbours keep theirs in blocks too.
    """
    given, taken = set(graph.inputs), set(graph.outputs)
    return [
        not (
            layer.domain == BLOCKED_DOMAIN
            and (
                (layer.op_type == "ReorderInput" and given.issuperset(layer.inputs))
                or (layer.op_type == "ReorderOutput" and taken.issuperset(layer.outputs))
            )
        )
        for layer in graph.layers
    ]
