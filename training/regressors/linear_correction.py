"""A regressor that corrects, by the latencies of a few whole models, what another system's regressor predicts."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Self

import numpy as np
import onnx
from onnx import TensorProto, helper

from costmodel.features.schema import SCHEMA
from costmodel.features.tabular import Encoded
from costmodel.training.regressors.learner import Learner
from costmodel.training.regressors.log_linear import LogLinearRegressor

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
        models = [
            onnx.compose.add_prefix(onnx.load_from_string(member.to_onnx()), f"{name}/", rename_inputs=False)
            for name, member in (("prior", self.prior), ("correction", self.line_))
        ]
        graph = helper.make_graph(
            [
                *(node for model in models for node in model.graph.node),
                helper.make_node("Sum", [model.graph.output[0].name for model in models], ["log_ratios"]),
            ],
            "linear_correction",
            [helper.make_tensor_value_info("features", TensorProto.FLOAT, [None, len(SCHEMA.names)])],
            [helper.make_tensor_value_info("log_ratios", TensorProto.FLOAT, [None, 1])],
            [tensor for model in models for tensor in model.graph.initializer],
        )
        opsets = {opset.domain: opset.version for model in models for opset in model.opset_import}
        imports = [helper.make_opsetid(domain, version) for domain, version in opsets.items()]
        return bytes(helper.make_model(graph, opset_imports=imports, ir_version=8).SerializeToString())

    def _priced(self, encoded: Encoded) -> Encoded:
        """Returns layers with what the other system's regressor predicts in place of the analytical bounds."""
        return replace(encoded, bounds_us=self.prior.predict_us(encoded))
