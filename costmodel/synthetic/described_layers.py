"""Layers described in Python, for programs that generate networks and have no ONNX files, such as architecture search.

Each description names a plain ONNX operator. How the runtime executes the operator (in a blocked layout, or fused with
an activation) is found by lowering, as for every model.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from costmodel.errors import ShapeError
from costmodel.ir.constants import OMITTED, data_type_of
from costmodel.ir.graph import ITEM_BYTES, Layer, LayerGraph, TensorType
from costmodel.ir.nchwc import BLOCKED_DOMAIN
from costmodel.onnx_io.external_data import omitted_bytes, set_location
from costmodel.onnx_io.strip_weights import FLOAT_BYTES

__all__ = ["LayerSpec", "Operand", "block_model", "constant", "is_block_layer", "layer", "weight"]

# The opset that current exporters write. The same operator can be a different layer in another opset.
_OPSET = 18
_IR_VERSION = 10

# Prefix of the names of the layers added around a block.
_SURROUNDING = "costmodel_around_"
# A block that contains one of these operators is part of a network for images.
_IMAGE_OPERATORS = {
    "Conv", "ConvTranspose", "MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "BatchNormalization",
    "ReduceMean",
}  # fmt: skip
# After one of these operators a tensor is no longer an image.
_ENDS_OF_IMAGES = {"Flatten", "Reshape", "Gemm", "MatMul", "Squeeze", "Transpose", "Softmax"}
_IMAGE_RANK = 4
_COLOURS = 3
_CHANNELS = 8  # channels per block of the smallest blocked layout
# Value of the weights that are small enough to be stored; the runtime would remove operations with 0 or 1.
_FILL = 0.5


@dataclass(frozen=True, slots=True)
class Operand:
    """An operand of a described layer: an input, a weight or a constant.

    Attributes:
        type: Element type and shape.
        fixed: Whether the operand is known before the model runs, like a weight.
        values: Values of a small constant that determines the work, such as the shape of a Reshape; None for inputs
            and weights.
    """

    type: TensorType
    fixed: bool = False
    values: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class LayerSpec:
    """Description of a layer: an operator and its operands.

    Attributes:
        op_type: ONNX operator, for example "Conv".
        inputs: Operands in the order of the operator's inputs; None for an absent optional one.
        attributes: Pairs of attribute name and value, sorted by name.
        domain: Operator domain; "" is ONNX's own.
        outputs: Number of outputs.
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
    """Returns the description of a layer.

    Example:
        >>> conv = layer("Conv", (1, 32, 56, 56), weight(64, 32, 3, 3), pads=[1, 1, 1, 1])
        >>> relu = layer("Relu", (1, 64, 56, 56))

    Args:
        op_type: ONNX operator, for example "Conv".
        inputs: Operands: a shape for a float32 input, an array for an input of its shape and type, `weight(...)`,
            `constant(...)`, or None for an absent optional operand.
        domain: Operator domain; "" is ONNX's own.
        outputs: Number of outputs.
        attributes: Attributes of the operator by name: numbers, strings, or lists of these.

    Raises:
        ShapeError: A dimension is less than 1, or an element type is unsupported.
    """
    attributes = {name: tuple(value) if isinstance(value, list) else value for name, value in attributes.items()}
    return LayerSpec(op_type, tuple(map(_operand, inputs)), tuple(sorted(attributes.items())), domain, outputs)


def weight(*shape: int, dtype: str = "float32") -> Operand:
    """Returns the description of a weight of the given shape, whose values do not matter."""
    return Operand(_type(dtype, shape), fixed=True)


def constant(*values: int) -> Operand:
    """Returns the description of a constant list of integers that determines the work: axes, a shape, split sizes."""
    return Operand(TensorType("int64", (len(values),)), fixed=True, values=values)


def _operand(described: "Operand | tuple[int, ...] | np.ndarray | None") -> Operand | None:
    if described is None or isinstance(described, Operand):
        return described
    if isinstance(described, np.ndarray):
        return Operand(_type(str(described.dtype), described.shape))
    return Operand(_type("float32", tuple(described)))


def _type(dtype: str, shape: Sequence[int]) -> TensorType:
    if dtype not in ITEM_BYTES:
        raise ShapeError(f"a tensor of {dtype} cannot be priced: give one of {', '.join(ITEM_BYTES)}")
    if any(size < 1 for size in shape):
        raise ShapeError(f"a tensor has the shape {tuple(shape)}: every dimension must be 1 or more")
    return TensorType(dtype, tuple(map(int, shape)))


