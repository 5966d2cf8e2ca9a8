"""Nodes around the layers of a network that bring its inputs and outputs into the form that they have inside a model.

`costmodel.runtimes.openvino.isolated` says which forms these are, and why.
"""

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import openvino.opset13 as ops
from openvino.opset1 import max_pool

from costmodel.ir.graph import TensorType

__all__ = [
    "BYTE_RANGES",
    "PERMUTED",
    "depthwise",
    "depthwise_of_bytes",
    "dequantised",
    "element",
    "flat",
    "from_channels_last",
    "from_internal",
    "internal_form",
    "is_channels_last",
    "parameter_of",
    "produced",
    "production_form",
    "put_out",
    "skip_transposition",
]

# The types that OpenVINO's CPU plugin uses inside a model in the place of others: numpy's, and OpenVINO's own name of
# the type that they replace.
_INTERNAL = {"int64": (np.int32, "i64"), "bool": (np.uint8, "boolean")}
_FACTOR = 0.9
_SCALE = 0.02
# The smallest and the largest number of the element types of quantised tensors.
BYTE_RANGES = {"uint8": (0, 255), "int8": (-128, 127)}
# Part of the names of the Transposes that stand for a layout.
PERMUTED = "_permuted"


def is_channels_last(kind: TensorType) -> bool:
    """Returns whether a tensor lies in memory with its channels last, so that its form differs from the plain one."""
    return kind.blocked and len(kind.shape) > 2


def production_form(kind: TensorType, values: np.ndarray) -> np.ndarray:
    """Returns the values of an input in the element type and shape in which `produced` reads it."""
    values = internal_form(kind, values)
    return values.astype(np.float32) if kind.dtype in BYTE_RANGES else values


def produced(fed: Any, kind: TensorType, name: str) -> Any:
    """Returns the node that leaves a tensor in its layout in memory which the next layer may overwrite.

    A depthwise convolution demands a channels-last layout. OpenVINO would fuse what follows with it; with the pooling
    of windows of one element that reads it, OpenVINO fuses nothing. Bytes are quantised in between. In the plain
    layout, a product does; what overwrites it is not fused with it.

    Args:
        fed: Input of the network, as `production_form` returns its values.
        kind: Type of the tensor.
        name: Name of the input.
    """
    if not is_channels_last(kind):
        return ops.multiply(from_internal(fed, kind, name), ops.constant(np.array(_FACTOR, kind.dtype)))
    convolution = depthwise(from_channels_last(fed, kind, name).output(0), kind)
    ones = [1] * (len(kind.shape) - 2)
    zeros = [0] * len(ones)
    if kind.dtype in BYTE_RANGES:
        return max_pool(quantised(convolution, kind.dtype), ones, zeros, zeros, ones, "floor", "explicit")
    return ops.avg_pool(convolution, ones, zeros, zeros, ones, True, "floor", "explicit")


def depthwise(source: Any, kind: TensorType, strides: Sequence[int] = ()) -> Any:
    """Returns a convolution with one weight for each channel, with the given strides, or else of one."""
    rank = len(kind.shape) - 2
    weight = ops.constant(np.full((kind.shape[1], *[1] * (rank + 2)), _FACTOR, np.float32))
    return ops.group_convolution(source, weight, list(strides or [1] * rank), [0] * rank, [0] * rank, [1] * rank)


def depthwise_of_bytes(source: Any, kind: TensorType, strides: Sequence[int]) -> Any:
    """Returns a convolution in integers of a quantised tensor, with one weight for each channel."""
    rank = len(kind.shape) - 2
    scale = ops.constant(np.float32(_SCALE))
    weight = ops.convert(ops.constant(np.full((kind.shape[1], *[1] * (rank + 2)), 3, np.int8)), "f32")
    data, weight = (ops.multiply(one, scale) for one in (ops.convert(source, "f32"), weight))
    made = ops.group_convolution(data, weight, list(strides), [0] * rank, [0] * rank, [1] * rank)
    return quantised(made, kind.dtype)  # OpenVINO computes in integers only in a network that quantises


def quantised(source: Any, dtype: str) -> Any:
    """Returns the node that turns numbers into bytes."""
    least, most = (ops.constant(np.float32(bound)) for bound in BYTE_RANGES[dtype])
    return ops.convert(ops.fake_quantize(source, least, most, least, most, 256), np.dtype(dtype))


def internal_form(kind: TensorType, values: np.ndarray) -> np.ndarray:
    """Returns the values of an input in the element type and shape in which it is fed; `values` if it has both."""
    if kind.dtype in _INTERNAL:
        values = values.astype(_INTERNAL[kind.dtype][0])
    if is_channels_last(kind):
        values = values.reshape([kind.shape[axis] for axis in (0, *range(2, len(kind.shape)), 1)])
    return values


