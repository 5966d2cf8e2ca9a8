"""Baselines: what a regressor has to beat, on the same rows."""

from typing import Self

import numpy as np

from costmodel.errors import MissingExtraError
from costmodel.features.schema import SCHEMA
from costmodel.features.tabular import Encoded
from costmodel.training.targets import layer_targets

try:
    from sklearn.neighbors import KNeighborsRegressor
    from sklearn.preprocessing import StandardScaler
except ModuleNotFoundError as error:
    raise MissingExtraError("training", "train") from error

__all__ = ["FlopsRegressor", "NearestRegressor", "OperatorCountRegressor", "RooflineRegressor"]


class RooflineRegressor:
    """The analytical bound times one fitted factor."""

    def fit(self, encoded: Encoded, latencies_us: np.ndarray) -> Self:
        """Learn the factor: the geometric mean of cost over bound."""
        rows, costs_us = layer_targets(encoded, latencies_us)
        self.factor_ = float(np.exp(np.mean(np.log(costs_us / encoded.bounds_us[rows]))))
        return self

    def predict_us(self, encoded: Encoded) -> np.ndarray:
        """Costs of layers in microseconds, shape [num_layers]."""
        return encoded.bounds_us * self.factor_


class FlopsRegressor:
    """A constant for the call plus a rate for the operations: what is used where nothing is measured."""

    def fit(self, encoded: Encoded, latencies_us: np.ndarray) -> Self:
        """Learn constant and rate by least squares on relative errors."""
        rows, costs_us = layer_targets(encoded, latencies_us)
        flops = self._flops(encoded.features[rows])
        design = np.column_stack([np.ones_like(flops), flops]) / costs_us[:, None]
        self.coefficients_, *_ = np.linalg.lstsq(design, np.ones_like(flops), rcond=None)
        self.least_us_ = float(costs_us.min())
        return self

    def predict_us(self, encoded: Encoded) -> np.ndarray:
        """Costs of layers in microseconds, shape [num_layers]."""
        constant, rate = self.coefficients_
        return np.asarray(np.maximum(constant + rate * self._flops(encoded.features), self.least_us_))

    @staticmethod
    def _flops(features: np.ndarray) -> np.ndarray:
        columns = [SCHEMA.names.index("log_multiply_flops"), SCHEMA.names.index("log_other_flops")]
        return np.asarray(np.expm1(features[:, columns].astype(np.float64)).sum(axis=1))


class OperatorCountRegressor:
    """A typical cost for each operator, whatever its sizes, added up over the layers."""

    def fit(self, encoded: Encoded, latencies_us: np.ndarray) -> Self:
        """Learn the geometric mean cost of each operator; of all operators, for one that is not in the rows."""
        rows, costs_us = layer_targets(encoded, latencies_us)
        counts = self._operators(encoded.features[rows])
        totals = counts.sum(axis=0)
        means = (counts * np.log(costs_us)[:, None]).sum(axis=0) / np.where(totals > 0, totals, 1.0)
        self.costs_us_ = np.exp(np.where(totals > 0, means, np.log(costs_us).mean()))
        return self

    def predict_us(self, encoded: Encoded) -> np.ndarray:
        """Costs of layers in microseconds, shape [num_layers]."""
        return np.asarray(self._operators(encoded.features) @ self.costs_us_)

    @staticmethod
    def _operators(features: np.ndarray) -> np.ndarray:
        """One-hot operators of layers, shape [num_layers, num_operators]."""
        return features[:, [name.startswith("op_") for name in SCHEMA.names]].astype(np.float64)


class NearestRegressor:
    """The cost-to-bound ratio of the nearest measured sequence."""

    def fit(self, encoded: Encoded, latencies_us: np.ndarray) -> Self:
        """Remember every row, scaled to unit variance."""
        rows, costs_us = layer_targets(encoded, latencies_us)
        features = encoded.features[rows]
        self.scaler_ = StandardScaler().fit(features)
        self.neighbour_ = KNeighborsRegressor(n_neighbors=1)
        self.neighbour_.fit(self.scaler_.transform(features), np.log(costs_us / encoded.bounds_us[rows]))
        return self

    def predict_us(self, encoded: Encoded) -> np.ndarray:
        """Costs of layers in microseconds, shape [num_layers]."""
        ratios = self.neighbour_.predict(self.scaler_.transform(encoded.features))
        return np.asarray(encoded.bounds_us * np.exp(ratios))