def block_model(block: Sequence[LayerSpec], name: str) -> ModelProto:
    """Builds the model of a chain of layers: each layer reads the first output of the layer before as its first input.

    How a runtime executes a layer depends on its neighbours: the output of a convolution stays in a blocked layout if
    another convolution reads it, and an addition is fused into the convolution before it if both of its inputs are
    blocked. Where the chain reads or produces images, layers like those of a real network are therefore added around
    it; `is_block_layer` distinguishes them from the layers of the chain.

    Args:
        block: The layers of the chain, at least one.
        name: Name of the model.
    """
    builder = _GraphBuilder()
    among_images = any(spec.op_type in _IMAGE_OPERATORS for spec in block)
    result: tuple[str, ...] = ()
    for place, spec in enumerate(block):
        names = []
        for slot, operand in enumerate(spec.inputs):
            if operand is None:
                names.append("")
            elif operand.fixed:
                names.append(builder.add_weight(f"v{place}_{slot}", operand))
            elif place and not slot:
                names.append(result[0])
            else:
                # An activation would be fused into a convolution that feeds it, and no layer would be left to price.
                unfused = not place and spec.op_type not in _IMAGE_OPERATORS
                names.append(
                    builder.add_input(f"v{place}_{slot}", operand.type, among_images=among_images, unfused=unfused)
                )
        result = tuple(f"r{place}_{slot}" for slot in range(spec.outputs))
        attributes: dict[str, Any] = {
            key: list(value) if isinstance(value, tuple) else value for key, value in spec.attributes
        }
        builder.nodes.append(
            helper.make_node(spec.op_type, names, result, name=result[0], domain=spec.domain, **attributes)
        )
    if among_images and block[-1].op_type not in _ENDS_OF_IMAGES:
        result = (builder.add_surrounding("MaxPool", [result[0]], kernel_shape=[1, 1]), *result[1:])
    domains = dict.fromkeys(["", *(spec.domain for spec in block)])
    last = [helper.make_empty_tensor_value_info(of) for of in result]
    return helper.make_model(
        helper.make_graph(builder.nodes, name, builder.ports, last, builder.weights),
        ir_version=_IR_VERSION,
        opset_imports=[helper.make_opsetid(domain, _OPSET if domain == "" else 1) for domain in domains],
    )


class _GraphBuilder:
    """The graph of a block of layers while it is being built: its nodes, inputs and weights."""

    def __init__(self) -> None:
        self.nodes: list[NodeProto] = []
        self.ports: list[ValueInfoProto] = []
        self.weights: list[TensorProto] = []
        self._num_surrounding = 0

    def add_weight(self, name: str, operand: Operand) -> str:
        """Adds the initialiser `name` for a weight or constant and returns its name."""
        self.weights.append(_initializer(name, operand))
        return name

    def add_input(self, name: str, kind: TensorType, *, among_images: bool, unfused: bool) -> str:
        """Adds an input of the block and returns the name of the value that the block reads.

        In a network for images, an image whose number of channels suits the blocked layout is produced by a convolution
        that is added before the block, so that the image has that layout, as it would inside a network.

        Args:
            name: Name of the input of the model.
            kind: Type of the value that the block reads.
            among_images: Whether the block is part of a network for images.
            unfused: Whether to add a pooling after that convolution, so that no layer of the block is fused into it.
        """
        if (
            not (among_images and kind.dtype == "float32" and len(kind.shape) == _IMAGE_RANK)
            or kind.shape[1] % _CHANNELS
        ):
            self.ports.append(helper.make_tensor_value_info(name, data_type_of(kind.dtype), kind.shape))
            return name
        batch, channels, *size = kind.shape
        self.ports.append(helper.make_tensor_value_info(name, data_type_of(kind.dtype), (batch, _COLOURS, *size)))
        kernel = self.add_weight(f"{name}_w", Operand(TensorType("float32", (channels, _COLOURS, 1, 1)), fixed=True))
        made = self.add_surrounding("Conv", [name, kernel])
        return self.add_surrounding("MaxPool", [made], kernel_shape=[1, 1]) if unfused else made

    def add_surrounding(self, op_type: str, inputs: Sequence[str], **attributes: Any) -> str:
        """Adds a layer that surrounds the block and is no part of it; returns the name of the layer's output."""
        made = f"{_SURROUNDING}{self._num_surrounding}"
        self._num_surrounding += 1
        self.nodes.append(helper.make_node(op_type, list(inputs), [made], name=made, **attributes))
        return made


def _initializer(name: str, operand: Operand) -> TensorProto:
    """Returns an initialiser as `costmodel.onnx_io.strip_weights` would leave it: without values if it is large."""
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


def is_block_layer(graph: LayerGraph) -> list[bool]:
    """Returns, for each layer of a lowered `block_model`, whether it would also run if the block were in a network.

    Layers added around the block would not, nor would layout reorders at its border: inside a network its
    neighbours have blocked layouts too.
    """
    outer = [_is_surrounding(layer) for layer in graph.layers]
    made_outside = {
        name for layer, is_outer in zip(graph.layers, outer, strict=True) if is_outer for name in layer.outputs
    }
    block_inputs = made_outside.union(graph.inputs)
    inside = [layer for layer, is_outer in zip(graph.layers, outer, strict=True) if not is_outer]
    read_inside = {name for layer in inside for name in layer.inputs}
    return [
        not is_outer
        and not (
            layer.domain == BLOCKED_DOMAIN
            and (
                (layer.op_type == "ReorderInput" and block_inputs.issuperset(layer.inputs))
                or (layer.op_type == "ReorderOutput" and read_inside.isdisjoint(layer.outputs))
            )
        )
        for layer, is_outer in zip(graph.layers, outer, strict=True)
    ]


def _is_surrounding(layer: Layer) -> bool:
    return any(name.startswith(_SURROUNDING) for name in (layer.name, *layer.sources[:1]))
