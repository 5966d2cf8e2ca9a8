"""Every regressor under its name."""

from collections.abc import Callable, Mapping
from typing import Protocol, Self

import numpy as np

from costmodel.training.baselines import (
    FlopsRegressor,
    NearestRegressor,
    OperatorCountRegressor,
    RooflineRegressor,
)
from costmodel.training.boosted import LightGBMRegressor

__all__ = ["BASELINES", "REGRESSORS", "Regressor"]


class Regressor(Protocol):
    """Predicts costs; a constructor only stores, `fit` learns and returns self."""

    def fit(self, features: np.ndarray, bounds_us: np.ndarray, latencies_us: np.ndarray) -> Self:
        """Learn from measured rows.

        Args:
            features: float32, shape [num_rows, num_features], columns as in `SCHEMA`.
            bounds_us: Analytical bounds, shape [num_rows].
            latencies_us: Measured costs, shape [num_rows].
        """

    def predict_us(self, features: np.ndarray, bounds_us: np.ndarray) -> np.ndarray:
        """Costs in microseconds, shape [num_rows]."""


# What a regressor has to beat; a baseline is never a champion.
BASELINES: Mapping[str, Callable[[int], Regressor]] = {
    "nearest": lambda seed: NearestRegressor(),
    "roofline": lambda seed: RooflineRegressor(),
    "flops": lambda seed: FlopsRegressor(),
    "operator_count": lambda seed: OperatorCountRegressor(),
}

# Every regressor under its name, made from a seed.
REGRESSORS: Mapping[str, Callable[[int], Regressor]] = {"lightgbm": lambda seed: LightGBMRegressor(seed), **BASELINES}
