"""A regressor that predicts the mean of the predictions of several regressors."""

from collections.abc import Mapping
from typing import Self

import numpy as np
import onnx
from onnx import TensorProto, helper

from costmodel.features.schema import SCHEMA
from costmodel.features.tabular import Encoded
from costmodel.training.regressors.learner import Learner

__all__ = ["EnsembleRegressor"]


class EnsembleRegressor:
    """Several regressors that are trained on the same data, and whose predictions of log(cost) are averaged.

    Args:
        members: The regressors by name; none of them may use the neighbours of a layer.
    """

    def __init__(self, members: Mapping[str, Learner]) -> None:
        self.members = members

    @property
    def threads(self) -> int:
        """Number of threads for training and prediction."""
        return max(member.threads for member in self.members.values())

    @threads.setter
    def threads(self, threads: int) -> None:
        for member in self.members.values():
            member.threads = threads

    @property
    def settings(self) -> Mapping[str, object]:
        """Settings of the members by name, by which training runs can be compared."""
        return {
            f"{name}.{setting}": value
            for name, member in self.members.items()
            for setting, value in member.settings.items()
        }

    def fit(self, encoded: Encoded, latencies_us: np.ndarray) -> Self:
        """Trains all members on measured sequences."""
        for member in self.members.values():
            member.fit(encoded, latencies_us)
        return self

    def predict_us(self, encoded: Encoded) -> np.ndarray:
        """Predicts the costs of layers in microseconds: the geometric mean over the members, shape [num_layers]."""
        logs = [np.log(member.predict_us(encoded)) for member in self.members.values()]
        return np.asarray(np.exp(np.mean(logs, axis=0)))

    def to_text(self) -> str:
        """Returns an empty string, because an ensemble has no text format besides the ONNX model."""
        return ""

    def to_onnx(self) -> bytes:
        """Returns the members as one ONNX model.

        Input: "features", float32 [num_layers, num_features]. Output: log(cost / bound), float32 [num_layers, 1].
        """
        models = [
            onnx.compose.add_prefix(onnx.load_from_string(member.to_onnx()), f"{name}/", rename_inputs=False)
            for name, member in self.members.items()
        ]
        graph = helper.make_graph(
            [
                *(node for model in models for node in model.graph.node),
                helper.make_node("Mean", [model.graph.output[0].name for model in models], ["log_ratios"]),
            ],
            "ensemble",
            [helper.make_tensor_value_info("features", TensorProto.FLOAT, [None, len(SCHEMA.names)])],
            [helper.make_tensor_value_info("log_ratios", TensorProto.FLOAT, [None, 1])],
            [tensor for model in models for tensor in model.graph.initializer],
        )
        opsets = {opset.domain: opset.version for model in models for opset in model.opset_import}
        imports = [helper.make_opsetid(domain, version) for domain, version in opsets.items()]
        return bytes(helper.make_model(graph, opset_imports=imports, ir_version=8).SerializeToString())
