"""The corpus of random networks: small ones, whose layers follow each other as in a model that someone would deploy.

They are training data only, as the corpora of kernels and operators are, but are measured as a whole, too: they show
what the layers of a small model cost beside each other. Few architectures of other corpora are small (docs/adr/0008).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from costmodel.ir.graph import TensorType
from costmodel.synthetic.values import synthetic_tensor, weight_start
from costmodel.training.corpora.operator_instances.draw import Draw
from costmodel.training.corpora.recipe import RANDOM_FAMILY, Recipe

__all__ = ["RECIPES", "random_network"]

_OPSET, _IR_VERSION = 21, 10
# A network is drawn anew until its weights, in bytes, and its floating-point operations are in these ranges.
_WEIGHTS = (60e3, 24e6)
_FLOPS = (6e6, 1.5e9)
_NETWORKS = 140
_ACTIVATIONS = ("Relu", "Relu", "Relu", "HardSwish", "Sigmoid", "LeakyRelu")


@dataclass
class _Network:
    """A network under construction: its nodes and weights, and the number of operations so far."""

    draw: Draw
    nodes: list[NodeProto] = field(default_factory=list)
    weights: list[TensorProto] = field(default_factory=list)
    flops: float = 0.0

    def node(self, operator: str, inputs: Sequence[str], **attributes: object) -> str:
        """Adds a node with one output, and returns the name of that output."""
        output = f"h{len(self.nodes)}"
        node = helper.make_node(operator, list(inputs), [output], name=f"n{len(self.nodes)}")
        node.attribute.extend(helper.make_attribute(name, value) for name, value in sorted(attributes.items()))
        self.nodes.append(node)
        return output

    def weight(self, *shape: int) -> str:
        """Adds a weight with synthetic values, of a magnitude as in trained networks, and returns its name.

        No two weights are equal, because a runtime may keep only one of them in memory.
        """
        name = f"w{len(self.weights)}"
        values = synthetic_tensor(TensorType("float32", shape), start=weight_start(len(self.weights)))
        scale = np.float32(math.prod(shape[1:]) ** -0.5) if len(shape) > 1 else np.float32(0.1)
        self.weights.append(numpy_helper.from_array(np.asarray(values * scale, dtype=np.float32), name))
        return name

    def constant(self, values: Sequence[int]) -> str:
        """Adds integers, such as a shape, as a constant, and returns its name."""
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.array(values, dtype=np.int64), name))
        return name

    @property
    def weight_bytes(self) -> int:
        """Size of all weights in bytes."""
        return sum(len(tensor.raw_data) for tensor in self.weights)


@dataclass(frozen=True)
class _Image:
    """A feature map: the name of its value, its number of channels, and its height and width."""

    name: str
    channels: int
    side: int


def _activated(net: _Network, name: str, activation: str) -> str:
    return net.node(activation, [name]) if activation else name


def _convolution(
    net: _Network, x: _Image, channels: int, k: int, *, stride: int = 1, group: int = 1, activation: str = ""
) -> _Image:
    side = -(-x.side // stride)
    y = net.node(
        "Conv",
        [x.name, net.weight(channels, x.channels // group, k, k), net.weight(channels)],
        kernel_shape=[k, k], strides=[stride, stride], pads=[(k - 1) // 2] * 4, group=group,
    )  # fmt: skip
    net.flops += 2.0 * channels * x.channels // group * k * k * side * side
    return _Image(_activated(net, y, activation), channels, side)


def _plain(net: _Network, x: _Image, channels: int, stride: int, activation: str) -> _Image:
    return _convolution(net, x, channels, net.draw.pick(1, 3, 3, 3, 5), stride=stride, activation=activation)


def _residual(net: _Network, x: _Image, channels: int, stride: int, activation: str) -> _Image:
    """Adds two or three convolutions beside a shortcut."""
    if net.draw.pick(True, False):
        inner = _convolution(net, x, channels, 3, stride=stride, activation=activation)
    else:
        inner = _convolution(net, x, max(8, channels // 4), 1, activation=activation)
        inner = _convolution(net, inner, inner.channels, 3, stride=stride, activation=activation)
    y = _convolution(net, inner, channels, net.draw.pick(1, 3))
    same = x.channels == channels and stride == 1
    shortcut = x if same else _convolution(net, x, channels, 1, stride=stride)
    added = net.node("Add", [y.name, shortcut.name])
    return _Image(_activated(net, added, activation), channels, y.side)


def _inverted(net: _Network, x: _Image, channels: int, stride: int, activation: str) -> _Image:
    """Adds a depthwise convolution between two pointwise ones, some of them gated by their channels' means."""
    wide = x.channels * net.draw.pick(1, 2, 3, 4, 6)
    y = _convolution(net, x, wide, 1, activation=activation) if wide != x.channels else x
    k = net.draw.pick(3, 3, 5, 7)
    y = _convolution(net, y, wide, k, stride=stride, group=wide, activation=activation)
    if net.draw.pick(True, False, False):
        mean = _Image(net.node("GlobalAveragePool", [y.name]), wide, 1)
        gate = _convolution(net, mean, max(8, wide // 4), 1, activation="Relu")
        gate = _convolution(net, gate, wide, 1, activation=net.draw.pick("Sigmoid", "HardSigmoid"))
        y = _Image(net.node("Mul", [y.name, gate.name]), wide, y.side)
    y = _convolution(net, y, channels, 1)
    if x.channels != channels or stride != 1:
        return y
    return _Image(net.node("Add", [y.name, x.name]), channels, y.side)


def _branches(net: _Network, x: _Image, channels: int, stride: int, activation: str) -> _Image:
    """Adds two to four branches of convolutions or poolings, which are joined."""
    count = net.draw.pick(2, 3, 4)
    width = max(8, channels // count)
    names = []
    side = x.side
    for _ in range(count):
        if net.draw.pick(True, False, False):
            pooled = net.node(
                net.draw.pick("AveragePool", "MaxPool"),
                [x.name], kernel_shape=[3, 3], strides=[stride, stride], pads=[1, 1, 1, 1],
            )  # fmt: skip
            smaller = _Image(pooled, x.channels, (x.side - 1) // stride + 1)
            y = _convolution(net, smaller, width, 1, activation=activation)
        else:
            y = _plain(net, x, width, stride, activation)
        names.append(y.name)
        side = y.side
    return _Image(net.node("Concat", names, axis=1), width * count, side)


_BLOCKS: tuple[Callable[[_Network, _Image, int, int, str], _Image], ...] = (_plain, _residual, _inverted, _branches)


def _of_convolutions(net: _Network) -> tuple[tuple[int, ...], str]:
    """Builds a network of blocks of convolutions, which are of one kind or two."""
    d = net.draw
    side, activation = d.pick(16, 32, 32, 48, 64, 96, 128, 160), d.pick(*_ACTIVATIONS)
    width, x = 8 * d.pick(2, 2, 3, 4, 6, 8), _Image("x", d.pick(1, 3, 3), side)
    shape = (1, x.channels, side, side)
    x = _convolution(net, x, width, d.pick(3, 3, 5), stride=d.pick(1, 2), activation=activation)
    kinds = (d.pick(*_BLOCKS), d.pick(*_BLOCKS))
    for stage in range(d.pick(2, 3, 3, 4)):
        for block in range(d.pick(1, 2, 2, 3, 5)):
            stride = 2 if block == 0 and stage and x.side >= 8 else 1
            x = d.pick(*kinds)(net, x, width, stride, activation)
        width = 8 * round(width * d.pick(1.0, 1.5, 2.0, 2.0) / 8)
    flat = net.node("Flatten", [net.node("GlobalAveragePool", [x.name])])
    return shape, _dense(net, flat, 1, x.channels, d.pick(2, 10, 100, 1000))


def _dense(net: _Network, x: str, rows: int, inputs: int, outputs: int) -> str:
    net.flops += 2.0 * rows * inputs * outputs
    return net.node("Gemm", [x, net.weight(outputs, inputs), net.weight(outputs)], transB=1)


def _product(net: _Network, x: str, rows: int, inputs: int, outputs: int) -> str:
    net.flops += 2.0 * rows * inputs * outputs
    return net.node("Add", [net.node("MatMul", [x, net.weight(inputs, outputs)]), net.weight(outputs)])


def _of_tokens(net: _Network) -> tuple[tuple[int, ...], str]:
    """Builds a transformer encoder."""
    d = net.draw
    tokens, head, heads = d.pick(16, 32, 64, 128, 197), d.pick(16, 32, 64), d.pick(1, 2, 3, 4, 6, 8)
    width = head * heads
    inner, activation, shape = width * d.pick(1, 2, 4), d.pick("Gelu", "Relu"), (1, tokens, width)
    apart, joined = net.constant([1, tokens, heads, head]), net.constant([1, tokens, width])
    x = "x"
    for _ in range(d.pick(1, 2, 2, 3, 4, 6, 8)):
        normal = net.node("LayerNormalization", [x, net.weight(width), net.weight(width)], axis=-1)
        q, k, v = (net.node("Reshape", [_product(net, normal, tokens, width, width), apart]) for _ in range(3))
        q, v = (net.node("Transpose", [name], perm=[0, 2, 1, 3]) for name in (q, v))
        scores = net.node("MatMul", [q, net.node("Transpose", [k], perm=[0, 2, 3, 1])])
        mixed = net.node("MatMul", [net.node("Softmax", [scores], axis=-1), v])
        net.flops += 4.0 * heads * tokens * tokens * head
        mixed = net.node("Reshape", [net.node("Transpose", [mixed], perm=[0, 2, 1, 3]), joined])
        x = net.node("Add", [x, _product(net, mixed, tokens, width, width)])
        normal = net.node("LayerNormalization", [x, net.weight(width), net.weight(width)], axis=-1)
        hidden = net.node(activation, [_product(net, normal, tokens, width, inner)])
        x = net.node("Add", [x, _product(net, hidden, tokens, inner, width)])
    return shape, _product(net, x, tokens, width, d.pick(2, 10, 100))


def _of_rows(net: _Network) -> tuple[tuple[int, ...], str]:
    """Builds a perceptron of several layers on a batch of rows."""
    d = net.draw
    rows, inputs = d.pick(1, 1, 1, 8, 32, 128), d.rounded(8, 512)
    shape, x, activation = (rows, inputs), "x", d.pick("Relu", "Relu", "Tanh", "Sigmoid")
    for _ in range(d.pick(2, 3, 4, 6)):
        outputs = d.rounded(16, 1024)
        x, inputs = net.node(activation, [_dense(net, x, rows, inputs, outputs)]), outputs
    return shape, _dense(net, x, rows, inputs, d.pick(1, 10, 100))


# Kinds of networks, in turn.
_KINDS = (_of_convolutions, _of_convolutions, _of_convolutions, _of_tokens, _of_convolutions, _of_tokens, _of_rows)


def random_network(number: int) -> ModelProto:
    """Returns a random small network, the same one for the same number.

    Args:
        number: Seed of the network. Networks of successive numbers are of different kinds in turn.
    """
    kind = _KINDS[number % len(_KINDS)]
    for attempt in range(1000):
        net = _Network(Draw(f"random network/{number}/{attempt}"))
        shape, output = kind(net)
        if _WEIGHTS[0] <= net.weight_bytes <= _WEIGHTS[1] and _FLOPS[0] <= net.flops <= _FLOPS[1]:
            return _model(net, shape, output)
    raise AssertionError("a network of these sizes is drawn sooner")


def _model(net: _Network, shape: tuple[int, ...], output: str) -> ModelProto:
    graph = helper.make_graph(
        net.nodes,
        "random_network",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)],
        net.weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_IR_VERSION)
    return onnx.shape_inference.infer_shapes(model, strict_mode=True)


def _write(number: int, path: Path) -> None:
    path.write_bytes(random_network(number).SerializeToString(deterministic=True))


RECIPES = tuple(
    Recipe(f"random_network_{number:03}", RANDOM_FAMILY, "A random small network", partial(_write, number))
    for number in range(_NETWORKS)
)
