"""A regressor that predicts the mean of the predictions of several regressors."""

from collections.abc import Mapping
from typing import Self

import numpy as np

from costmodel.features.tabular import Encoded
from costmodel.training.regressors.learner import Learner
from costmodel.training.regressors.onnx_combination import combined_onnx

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
        return combined_onnx(self.members, "Mean")
