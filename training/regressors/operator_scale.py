"""A regressor that learns how a layer differs from other layers of its operator."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Self

import numpy as np
import onnx
from onnx import helper

from costmodel.features.schema import FEATURE_GROUPS, SCHEMA
from costmodel.features.tabular import Encoded
from costmodel.training.regressors.learner import Learner, WithBase
from costmodel.training.regressors.onnx_combination import assembled_onnx
from costmodel.training.regressors.targets import layer_targets

__all__ = ["OperatorScaleRegressor"]

_OPERATORS = np.array([SCHEMA.names.index(name) for name in FEATURE_GROUPS["operator"]])
# Number of layers of an operator for which its scale is drawn halfway to that of all operators.
_HALFWAY = 3.0


class OperatorScaleRegressor(WithBase):
    """A regressor that scales analytical bounds by operator before its base learns from them.

    The scale of an operator is the median of cost / bound over the measured layers of the operator; with few layers, it
    is drawn to the median over all layers. Layers of a rare operator may all take six times their bound, which a
    network does not learn: what a dozen of 50,000 layers have in common hardly moves its weights.

    Args:
        base: Regressor that is trained on the scaled bounds.
    """

    def __init__(self, base: Learner) -> None:
        self.base = base

    @property
    def settings(self) -> Mapping[str, object]:
        """Settings of the base, and that its bounds are scaled."""
        return {**self.base.settings, "scaled_by_operator": True}

    def fit(self, encoded: Encoded, latencies_us: np.ndarray) -> Self:
        """Finds the scales of the operators, and trains the base on measured sequences."""
        rows, costs_us = layer_targets(encoded, latencies_us)
        ratios = np.log(costs_us / encoded.bounds_us[rows])
        operators = encoded.features[np.ix_(rows, _OPERATORS)]
        typical = float(np.median(ratios))
        logs = np.full(len(_OPERATORS), typical)
        for column in np.flatnonzero(operators.any(axis=0)):
            own = ratios[operators[:, column] > 0]
            logs[column] += (np.median(own) - typical) * len(own) / (len(own) + _HALFWAY)
        self.logs_ = logs.astype(np.float32)
        self.base.fit(self._scaled(encoded), latencies_us)
        return self

    def predict_us(self, encoded: Encoded) -> np.ndarray:
        """Predicts the costs of layers in microseconds, shape [num_layers]."""
        return self.base.predict_us(self._scaled(encoded))

    def to_text(self) -> str:
        """Returns an empty string, because the text format of the base does not have the scales."""
        return ""

    def to_onnx(self) -> bytes:
        """Returns the scales and the base as one ONNX model.

        Input: "features", float32 [num_layers, num_features]. Output: log(cost / bound), float32 [num_layers, 1].
        """
        base = onnx.compose.add_prefix(onnx.load_from_string(self.base.to_onnx()), "base/", rename_inputs=False)
        coefficients = np.zeros((len(SCHEMA.names), 1), np.float32)
        coefficients[_OPERATORS, 0] = self.logs_
        nodes = [
            *base.graph.node,
            helper.make_node("MatMul", ["features", "log_scales"], ["chosen"]),
            helper.make_node("Clip", ["chosen", "least", "most"], ["log_scale"]),
            helper.make_node("Add", ["log_scale", base.graph.output[0].name], ["log_ratios"]),
        ]
        constants = {"log_scales": coefficients, "least": self.logs_.min(), "most": self.logs_.max()}
        return assembled_onnx(nodes, [base], {name: np.asarray(value) for name, value in constants.items()})

    def _scaled(self, encoded: Encoded) -> Encoded:
        """Returns layers whose bounds are scaled; their features stay as they are.

        A layer has one operator, so that only features which no encoder makes could leave the range of the scales.
        """
        logs = np.clip(encoded.features[:, _OPERATORS] @ self.logs_, self.logs_.min(), self.logs_.max())
        return replace(encoded, bounds_us=encoded.bounds_us * np.exp(logs.astype(np.float64)))