def parameter_of(name: str, values: np.ndarray) -> Any:
    """Returns an input of a network, called `name`, for the given values."""
    fed = ops.parameter(values.shape, values.dtype)
    fed.output(0).set_names({name})
    fed.set_friendly_name(name)
    return fed


def from_internal(fed: Any, kind: TensorType, name: str) -> Any:
    """Returns the node that turns an input in internal form into what the layer declares."""
    inner = ops.convert(fed, _INTERNAL[kind.dtype][1]) if kind.dtype in _INTERNAL else fed
    return from_channels_last(inner, kind, name)


def from_channels_last(source: Any, kind: TensorType, name: str) -> Any:
    """Returns the node that a tensor of permuted shape passes through; `source` if its layout is the plain one."""
    rank = len(kind.shape)
    if not is_channels_last(kind):
        return source
    transposed = ops.transpose(source, ops.constant([0, rank - 1, *range(1, rank - 1)]))
    transposed.set_friendly_name(name + PERMUTED)
    return transposed


def dequantised(parameter: Any) -> Any:
    """Returns the last node of the dequantisation that reads an input of the network; the input if nothing else does.

    Only a dequantisation by single numbers counts, because it does not depend on the order of the axes.
    """
    last = parameter
    while parameter.get_element_type().to_string() in ("u8", "i8"):
        targets = list(last.output(0).get_target_inputs())
        following = targets[0].get_node() if len(targets) == 1 else None
        if following is None or following.get_type_name() not in ("Convert", "Subtract", "Multiply"):
            break
        if any(prod(port.get_source_output().get_shape()) != 1 for port in following.inputs()[1:]):
            break
        last = following
    return last


def put_out(result: Any, kind: TensorType, name: str) -> None:
    """Makes a result of the network leave it in the layout and element type that it has inside a model."""
    source = result.input(0).get_source_output()
    if kind.dtype in _INTERNAL:
        source = ops.convert(source, _INTERNAL[kind.dtype][0]).output(0)
    target, rank = result.input(0), len(source.get_shape())
    if is_channels_last(kind) and rank == len(kind.shape):
        target.replace_source_output(source)
        target = _before_quantisation(target)
        permuted = ops.transpose(target.get_source_output(), ops.constant([0, *range(2, rank), 1]))
        permuted.set_friendly_name(name + PERMUTED)
        source = permuted.output(0)
    target.replace_source_output(source)


def _before_quantisation(target: Any) -> Any:
    """Returns the input of the quantisation whose result `target` reads if it quantises a transposed tensor.

    OpenVINO merges two transpositions only if nothing is between them. If it does not, returns `target`.
    """
    above = target
    while (node := above.get_source_output().get_node()).get_type_name() in ("Convert", "FakeQuantize"):
        if len(node.output(0).get_target_inputs()) > 1:
            break
        above = node.input(0)
    return above if node.get_type_name() == "Transpose" else target


def skip_transposition(permuted: Any) -> None:
    """Lets those who flatten and transpose a tensor in a channels-last layout read its memory as it is.

    Args:
        permuted: The node that `from_channels_last` returned.
    """
    batch, channels, *sizes = permuted.output(0).get_shape()
    for target in permuted.output(0).get_target_inputs():
        flattened = target.get_node()
        if flattened.get_type_name() != "Reshape" or list(flattened.get_output_shape(0)) != [
            batch,
            channels,
            prod(sizes),
        ]:
            continue
        readers = [port.get_node() for port in flattened.output(0).get_target_inputs()]
        if (
            len(readers) == 1
            and readers[0].get_type_name() == "Transpose"
            and list(readers[0].get_output_shape(0)) == [batch, prod(sizes), channels]
        ):
            view = ops.reshape(permuted.input_value(0), ops.constant([batch, prod(sizes), channels]), False)
            for reader in readers[0].output(0).get_target_inputs():
                reader.replace_source_output(view.output(0))


def flat(source: Any) -> Any:
    """Returns an output of a node with one axis, as an output; OpenVINO keeps the plain layout for it."""
    return ops.reshape(source, ops.constant([-1]), False).output(0)


def element(source: Any, number: int = 0) -> Any:
    """Returns one element of an output of a node, as an output; the output itself if it has no other.

    Args:
        source: The output.
        number: Position of the element among all, from which it is counted on at the beginning if there are fewer.
    """
    shape = list(source.get_shape())
    if prod(shape) <= 1:
        return source
    begins = [int(i) for i in np.unravel_index(number % prod(shape), shape)]
    ends, steps = [i + 1 for i in begins], [1] * len(shape)
    return ops.slice(source, ops.constant(begins), ops.constant(ends), ops.constant(steps)).output(0)
