"""Baselines: what a regressor has to beat, on the same rows."""

from typing import Self

import numpy as np
from sklearn.neighbors import KNeighborsRegressor
from sklearn.preprocessing import StandardScaler

from costmodel.features.schema import SCHEMA

__all__ = ["FlopsRegressor", "NearestRegressor", "RooflineRegressor"]


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
