"""Every regressor under its name."""

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Protocol, Self

import numpy as np

from costmodel.features.tabular import Encoded
from costmodel.training.baselines import (
    FlopsRegressor,
    ForestPerOperatorRegressor,
    NearestRegressor,
    OperatorCountRegressor,
    RooflineRegressor,
)
from costmodel.training.boosted import LightGBMRegressor
from costmodel.training.sums import LogLinearRegressor

__all__ = ["BASELINES", "GNN_INSTALLED", "LEARNERS", "REGRESSORS", "Learner", "Regressor"]


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


class Learner(Regressor, Protocol):
    """A regressor that can become a champion: it is served as an ONNX model.

    Attributes:
        threads: Used for training.
    """

    threads: int

    @property
    def settings(self) -> Mapping[str, object]:
        """All that it was told, to compare runs by."""

    def to_onnx(self) -> bytes:
        """Input "features" and, if it sees the neighbours of a layer, "edges", as in `Encoded`; output log ratios."""

    def to_text(self) -> str:
        """Its own text format; empty if it has none."""


# What a regressor has to beat; a baseline is never a champion.
BASELINES: Mapping[str, Callable[[int], Regressor]] = {
    "forest_per_operator": lambda seed: ForestPerOperatorRegressor(seed),
    "nearest": lambda seed: NearestRegressor(),
    "roofline": lambda seed: RooflineRegressor(),
    "flops": lambda seed: FlopsRegressor(),
    "operator_count": lambda seed: OperatorCountRegressor(),
}


def _graph_regressor(seed: int) -> Learner:
    from costmodel.training.gnn import GraphRegressor  # torch takes seconds to import

    return GraphRegressor(seed)


# Whether the packages of the graph neural network are there.
GNN_INSTALLED = all(find_spec(package) is not None for package in ("torch", "torch_geometric", "onnxscript"))

# What can become a champion, made from a seed.
LEARNERS: Mapping[str, Callable[[int], Learner]] = {
    "lightgbm": lambda seed: LightGBMRegressor(seed),
    "log_linear": lambda seed: LogLinearRegressor(),
    **({"gnn": _graph_regressor} if GNN_INSTALLED else {}),
}

# Every regressor under its name, made from a seed.
REGRESSORS: Mapping[str, Callable[[int], Regressor]] = {**LEARNERS, **BASELINES}
