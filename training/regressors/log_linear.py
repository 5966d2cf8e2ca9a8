"""A linear regressor that learns the costs of layers from the latencies of a few whole models.

The latencies of 10 to 50 models, each a sum over layers, determine only a few parameters. One linear function for all
layers, with little freedom, is more accurate on the other models of most search spaces than a sum of times that is
fitted to counts of layers, or to their bounds by operator (`benchmarks/whole_model_latencies.py`; docs/results.md).
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Self

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from costmodel.errors import MissingExtraError
from costmodel.features.schema import SCHEMA
from costmodel.features.tabular import Encoded

try:
    from scipy.optimize import minimize
    from scipy.sparse import csr_array
except ModuleNotFoundError as error:
    raise MissingExtraError("training", "train") from error

__all__ = ["LogLinearRegressor"]

_LEAST_SPREAD = 1e-6  # a feature with a smaller standard deviation is constant
_MARGIN = 1.0  # how far log(cost / bound) of a prediction may leave the range of the training data
# Constant of a model before it is fitted, as a share of the typical latency, and how far its logarithm may then move.
_USUAL_CONSTANT, _CONSTANT_LIMIT = 0.1, 4.0


class LogLinearRegressor:
    """A regressor in which log(cost / bound) of a layer is a linear function of its features.

    The cost of a sequence is the sum over its layers. A trust-region method minimises the mean loss of log(measured
    cost) - log(sum over layers) plus `ridge` times the squares of the coefficients, for features scaled to unit
    standard deviation. The loss is quadratic for small errors and linear for errors far beyond `scale`, so that a few
    wrong latencies do not decide the fit. The constant term is not penalised.

    In training as in predictions, log(cost / bound) of a layer is limited to `limit` around that of the models as a
    whole. Where nothing but whole models is trained on, each model also has a constant: the time that it takes besides
    its layers. Otherwise, a layer that occurs once in each model would be taken for that constant.

    Args:
        ridge: Weight of the squares of the coefficients.
        scale: Error, in log latency, from which errors count linearly; None for least squares.
        limit: Maximum distance of log(cost / bound) of a layer from that of typical models.
        constant: Whether models have a constant where nothing but whole models is trained on.
        steps: Maximum number of steps.
        threads: Not used, because training takes seconds.
    """

    def __init__(
        self,
        ridge: float = 0.01,
        scale: float | None = 0.05,
        limit: float = 3.0,
        constant: bool = True,
        steps: int = 50,
        threads: int = 1,
    ) -> None:
        self.ridge = ridge
        self.scale = scale
        self.limit = limit
        self.constant = constant
        self.steps = steps
        self.threads = threads

    @property
    def settings(self) -> Mapping[str, object]:
        """Settings of the regressor by name, to compare training runs by."""
        return {
            "ridge": self.ridge,
            "scale": self.scale,
            "limit": self.limit,
            "constant": self.constant,
            "steps": self.steps,
        }

    def fit(self, encoded: Encoded, latencies_us: np.ndarray) -> Self:
        """Fits the coefficients to measured sequences, from single layers to whole models."""
        features = encoded.features.astype(np.float64)
        # Layers are weighted by their share of the bound, because the many tiny layers contribute little to a sum.
        weights = encoded.bounds_us / np.repeat(encoded.totals(encoded.bounds_us), encoded.lengths)
        centre = np.average(features, axis=0, weights=weights)
        spread = np.sqrt(np.average((features - centre) ** 2, axis=0, weights=weights))
        varies = spread > _LEAST_SPREAD
        has_constant = self.constant and bool((encoded.lengths > 1).all())
        first, counts = _distinct_layers(encoded)
        design = np.column_stack([np.ones(len(first)), (features[first] - centre)[:, varies] / spread[varies]])
        bounds_us = encoded.bounds_us[first]
        logs = np.log(latencies_us)
        typical = float(np.median(logs - np.log(encoded.totals(encoded.bounds_us))))
        if has_constant:
            # The constant is one more layer, which every model has once and whose only feature is its own.
            design = np.block([[design, np.zeros((len(design), 1))], [np.zeros((1, design.shape[1])), np.ones((1, 1))]])
            bounds_us = np.append(bounds_us, _USUAL_CONSTANT * np.exp(np.median(logs) - typical))
            counts = csr_array(np.column_stack([counts.toarray(), np.ones(counts.shape[0])]))
        limits, penalty = np.full(len(design), self.limit), np.full(design.shape[1], self.ridge)
        penalty[0] = 0.0
        if has_constant:
            limits[-1], penalty[-1] = _CONSTANT_LIMIT, 0.0
        fitted = _Fit(design, bounds_us * np.exp(typical), counts, logs, penalty, self.scale, limits)
        # Rounded, because the last digits of the solver depend on where in memory its matrices lie.
        solved = fitted.solve(self.steps).astype(np.float32).astype(np.float64)
        self.model_us_ = float(fitted.costs_us(solved)[-1]) if has_constant else 0.0
        coefficients = solved[1 : 1 + int(varies.sum())]
        self.coefficients_ = np.zeros(len(centre))
        self.coefficients_[varies] = coefficients / spread[varies]
        self.constant_ = float(typical + solved[0] - centre @ self.coefficients_)
        ratios = typical + (design @ solved)[: len(first)]
        self.range_ = (
            max(typical - self.limit, float(ratios.min()) - _MARGIN),
            min(typical + self.limit, float(ratios.max()) + _MARGIN),
        )
        return self

    def predict_us(self, encoded: Encoded) -> np.ndarray:
        """Predicts the costs of layers in microseconds, without the constant of a model; shape [num_layers]."""
        ratios = encoded.features.astype(np.float64) @ self.coefficients_ + self.constant_
        return np.asarray(encoded.bounds_us * np.exp(np.clip(ratios, *self.range_)))

    def to_text(self) -> str:
        """Returns the coefficients as JSON, without those that are 0, such as those of constant features."""
        named = zip(SCHEMA.names, self.coefficients_.tolist(), strict=True)
        return json.dumps(
            {
                "constant": self.constant_,
                "range": self.range_,
                "model_us": self.model_us_,
                "coefficients": {n: c for n, c in named if c},
            },
            indent=1,
        )

    def to_onnx(self) -> bytes:
        """Returns the linear function as an ONNX model.

        Input: "features", float32 [num_layers, num_features]. Output: log(cost / bound), float32 [num_layers, 1].
        """
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


def _distinct_layers(encoded: Encoded) -> tuple[np.ndarray, "csr_array"]:
    """Returns the rows of layers with different features, and how often each sequence has each of these layers.

    Returns:
        Rows of `encoded.features`, shape [num_distinct], and the counts, shape [num_sequences, num_distinct].
    """
    table = np.column_stack([encoded.features, encoded.bounds_us.astype(np.float32)])
    _, first, layer = np.unique(table, axis=0, return_index=True, return_inverse=True)
    sequence = np.repeat(np.arange(len(encoded)), encoded.lengths)
    shape = (len(encoded), len(first))
    return first, csr_array((np.ones(len(layer)), (sequence, layer.reshape(-1))), shape=shape)


@dataclass(frozen=True, eq=False)
class _Fit:
    """The minimisation problem of `LogLinearRegressor`.

    Attributes:
        design: Features of the distinct layers, scaled, after a column of ones; shape [num_layers, num_columns].
        usual_us: Cost of each layer in microseconds if all coefficients are 0, shape [num_layers].
        counts: Number of occurrences of each layer in each sequence, shape [num_sequences, num_layers].
        logs: Logarithm of the measured cost of each sequence, shape [num_sequences].
        penalty: Weight of the square of each coefficient, shape [num_columns].
        scale: Error from which errors count linearly; None for least squares.
        limits: Maximum of |log(cost / usual cost)| of each layer, shape [num_layers].
    """

    design: np.ndarray
    usual_us: np.ndarray
    counts: "csr_array"
    logs: np.ndarray
    penalty: np.ndarray
    scale: float | None
    limits: np.ndarray

    def solve(self, steps: int) -> np.ndarray:
        """Returns the coefficients that fit the measured costs best, the constant first; shape [num_columns]."""
        derivatives = lru_cache(maxsize=2)(lambda content: self._derivatives(np.frombuffer(content)))
        found = minimize(
            lambda theta: derivatives(theta.tobytes())[0],
            np.zeros(self.design.shape[1]),
            jac=lambda theta: derivatives(theta.tobytes())[1],
            hess=lambda theta: derivatives(theta.tobytes())[2],
            method="trust-exact",
            options={"maxiter": steps, "gtol": 1e-7},
        )
        return np.asarray(found.x)

    def costs_us(self, theta: np.ndarray) -> np.ndarray:
        """Returns the cost of each layer in microseconds with the coefficients `theta`, shape [num_layers]."""
        return np.asarray(self.usual_us * np.exp(np.clip(self.design @ theta, -self.limits, self.limits)))

    def _derivatives(self, theta: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """Returns the value that is minimised, its gradient, and the Gauss-Newton approximation of its Hessian."""
        of_layers = self.costs_us(theta)
        totals = self.counts @ of_layers
        errors = self.logs - np.log(totals)
        # A layer at the limit does not change with the coefficients.
        free = np.abs(self.design @ theta) < self.limits
        slopes = (self.counts @ ((of_layers * free)[:, None] * self.design)) / totals[:, None]
        if self.scale is None:
            losses, weights = errors**2 / 2, np.ones(len(errors))
        else:
            roots = np.sqrt(1 + (errors / self.scale) ** 2)
            losses, weights = self.scale**2 * (roots - 1), 1 / roots
        number = len(errors)
        return (
            float(losses.sum() / number + self.penalty @ theta**2 / 2),
            -slopes.T @ (weights * errors) / number + self.penalty * theta,
            # A small value on the diagonal keeps the system solvable if the sums do not distinguish some columns.
            (slopes.T * weights) @ slopes / number + np.diag(self.penalty + 1e-9),
        )
