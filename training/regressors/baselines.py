"""Baselines: simple regressors that a champion has to beat on the same data set."""

from typing import Self

import numpy as np

from costmodel.errors import MissingExtraError
from costmodel.features.schema import OPERATORS, SCHEMA
from costmodel.features.tabular import Encoded
from costmodel.training.regressors.targets import layer_targets

try:
    from sklearn.ensemble import RandomForestRegressor
    from sklearn.neighbors import KNeighborsRegressor
    from sklearn.preprocessing import StandardScaler
except ModuleNotFoundError as error:
    raise MissingExtraError("training", "train") from error

__all__ = [
    "FlopsRegressor",
    "ForestPerOperatorRegressor",
    "NearestRegressor",
    "OperatorCountRegressor",
    "RooflineRegressor",
]

_OPERATOR_COLUMNS = [column for column, name in enumerate(SCHEMA.names) if name.startswith("op_")]


class RooflineRegressor:
    """A baseline that predicts the analytical bound of a layer times one fitted factor."""

    def fit(self, encoded: Encoded, latencies_us: np.ndarray) -> Self:
        """Fits the factor as the geometric mean of cost / bound over all layers."""
        rows, costs_us = layer_targets(encoded, latencies_us)
        self.factor_ = float(np.exp(np.mean(np.log(costs_us / encoded.bounds_us[rows]))))
        return self

    def predict_us(self, encoded: Encoded) -> np.ndarray:
        """Predicts the costs of layers in microseconds, shape [num_layers]."""
        return encoded.bounds_us * self.factor_


class FlopsRegressor:
    """A baseline that predicts a constant per layer plus a time per arithmetic operation.

    This is the usual estimate where nothing is measured.
    """

    def fit(self, encoded: Encoded, latencies_us: np.ndarray) -> Self:
        """Fits the constant and the time per operation by least squares on relative errors."""
        rows, costs_us = layer_targets(encoded, latencies_us)
        flops = self._flops(encoded.features[rows])
        design = np.column_stack([np.ones_like(flops), flops]) / costs_us[:, None]
        self.coefficients_, *_ = np.linalg.lstsq(design, np.ones_like(flops), rcond=None)
        self.least_us_ = float(costs_us.min())
        return self

    def predict_us(self, encoded: Encoded) -> np.ndarray:
        """Predicts the costs of layers in microseconds, shape [num_layers]."""
        constant, rate = self.coefficients_
        return np.asarray(np.maximum(constant + rate * self._flops(encoded.features), self.least_us_))

    @staticmethod
    def _flops(features: np.ndarray) -> np.ndarray:
        columns = [SCHEMA.names.index("log_multiply_flops"), SCHEMA.names.index("log_other_flops")]
        return np.asarray(np.expm1(features[:, columns].astype(np.float64)).sum(axis=1))


class OperatorCountRegressor:
    """A baseline that predicts the mean cost of a layer's operator, independent of the layer's sizes."""

    def fit(self, encoded: Encoded, latencies_us: np.ndarray) -> Self:
        """Fits the geometric mean cost of each operator, or of all layers for an operator without measured layers."""
        rows, costs_us = layer_targets(encoded, latencies_us)
        counts = self._operators(encoded.features[rows])
        totals = counts.sum(axis=0)
        means = (counts * np.log(costs_us)[:, None]).sum(axis=0) / np.where(totals > 0, totals, 1.0)
        self.costs_us_ = np.exp(np.where(totals > 0, means, np.log(costs_us).mean()))
        return self

    def predict_us(self, encoded: Encoded) -> np.ndarray:
        """Predicts the costs of layers in microseconds, shape [num_layers]."""
        return np.asarray(self._operators(encoded.features) @ self.costs_us_)

    @staticmethod
    def _operators(features: np.ndarray) -> np.ndarray:
        """Returns the operator of each layer in one-hot form, shape [num_layers, num_operators]."""
        return features[:, _OPERATOR_COLUMNS].astype(np.float64)


class NearestRegressor:
    """A baseline that predicts a layer's bound times the ratio of cost to bound of the nearest measured layer."""

    def fit(self, encoded: Encoded, latencies_us: np.ndarray) -> Self:
        """Stores the features of all measured layers, scaled to unit variance, with their ratios of cost to bound."""
        rows, costs_us = layer_targets(encoded, latencies_us)
        features = encoded.features[rows]
        self.scaler_ = StandardScaler().fit(features)
        self.neighbour_ = KNeighborsRegressor(n_neighbors=1)
        self.neighbour_.fit(self.scaler_.transform(features), np.log(costs_us / encoded.bounds_us[rows]))
        return self

    def predict_us(self, encoded: Encoded) -> np.ndarray:
        """Predicts the costs of layers in microseconds, shape [num_layers]."""
        ratios = self.neighbour_.predict(self.scaler_.transform(encoded.features))
        return np.asarray(encoded.bounds_us * np.exp(ratios))


class ForestPerOperatorRegressor:
    """A baseline with one random forest per operator, as nn-Meter has one per kind of kernel.

    See Zhang et al., MobiSys 2021. Each forest is trained on the layers of its operator and on the features that vary
    among them; the target is the logarithm of the cost. Operators with few measured layers, and those without a feature
    column of their own, use a forest that is trained on all layers.

    Args:
        seed: Seed of the forests.
    """

    trees = 30  # more trees are slower, and no better on held-out lineages
    least_rows = 30

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    def fit(self, encoded: Encoded, latencies_us: np.ndarray) -> Self:
        """Trains a forest for each operator with enough measured layers, and one for all layers."""
        rows, costs_us = layer_targets(encoded, latencies_us)
        features, target = encoded.features[rows], np.log(costs_us)
        operators = self._operators(features)
        self.pooled_ = self._train_forest(features, target)
        self.forests_ = {
            operator: self._train_forest(features[operators == operator], target[operators == operator])
            for operator in range(len(OPERATORS))
            if (operators == operator).sum() >= self.least_rows
        }
        return self

    def predict_us(self, encoded: Encoded) -> np.ndarray:
        """Predicts the costs of layers in microseconds, shape [num_layers]."""
        operators = self._operators(encoded.features)
        logs = np.empty(len(operators))
        for operator in np.unique(operators):
            of_operator = operators == operator
            columns, forest = self.forests_.get(int(operator), self.pooled_)
            logs[of_operator] = forest.predict(encoded.features[of_operator][:, columns])
        return np.exp(logs)

    def _train_forest(self, features: np.ndarray, target: np.ndarray) -> tuple[np.ndarray, RandomForestRegressor]:
        """Trains a forest on the features that vary, and returns the positions of these features and the forest.

        Args:
            features: Features of layers, shape [num_layers, num_features].
            target: Logarithm of the cost of each layer, shape [num_layers].
        """
        columns = np.flatnonzero(np.ptp(features, axis=0) > 0)
        columns = columns if len(columns) else np.array([0])  # if all rows are equal, any feature will do
        forest = RandomForestRegressor(self.trees, max_features=1 / 3, random_state=self.seed)
        return columns, forest.fit(features[:, columns], target)

    @staticmethod
    def _operators(features: np.ndarray) -> np.ndarray:
        """Returns the index of each layer's operator; `len(OPERATORS)` for one without a feature column of its own."""
        return np.asarray(features[:, _OPERATOR_COLUMNS].argmax(axis=1))
