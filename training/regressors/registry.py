"""The registry of regressors by name: learners, which can become champions, and baselines, which cannot."""

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Protocol, Self

import numpy as np

from costmodel.features.tabular import Encoded
from costmodel.training.regressors.baselines import (
    FlopsRegressor,
    ForestPerOperatorRegressor,
    NearestRegressor,
    OperatorCountRegressor,
    RooflineRegressor,
)
from costmodel.training.regressors.lightgbm_regressor import LightGBMRegressor
from costmodel.training.regressors.log_linear import LogLinearRegressor

__all__ = ["BASELINES", "GNN_INSTALLED", "LEARNERS", "REGRESSORS", "Learner", "Regressor", "model_us"]


class Regressor(Protocol):
    """A predictor of the costs of layers, which is trained by `fit`; its constructor only stores the arguments."""

    def fit(self, encoded: Encoded, latencies_us: np.ndarray) -> Self:
        """Trains on measured sequences, and returns the regressor itself.

        Args:
            encoded: Sequences as features of their layers.
            latencies_us: Measured cost of each sequence in microseconds, shape [num_sequences].
        """

    def predict_us(self, encoded: Encoded) -> np.ndarray:
        """Predicts the costs of layers in microseconds, shape [num_layers].

        The cost of a sequence is the sum of the costs of its layers.
        """


class Learner(Regressor, Protocol):
    """A regressor that can become a champion, because it can be served as an ONNX model.

    Attributes:
        threads: Number of threads for training.
    """

    threads: int

    @property
    def settings(self) -> Mapping[str, object]:
        """Settings of the regressor by name, by which training runs can be compared."""

    def to_onnx(self) -> bytes:
        """Returns the regressor as an ONNX model.

        Inputs: "features" and, if the regressor uses the neighbours of a layer, "edges", both as in `Encoded`. Output:
        log(cost / analytical bound) of each layer.
        """

    def to_text(self) -> str:
        """Returns the regressor in its own text format; an empty string if it has none."""


def model_us(regressor: Regressor) -> float:
    """Returns the time, in microseconds, that a trained regressor predicts for each model besides its layers."""
    return float(getattr(regressor, "model_us_", 0.0))


# Makers of baselines by name, each from a seed. A baseline is never a champion.
BASELINES: Mapping[str, Callable[[int], Regressor]] = {
    "forest_per_operator": lambda seed: ForestPerOperatorRegressor(seed),
    "nearest": lambda seed: NearestRegressor(),
    "roofline": lambda seed: RooflineRegressor(),
    "flops": lambda seed: FlopsRegressor(),
    "operator_count": lambda seed: OperatorCountRegressor(),
}


def _graph_regressor(seed: int) -> Learner:
    from costmodel.training.regressors.gnn import GraphRegressor  # torch takes seconds to import

    return GraphRegressor(seed)


# Whether the packages of the graph neural network are installed.
GNN_INSTALLED = all(find_spec(package) is not None for package in ("torch", "torch_geometric", "onnxscript"))

# Makers of the regressors that can become a champion by name, each from a seed.
LEARNERS: Mapping[str, Callable[[int], Learner]] = {
    "lightgbm": lambda seed: LightGBMRegressor(seed),
    "log_linear": lambda seed: LogLinearRegressor(),
    **({"gnn": _graph_regressor} if GNN_INSTALLED else {}),
}

# Makers of all regressors by name, each from a seed.
REGRESSORS: Mapping[str, Callable[[int], Regressor]] = {**LEARNERS, **BASELINES}
