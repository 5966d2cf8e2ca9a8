"""Models with a symbolic batch that benchmarks make, so that they need no files: 1 to 50 ms on one thread."""

from collections.abc import Callable, Mapping

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

__all__ = ["MODELS"]


def perceptron(width: int, layers: int) -> ModelProto:
    """Returns a chain of fully connected layers."""
    make = _Maker([width])
    for _ in range(layers):
        make.node("Gemm", make.weight(width, width), make.weight(width))
        make.node("Relu")
    return make.model()


def convolutions(channels: int, side: int, layers: int) -> ModelProto:
    """Returns a chain of 3 x 3 convolutions."""
    make = _Maker([channels, side, side])
    for _ in range(layers):
        make.node("Conv", make.weight(channels, channels, 3, 3), pads=[1, 1, 1, 1])
        make.node("Relu")
    return make.model()


def encoder(tokens: int, width: int, layers: int) -> ModelProto:
    """Returns layers of self-attention with one head, each followed by a perceptron, without normalisation."""
    make = _Maker([tokens, width])
    for _ in range(layers):
        before = make.last
        make.node("MatMul", make.weight(width, width))
        keys = make.node("Transpose", perm=[0, 2, 1])
        scores = make.node("MatMul", keys, data=before)
        make.node("MatMul", before, data=make.node("Softmax", data=scores, axis=-1))
        make.node("MatMul", make.weight(width, 4 * width))
        make.node("Relu")
        make.node("MatMul", make.weight(4 * width, width))
    return make.model()


MODELS: Mapping[str, Callable[[], ModelProto]] = {
    "perceptron-1024x8": lambda: perceptron(1024, 8),
    "perceptron-2048x4": lambda: perceptron(2048, 4),
    "perceptron-1024x24": lambda: perceptron(1024, 24),
    "convolutions-64x28x4": lambda: convolutions(64, 28, 4),
    "convolutions-32x56x8": lambda: convolutions(32, 56, 8),
    "convolutions-64x28x12": lambda: convolutions(64, 28, 12),
    "convolutions-64x56x8": lambda: convolutions(64, 56, 8),
    "convolutions-128x28x10": lambda: convolutions(128, 28, 10),
    "encoder-64x256x2": lambda: encoder(64, 256, 2),
    "encoder-128x256x2": lambda: encoder(128, 256, 2),
    "encoder-128x256x6": lambda: encoder(128, 256, 6),
    "encoder-128x384x4": lambda: encoder(128, 384, 4),
}


class _Maker:
    """Makes a chain of nodes whose input has a symbolic batch; weights keep the scale of what flows through them."""

    def __init__(self, shape: list[int]) -> None:
        self.last = "x"
        self._shape = ["N", *shape]
        self._nodes: list[object] = []
        self._weights: list[object] = []
        self._random = np.random.default_rng(0)

    def weight(self, *shape: int) -> str:
        """Adds a weight and returns its name."""
        fan_in = shape[0] if len(shape) == 2 else int(np.prod(shape[1:])) or 1
        values = self._random.normal(0, (2 / fan_in) ** 0.5, shape) if len(shape) > 1 else np.full(shape, 0.01)
        name = f"w{len(self._weights)}"
        self._weights.append(numpy_helper.from_array(values.astype(np.float32), name))
        return name

    def node(self, kind: str, *inputs: str, data: str = "", **attributes: object) -> str:
        """Adds a node that reads the end of the chain (or `data`) and `inputs`, and returns the name of its result."""
        name = f"v{len(self._nodes)}"
        self._nodes.append(helper.make_node(kind, [data or self.last, *inputs], [name], **attributes))
        self.last = name
        return name

    def model(self) -> ModelProto:
        """Returns the model."""
        ends = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, self._shape if name == "x" else None)
            for name in ("x", self.last)
        ]
        graph = helper.make_graph(self._nodes, "made", ends[:1], ends[1:], self._weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
