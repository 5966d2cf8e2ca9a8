"""A regressor that learns what layers cost from the latencies of whole models alone, of which there are few.

10 to 50 sums fix only so many numbers. From 25 models of a space, one straight line for all layers prices the others
with 1.6% error in NAS-Bench-201 and 3.2% in the space of MobileNetV3; trees on costs shared out among the layers by
their bounds, with four rounds of expectation-maximisation, 6.0% and 4.7%; started from the line, no better than it.
"""

import json
from collections.abc import Mapping
from typing import Self

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from costmodel.features.schema import SCHEMA
from costmodel.features.tabular import Encoded

__all__ = ["LogLinearRegressor"]

_LEAST_SPREAD = 1e-6  # of a feature that varies at all
_MARGIN = 1.0  # how far, in log cost over bound, a prediction may leave the range of those seen
_FARTHEST = 8.0  # the same while learning, so that a bad step overflows nothing
_LEAST_STEP = 1e-3


class LogLinearRegressor:
    """log(cost / bound) of a layer is a linear function of its features; a sequence costs the sum.

    Minimises the mean of (log(measured) - log(sum of layers))^2 plus `ridge` times the squares of the coefficients, of
    features in standard deviations, by damped Gauss-Newton steps. The constant is free.

    Args:
        ridge: Weight of the coefficients' squares.
        steps: At most.
        threads: Not used: it learns in a second.
    """

    def __init__(self, ridge: float = 0.01, steps: int = 30, threads: int = 1) -> None:
        self.ridge = ridge
        self.steps = steps
        self.threads = threads

    @property
    def settings(self) -> Mapping[str, object]:
        """All that it was told, to compare runs by."""
        return {"ridge": self.ridge, "steps": self.steps}

    def fit(self, encoded: Encoded, latencies_us: np.ndarray) -> Self:
        """Learn from measured sequences of any lengths."""
        features = encoded.features.astype(np.float64)
        # A layer counts as much as it takes: what the many tiny ones have in common says little of a sum.
        weights = encoded.bounds_us / np.repeat(encoded.totals(encoded.bounds_us), encoded.lengths)
        centre = np.average(features, axis=0, weights=weights)
        spread = np.sqrt(np.average((features - centre) ** 2, axis=0, weights=weights))
        varies = spread > _LEAST_SPREAD
        design = np.column_stack([np.ones(len(features)), (features - centre)[:, varies] / spread[varies]])
        solved = self._solve(design, encoded, np.log(latencies_us))
        self.coefficients_ = np.zeros(len(centre))
        self.coefficients_[varies] = solved[1:] / spread[varies]
        self.constant_ = float(solved[0] - centre @ self.coefficients_)
        ratios = design @ solved
        self.range_ = (float(ratios.min()) - _MARGIN, float(ratios.max()) + _MARGIN)
        return self

    def _solve(self, design: np.ndarray, encoded: Encoded, logs: np.ndarray) -> np.ndarray:
        """The coefficients, that of the constant first; shape [num_columns]."""
        penalty = np.full(design.shape[1], self.ridge * len(logs))
        penalty[0] = 0.0

        def costs(theta: np.ndarray) -> np.ndarray:
            return np.asarray(encoded.bounds_us * np.exp(np.clip(design @ theta, -_FARTHEST, _FARTHEST)))

        def loss(theta: np.ndarray) -> float:
            return float(((logs - np.log(encoded.totals(costs(theta)))) ** 2).sum() + penalty @ theta**2)

        theta = np.zeros(design.shape[1])
        theta[0] = np.mean(logs - np.log(encoded.totals(encoded.bounds_us)))
        least = loss(theta)
        for _ in range(self.steps):
            of_layers = costs(theta)
            totals = encoded.totals(of_layers)
            slopes = np.add.reduceat(of_layers[:, None] * design, encoded.starts[:-1], axis=0) / totals[:, None]
            gradient = slopes.T @ (logs - np.log(totals)) - penalty * theta
            # Columns that no sum tells apart have no slope of their own: a little on the diagonal keeps it solvable.
            step = np.linalg.solve(slopes.T @ slopes + np.diag(penalty + 1e-9 * len(logs)), gradient)
            share = 1.0
            while share > _LEAST_STEP and loss(theta + share * step) >= least:
                share /= 2
            if share <= _LEAST_STEP:
                break
            theta = theta + share * step
            before, least = least, loss(theta)
            if before - least < 1e-9 * before:
                break
        return theta

    def predict_us(self, encoded: Encoded) -> np.ndarray:
        """Costs of layers in microseconds, shape [num_layers]."""
        ratios = encoded.features.astype(np.float64) @ self.coefficients_ + self.constant_
        return np.asarray(encoded.bounds_us * np.exp(np.clip(ratios, *self.range_)))

    def to_text(self) -> str:
        """The coefficients as JSON; those of features that did not vary are left out."""
        named = zip(SCHEMA.names, self.coefficients_.tolist(), strict=True)
        return json.dumps(
            {"constant": self.constant_, "range": self.range_, "coefficients": {n: c for n, c in named if c}}, indent=1
        )

    def to_onnx(self) -> bytes:
        """The line as an ONNX model: input "features", float32 [num_rows, num_features]; one output, log ratios."""
        low, high = self.range_
        values = {
            "coefficients": self.coefficients_[:, None], "constant": np.array([self.constant_]),
            "low": np.array(low), "high": np.array(high),
        }  # fmt: skip
        graph = helper.make_graph(
            [
                helper.make_node("Gemm", ["features", "coefficients", "constant"], ["line"]),
                helper.make_node("Clip", ["line", "low", "high"], ["log_ratios"]),
            ],
            "log_linear",
            [helper.make_tensor_value_info("features", TensorProto.FLOAT, [None, len(SCHEMA.names)])],
            [helper.make_tensor_value_info("log_ratios", TensorProto.FLOAT, [None, 1])],
            [numpy_helper.from_array(value.astype(np.float32), name) for name, value in values.items()],
        )
        opsets = [helper.make_opsetid("", 15)]
        return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString())
