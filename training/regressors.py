"""Every regressor under its name."""

from collections.abc import Callable, Mapping
from typing import Protocol, Self

import numpy as np

from costmodel.features.tabular import Encoded
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

    def fit(self, encoded: Encoded, latencies_us: np.ndarray) -> Self:
        """Learn from measured sequences.

        Args:
            encoded: Their layers as features.
            latencies_us: Measured costs, shape [num_sequences].
        """

    def predict_us(self, encoded: Encoded) -> np.ndarray:
        """Costs of layers in microseconds, shape [num_layers]; a sequence costs their sum."""


# What a regressor has to beat; a baseline is never a champion.
BASELINES: Mapping[str, Callable[[int], Regressor]] = {
    "nearest": lambda seed: NearestRegressor(),
    "roofline": lambda seed: RooflineRegressor(),
    "flops": lambda seed: FlopsRegressor(),
    "operator_count": lambda seed: OperatorCountRegressor(),
}

# Every regressor under its name, made from a seed.
REGRESSORS: Mapping[str, Callable[[int], Regressor]] = {"lightgbm": lambda seed: LightGBMRegressor(seed), **BASELINES}
