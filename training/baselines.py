"""Baselines: what a regressor has to beat, on the same rows."""

from typing import Self

import numpy as np

from costmodel.errors import MissingExtraError
from costmodel.features.schema import SCHEMA

try:
    from sklearn.neighbors import KNeighborsRegressor
    from sklearn.preprocessing import StandardScaler
except ModuleNotFoundError as error:
    raise MissingExtraError("training", "train") from error

__all__ = ["FlopsRegressor", "NearestRegressor", "OperatorCountRegressor", "RooflineRegressor"]


class RooflineRegressor:
    """The analytical bound times one fitted factor."""

    def fit(self, features: np.ndarray, bounds_us: np.ndarray, latencies_us: np.ndarray) -> Self:
        """Learn the factor: the geometric mean of cost over bound."""
        self.factor_ = float(np.exp(np.mean(np.log(latencies_us / bounds_us))))
        return self

    def predict_us(self, features: np.ndarray, bounds_us: np.ndarray) -> np.ndarray:
        """Costs in microseconds, shape [num_rows]."""
        return bounds_us * self.factor_


class FlopsRegressor:
    """A constant for the call plus a rate for the operations: what is used where nothing is measured."""

    def fit(self, features: np.ndarray, bounds_us: np.ndarray, latencies_us: np.ndarray) -> Self:
        """Learn constant and rate by least squares on relative errors."""
        flops = self._flops(features)
        design = np.column_stack([np.ones_like(flops), flops]) / latencies_us[:, None]
        self.coefficients_, *_ = np.linalg.lstsq(design, np.ones_like(flops), rcond=None)
        self.least_us_ = float(latencies_us.min())
        return self

    def predict_us(self, features: np.ndarray, bounds_us: np.ndarray) -> np.ndarray:
        """Costs in microseconds, shape [num_rows]."""
        constant, rate = self.coefficients_
        return np.asarray(np.maximum(constant + rate * self._flops(features), self.least_us_))

    @staticmethod
    def _flops(features: np.ndarray) -> np.ndarray:
        columns = [SCHEMA.names.index("log_multiply_flops"), SCHEMA.names.index("log_other_flops")]
        return np.asarray(np.expm1(features[:, columns].astype(np.float64)).sum(axis=1))


class OperatorCountRegressor:
    """A typical cost for each operator, whatever its sizes, added up over the layers."""

    def fit(self, features: np.ndarray, bounds_us: np.ndarray, latencies_us: np.ndarray) -> Self:
        """Learn the geometric mean cost of each operator; of all operators, for one that is not in the rows."""
        counts = self._counts(features)
        of_layer = np.log(latencies_us / counts.sum(axis=1))
        totals = counts.sum(axis=0)
        means = (counts * of_layer[:, None]).sum(axis=0) / np.where(totals > 0, totals, 1.0)
        self.costs_us_ = np.exp(np.where(totals > 0, means, of_layer.mean()))
        return self

    def predict_us(self, features: np.ndarray, bounds_us: np.ndarray) -> np.ndarray:
        """Costs in microseconds, shape [num_rows]."""
        return np.asarray(self._counts(features) @ self.costs_us_)

    @staticmethod
    def _counts(features: np.ndarray) -> np.ndarray:
        """Layers of each operator, shape [num_rows, num_operators]."""
        shares = features[:, [name.startswith("op_") for name in SCHEMA.names]].astype(np.float64)
        return np.asarray(shares * features[:, [SCHEMA.names.index("layers")]])


class NearestRegressor:
    """The cost-to-bound ratio of the nearest measured sequence."""

    def fit(self, features: np.ndarray, bounds_us: np.ndarray, latencies_us: np.ndarray) -> Self:
        """Remember every row, scaled to unit variance."""
        self.scaler_ = StandardScaler().fit(features)
        self.neighbour_ = KNeighborsRegressor(n_neighbors=1)
        self.neighbour_.fit(self.scaler_.transform(features), np.log(latencies_us / bounds_us))
        return self

    def predict_us(self, features: np.ndarray, bounds_us: np.ndarray) -> np.ndarray:
        """Costs in microseconds, shape [num_rows]."""
        ratios = self.neighbour_.predict(self.scaler_.transform(features))
        return np.asarray(bounds_us * np.exp(ratios))
