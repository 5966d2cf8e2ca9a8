"""A regressor that corrects, by the latencies of a few whole models, what another system's regressor predicts."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Self

import numpy as np

from costmodel.features.tabular import Encoded
from costmodel.training.regressors.learner import Learner
from costmodel.training.regressors.log_linear import LogLinearRegressor
from costmodel.training.regressors.onnx_combination import combined_onnx

__all__ = ["LinearCorrection"]


class LinearCorrection:
    """A regressor in which log(cost / cost on another system) of a layer is a linear function of its features.

    The other system has the same capabilities as far as features tell, so that one encoding serves both systems.

    Args:
        prior: Regressor that is trained on the other system; `fit` leaves it as it is.
        ridge: Weight of the squares of the coefficients; see `LogLinearRegressor`.
        threads: Not used, because training takes seconds.
    """

    def __init__(self, prior: Learner, ridge: float = 0.03, threads: int = 1) -> None:
        self.prior = prior
        self.ridge = ridge
        self.threads = threads

    @property
    def settings(self) -> Mapping[str, object]:
        """Settings of the regressor by name, by which training runs can be compared."""
        return {"ridge": self.ridge, **{f"prior.{name}": value for name, value in self.prior.settings.items()}}

    def fit(self, encoded: Encoded, latencies_us: np.ndarray) -> Self:
        """Fits the linear function to measured sequences, from single layers to whole models."""
        self.line_ = LogLinearRegressor(self.ridge).fit(self._priced(encoded), latencies_us)
        self.model_us_ = self.line_.model_us_
        return self

    def predict_us(self, encoded: Encoded) -> np.ndarray:
        """Predicts the costs of layers in microseconds, without the constant of a model; shape [num_layers]."""
        return self.line_.predict_us(self._priced(encoded))

    def to_text(self) -> str:
        """Returns the coefficients of the linear function as JSON."""
        return self.line_.to_text()

    def to_onnx(self) -> bytes:
        """Returns both regressors as one ONNX model.

        Input: "features", float32 [num_layers, num_features]. Output: log(cost / bound), float32 [num_layers, 1].
        """
        return combined_onnx({"prior": self.prior, "correction": self.line_}, "Sum")

    def _priced(self, encoded: Encoded) -> Encoded:
        """Returns layers with what the other system's regressor predicts in place of the analytical bounds."""
        return replace(encoded, bounds_us=self.prior.predict_us(encoded))
