"""A regressor that is a multilayer perceptron.

Its predictions are smooth functions of the features, where those of trees are steps. It errs on other layers than trees
do, so that the mean of both (`ensemble.py`) predicts layers more accurately than either on most systems.
"""

import math
from collections.abc import Mapping
from typing import Self

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from costmodel.errors import MissingExtraError
from costmodel.features.schema import SCHEMA
from costmodel.features.tabular import Encoded
from costmodel.training.regressors.targets import layer_targets
from costmodel.training.regressors.torch_threads import torch_threads

try:
    import torch
    from torch import Tensor, nn
    from torch.nn import functional
except ModuleNotFoundError as error:
    raise MissingExtraError("the perceptron", "gnn") from error

__all__ = ["PerceptronRegressor"]

_BETA = 0.05  # parameter of the smooth L1 loss: errors below 5% count by their squares
_CLAMP = 6.0  # limit of a feature in standard deviations, because larger values were hardly trained on
_LEAST_SPREAD = 1e-6  # a feature with a smaller standard deviation is constant
_MARGIN = 1.0  # how far log(cost / bound) of a prediction may leave the range of the training data
_OPSET = 15


class PerceptronRegressor:
    """A multilayer perceptron that predicts log(cost / bound) of each layer from its features.

    Features are scaled to zero mean and unit standard deviation, after those outside of the range of the training data
    are set to its ends. The activation function is x * sigmoid(x).

    Args:
        seed: Seed of the initial weights, of the order of the data, and of dropout.
        hidden: Width of the hidden layers.
        depth: Number of hidden layers.
        dropout: Share of the activations that are left out of a training step.
        epochs: Number of times that each layer of the training data is used.
        batch: Number of layers in a training step.
        learning_rate: Largest learning rate during the training, which rises at first and then falls to 0.
        weight_decay: Strength of the weight decay.
        threads: Number of threads for training and prediction.
    """

    def __init__(
        self,
        seed: int = 0,
        *,
        hidden: int = 192,
        depth: int = 3,
        dropout: float = 0.05,
        epochs: int = 60,
        batch: int = 256,
        learning_rate: float = 4e-3,
        weight_decay: float = 1e-2,
        threads: int = 1,
    ) -> None:
        self.seed = seed
        self.hidden = hidden
        self.depth = depth
        self.dropout = dropout
        self.epochs = epochs
        self.batch = batch
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.threads = threads

    @property
    def settings(self) -> Mapping[str, object]:
        """Settings of the regressor by name, by which training runs can be compared."""
        return {name: value for name, value in vars(self).items() if not name.endswith("_")}

    def fit(self, encoded: Encoded, latencies_us: np.ndarray) -> Self:
        """Trains the network on costs of layers, which are derived from the measured sequences."""
        rows, costs_us = layer_targets(encoded, latencies_us)
        features = encoded.features[rows].astype(np.float64)
        ratios = np.log(costs_us / encoded.bounds_us[rows])
        centre, spread = features.mean(axis=0), features.std(axis=0)
        varies = spread > _LEAST_SPREAD
        self.centre_ = np.where(varies, centre, 0.0).astype(np.float32)
        self.gain_ = np.where(varies, 1 / np.where(varies, spread, 1.0), 0.0).astype(np.float32)
        self.least_ = np.maximum(features.min(axis=0), centre - _CLAMP * spread).astype(np.float32)
        self.most_ = np.minimum(features.max(axis=0), centre + _CLAMP * spread).astype(np.float32)
        self.typical_ = float(np.median(ratios))
        self.range_ = float(ratios.min()) - _MARGIN, float(ratios.max()) + _MARGIN
        with torch_threads(self.threads):
            self.network_ = self._train(self._scaled(encoded.features[rows]), ratios - self.typical_)
        return self

    def predict_us(self, encoded: Encoded) -> np.ndarray:
        """Predicts the costs of layers in microseconds, shape [num_layers]."""
        with torch_threads(self.threads), torch.no_grad():
            ratios = self.network_(torch.from_numpy(self._scaled(encoded.features))).squeeze(1).numpy()
        ratios = np.clip(ratios.astype(np.float64) + self.typical_, *self.range_)
        return np.asarray(encoded.bounds_us * np.exp(ratios))

    def to_text(self) -> str:
        """Returns an empty string, because the network has no text format besides the ONNX model."""
        return ""

    def to_onnx(self) -> bytes:
        """Returns the network as an ONNX model.

        Input: "features", float32 [num_layers, num_features]. Output: log(cost / bound), float32 [num_layers, 1].
        """
        low, high = self.range_
        values: dict[str, object] = {
            "least": self.least_, "most": self.most_, "centre": self.centre_, "gain": self.gain_,
            "typical": self.typical_, "low": low, "high": high,
        }  # fmt: skip
        nodes = [
            helper.make_node("Max", ["features", "least"], ["raised"]),
            helper.make_node("Min", ["raised", "most"], ["clipped"]),
            helper.make_node("Sub", ["clipped", "centre"], ["centred"]),
            helper.make_node("Mul", ["centred", "gain"], ["x0"]),
        ]
        linear = [module for module in self.network_ if isinstance(module, nn.Linear)]
        for index, module in enumerate(linear):
            values[f"weight{index}"] = module.weight.detach().numpy()
            values[f"bias{index}"] = module.bias.detach().numpy()
            x, y = f"x{index}", f"y{index}"
            nodes.append(helper.make_node("Gemm", [x, f"weight{index}", f"bias{index}"], [y], transB=1))
            if index + 1 < len(linear):
                nodes.append(helper.make_node("Sigmoid", [y], [f"gate{index}"]))
                nodes.append(helper.make_node("Mul", [y, f"gate{index}"], [f"x{index + 1}"]))
        nodes += [
            helper.make_node("Add", [f"y{len(linear) - 1}", "typical"], ["ratios"]),
            helper.make_node("Clip", ["ratios", "low", "high"], ["log_ratios"]),
        ]
        graph = helper.make_graph(
            nodes,
            "perceptron",
            [helper.make_tensor_value_info("features", TensorProto.FLOAT, [None, len(SCHEMA.names)])],
            [helper.make_tensor_value_info("log_ratios", TensorProto.FLOAT, [None, 1])],
            [numpy_helper.from_array(np.asarray(value, np.float32), name) for name, value in values.items()],
        )
        opsets = [helper.make_opsetid("", _OPSET)]
        return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString())

    def _scaled(self, features: np.ndarray) -> np.ndarray:
        """Returns features within the range of the training data, scaled; float32 [num_layers, num_features]."""
        return np.asarray((np.clip(features, self.least_, self.most_) - self.centre_) * self.gain_, np.float32)

    def _train(self, scaled: np.ndarray, ratios: np.ndarray) -> nn.Sequential:
        """Returns a network that is trained to map scaled features to `ratios`, shape [num_layers].

        All random numbers come from one generator, and none from torch's own, which all threads share.
        """
        random = torch.Generator().manual_seed(self.seed)
        network = _untrained([scaled.shape[1], *[self.hidden] * self.depth], self.dropout, random)
        inputs, targets = torch.from_numpy(scaled), torch.from_numpy(ratios.astype(np.float32))
        steps = self.epochs * -(-len(inputs) // self.batch)
        optimiser = torch.optim.AdamW(network.parameters(), lr=self.learning_rate, weight_decay=self.weight_decay)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, self.learning_rate, total_steps=steps)
        for _ in range(self.epochs):
            order = torch.randperm(len(inputs), generator=random)
            for chosen in order.split(self.batch):  # type: ignore[no-untyped-call]
                predicted = network(inputs[chosen]).squeeze(1)
                loss = functional.smooth_l1_loss(predicted, targets[chosen], beta=_BETA)
                optimiser.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                optimiser.step()
                schedule.step()
        return network.eval()


class _Dropout(nn.Module):
    """Dropout whose random numbers come from a given generator, which torch's own module does not offer."""

    def __init__(self, share: float, random: torch.Generator) -> None:
        super().__init__()
        self.share = share
        self.random = random

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or not self.share:
            return x
        return x * (torch.rand(x.shape, generator=self.random) >= self.share) / (1 - self.share)


def _untrained(widths: list[int], dropout: float, random: torch.Generator) -> nn.Sequential:
    """Returns a network with layers of the given widths, the input's first, and one output, with random weights."""
    modules: list[nn.Module] = []
    for columns, width in zip(widths, [*widths[1:], 1], strict=True):
        linear = nn.Linear(columns, width)
        for parameter in linear.parameters():
            nn.init.uniform_(parameter, -1 / math.sqrt(columns), 1 / math.sqrt(columns), generator=random)
        modules += [linear, nn.SiLU(), _Dropout(dropout, random)]
    return nn.Sequential(*modules[:-2])
