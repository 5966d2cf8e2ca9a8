"""Layers described in a line of Python, for programs that draw networks and have no ONNX file of them.

A description is of the operator as ONNX has it. What the runtime makes of it (a layout in blocks, an activation fused
into the layer before) is asked of the runtime, as it is for every model.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from costmodel.blocked import BLOCKED_DOMAIN
from costmodel.constants import data_type_of
from costmodel.errors import ShapeError
from costmodel.external import omitted_bytes, set_location
from costmodel.graph import ITEM_BYTES, Layer, LayerGraph, TensorType
from costmodel.skim import FLOAT_BYTES, OMITTED

__all__ = ["SPEC_OPSET", "LayerSpec", "Operand", "block_model", "constant", "inner_layers", "layer", "weight"]

# What exporters of today write; layers of two opsets may be two layers.
SPEC_OPSET = 18
_IR_VERSION = 10

# Names of layers around a block begin with it.
_AROUND = "costmodel_around_"
# Where one of these is, a block is part of a network for images; after the last ones there is none left.
_IMAGE_OPERATORS = {
    "Conv", "ConvTranspose", "MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "BatchNormalization",
    "ReduceMean",
}  # fmt: skip
_ENDS_OF_IMAGES = {"Flatten", "Reshape", "Gemm", "MatMul", "Squeeze", "Transpose", "Softmax"}
_IMAGE_RANK = 4
_COLOURS = 3
_CHANNELS = 8  # in a block of the narrowest layout
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

    What a runtime makes of a layer depends on what is around it: a convolution's results stay in blocks where another
    reads them, an addition is fused into the convolution before it where both of its inputs are in blocks. So images
    come from, and go to, layers such as a network has there; `inner_layers` tells them from those of the block.

    Args:
        block: At least one layer.
        name: Of the model.
        opset: Of ONNX's own operators.
    """
    draft = _Draft()
    among_images = any(spec.op_type in _IMAGE_OPERATORS for spec in block)
    result: tuple[str, ...] = ()
    for place, spec in enumerate(block):
        names = []
        for slot, operand in enumerate(spec.inputs):
            if operand is None:
                names.append("")
            elif operand.fixed:
                names.append(draft.weight(f"v{place}_{slot}", operand))
            elif place and not slot:
                names.append(result[0])
            else:
                # A convolution would have an activation after it fused into it, and nothing would be left to price.
                apart = not place and spec.op_type not in _IMAGE_OPERATORS
                names.append(draft.arriving(f"v{place}_{slot}", operand.type, among_images=among_images, apart=apart))
        result = tuple(f"r{place}_{slot}" for slot in range(spec.outputs))
        attributes: dict[str, Any] = {
            key: list(value) if isinstance(value, tuple) else value for key, value in spec.attributes
        }
        draft.nodes.append(
            helper.make_node(spec.op_type, names, result, name=result[0], domain=spec.domain, **attributes)
        )
    if among_images and block[-1].op_type not in _ENDS_OF_IMAGES:
        result = (draft.around("MaxPool", [result[0]], kernel_shape=[1, 1]), *result[1:])
    domains = dict.fromkeys(["", *(spec.domain for spec in block)])
    last = [helper.make_empty_tensor_value_info(of) for of in result]
    return helper.make_model(
        helper.make_graph(draft.nodes, name, draft.ports, last, draft.weights),
        ir_version=_IR_VERSION,
        opset_imports=[helper.make_opsetid(domain, opset if domain == "" else 1) for domain in domains],
    )


class _Draft:
    """A graph that is being put together."""

    def __init__(self) -> None:
        self.nodes: list[NodeProto] = []
        self.ports: list[ValueInfoProto] = []
        self.weights: list[TensorProto] = []
        self._around = 0

    def weight(self, name: str, operand: Operand) -> str:
        self.weights.append(_initializer(name, operand))
        return name

    def arriving(self, name: str, kind: TensorType, *, among_images: bool, apart: bool) -> str:
        """A value from outside; an image with channels as inner layers have them comes out of layers."""
        if (
            not (among_images and kind.dtype == "float32" and len(kind.shape) == _IMAGE_RANK)
            or kind.shape[1] % _CHANNELS
        ):
            self.ports.append(helper.make_tensor_value_info(name, data_type_of(kind.dtype), kind.shape))
            return name
        batch, channels, *size = kind.shape
        self.ports.append(helper.make_tensor_value_info(name, data_type_of(kind.dtype), (batch, _COLOURS, *size)))
        kernel = self.weight(f"{name}_w", Operand(TensorType("float32", (channels, _COLOURS, 1, 1)), fixed=True))
        made = self.around("Conv", [name, kernel])
        return self.around("MaxPool", [made], kernel_shape=[1, 1]) if apart else made

    def around(self, op_type: str, inputs: Sequence[str], **attributes: Any) -> str:
        made = f"{_AROUND}{self._around}"
        self._around += 1
        self.nodes.append(helper.make_node(op_type, list(inputs), [made], name=made, **attributes))
        return made


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
    """For each layer of a block's graph whether it is of the block, and would be there among others like it.

    What only changes the layout at the border of the block would not: its neighbours keep theirs in blocks too.
    """
    outer = [_is_around(layer) for layer in graph.layers]
    made_outside = {
        name for layer, is_outer in zip(graph.layers, outer, strict=True) if is_outer for name in layer.outputs
    }
    given = made_outside.union(graph.inputs)
    inside = [layer for layer, is_outer in zip(graph.layers, outer, strict=True) if not is_outer]
    read_inside = {name for layer in inside for name in layer.inputs}
    return [
        not is_outer
        and not (
            layer.domain == BLOCKED_DOMAIN
            and (
                (layer.op_type == "ReorderInput" and given.issuperset(layer.inputs))
                or (layer.op_type == "ReorderOutput" and read_inside.isdisjoint(layer.outputs))
            )
        )
        for layer, is_outer in zip(graph.layers, outer, strict=True)
    ]


def _is_around(layer: Layer) -> bool:
    return any(name.startswith(_AROUND) for name in (layer.name, *layer.sources[:1]))
