"""What a regressor is, and what a learner is: protocols that classes follow without naming them."""

from collections.abc import Mapping
from typing import Protocol, Self

import numpy as np

from costmodel.features.tabular import Encoded

__all__ = ["Learner", "Regressor", "WithBase"]


class Regressor(Protocol):
    """A predictor of the costs of layers, which is trained by `fit`; its constructor only stores the arguments."""

    def fit(self, encoded: Encoded, latencies_us: np.ndarray) -> Self:
        """Trains on measured sequences, and returns the regressor itself.

        Args:
            encoded: Sequences as features of their layers.
            latencies_us: Measured cost of each sequence in microseconds, shape [num_sequences].
        """

    def predict_us(self, encoded: Encoded) -> np.ndarray:
        """Predicts the costs of layers in microseconds, shape [num_layers].

        The cost of a sequence is the sum of the costs of its layers.
        """


class Learner(Regressor, Protocol):
    """A regressor that can become a champion, because it can be served as an ONNX model.

    Attributes:
        threads: Number of threads for training.
    """

    threads: int

    @property
    def settings(self) -> Mapping[str, object]:
        """Settings of the regressor by name, by which training runs can be compared."""

    def to_onnx(self) -> bytes:
        """Returns the regressor as an ONNX model.

        Inputs: "features" and, if the regressor uses the neighbours of a layer, "edges", both as in `Encoded`. Output:
        log(cost / analytical bound) of each layer.
        """

    def to_text(self) -> str:
        """Returns the regressor in its own text format; an empty string if it has none."""


class WithBase:
    """What regressors that are made of another one, their base, have in common: its number of threads is theirs.

    Attributes:
        base: The other regressor.
    """

    base: Learner

    @property
    def threads(self) -> int:
        """Number of threads for training and prediction."""
        return self.base.threads

    @threads.setter
    def threads(self, threads: int) -> None:
        self.base.threads = threads
