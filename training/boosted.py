"""Gradient-boosted trees: the only file that knows LightGBM."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np

from costmodel.errors import MissingExtraError
from costmodel.features.schema import SCHEMA
from costmodel.features.tabular import Encoded
from costmodel.training.targets import layer_targets

try:
    import lightgbm
    from onnxmltools.convert import convert_lightgbm
    from onnxmltools.convert.common.data_types import FloatTensorType
except ModuleNotFoundError as error:
    raise MissingExtraError("training", "train") from error

__all__ = ["DEFAULTS", "OBJECTIVES", "Hyperparameters", "LightGBMRegressor", "usual_leaves"]

# What may be minimised, and the parameter that says from which error of log(cost / bound) on an error counts linearly.
OBJECTIVES: Mapping[str, str | None] = {"regression_l1": None, "huber": "alpha", "fair": "fair_c", "regression": None}

# The more layers are known, the finer they may be told apart (docs/adr/0006).
_FEWEST_LEAVES, _MOST_LEAVES, _ROWS_A_LEAF = 7, 31, 300


@dataclass(frozen=True, slots=True)
class Hyperparameters:
    """How trees are grown.

    Attributes:
        leaves: Of a tree, at most; None for as many as the number of rows justifies.
        rounds: Number of trees.
        learning_rate: Share of each tree that is added.
        rows_in_leaf: The fewest.
        feature_share: Features that a tree may use.
        row_share: Rows that a tree sees.
        l2: Penalty on the squares of what leaves say.
        path_smooth: How much a leaf of few rows says what its parent says.
        objective: What is minimised, one of `OBJECTIVES`.
        linear_from: Error of log(cost / bound) from which on it counts linearly, for the objectives that have that.
        time_weight: A row counts as its latency to this power: 0 for all alike, 1 for as much as it takes.
    """

    leaves: int | None = None
    rounds: int = 1000
    learning_rate: float = 0.05
    rows_in_leaf: int = 5
    feature_share: float = 0.5
    row_share: float = 0.8
    l2: float = 1.0
    path_smooth: float = 0.0
    objective: str = "regression_l1"
    linear_from: float = 0.1
    time_weight: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """As JSON, to be recorded."""
        return asdict(self)


# By evidence: docs/adr/0006, benchmarks/regressor_variants.py.
DEFAULTS = Hyperparameters()


def usual_leaves(num_rows: int) -> int:
    """Leaves of a tree where nobody says how many."""
    return min(_MOST_LEAVES, max(_FEWEST_LEAVES, num_rows // _ROWS_A_LEAF))


class LightGBMRegressor:
    """Gradient-boosted trees on log(cost / bound), pooled over all operators.

    Args:
        seed: Of bagging and feature sampling.
        threads: Used for training.
        hyperparameters: How trees are grown.
    """

    def __init__(self, seed: int = 0, threads: int = 1, hyperparameters: Hyperparameters = DEFAULTS) -> None:
        self.seed = seed
        self.threads = threads
        self.hyperparameters = hyperparameters
        self.leaves_ = hyperparameters.leaves or _FEWEST_LEAVES

    @property
    def parameters(self) -> Mapping[str, object]:
        """What LightGBM is told."""
        given = self.hyperparameters
        linear_from = OBJECTIVES[given.objective]
        return {
            "objective": given.objective,
            **({linear_from: given.linear_from} if linear_from else {}),
            "learning_rate": given.learning_rate,
            "num_leaves": self.leaves_,
            "min_data_in_leaf": given.rows_in_leaf,
            "feature_fraction": given.feature_share,
            "bagging_fraction": given.row_share,
            "bagging_freq": 1,
            "lambda_l2": given.l2,
            "path_smooth": given.path_smooth,
            "seed": self.seed,
            "num_threads": self.threads,
            "deterministic": True,
            "force_row_wise": True,
            "verbosity": -1,
        }

    @property
    def rounds(self) -> int:
        """Number of trees."""
        return self.hyperparameters.rounds

    @property
    def settings(self) -> Mapping[str, object]:
        """All that it was told, to compare runs by."""
        return {**self.parameters, "rounds": self.rounds, "time_weight": self.hyperparameters.time_weight}

    def fit(self, encoded: Encoded, latencies_us: np.ndarray) -> Self:
        """Grow the trees."""
        rows, costs_us = layer_targets(encoded, latencies_us)
        target = np.log(costs_us / encoded.bounds_us[rows])
        self.leaves_ = self.hyperparameters.leaves or usual_leaves(len(rows))
        data = lightgbm.Dataset(
            encoded.features[rows],
            target,
            weight=self._weights(costs_us),
            feature_name=list(SCHEMA.names),
            free_raw_data=True,
        )
        self.booster_ = lightgbm.train(dict(self.parameters), data, num_boost_round=self.rounds)
        return self

    def _weights(self, costs_us: np.ndarray) -> np.ndarray | None:
        """How much each row counts, on average once; None for all alike."""
        if not self.hyperparameters.time_weight:
            return None
        weights = costs_us**self.hyperparameters.time_weight
        return np.asarray(weights / weights.mean())

    def predict_us(self, encoded: Encoded) -> np.ndarray:
        """Costs of layers in microseconds, shape [num_layers]."""
        ratios = self.booster_.predict(encoded.features, num_threads=self.threads)
        return np.asarray(encoded.bounds_us * np.exp(ratios))

    def to_text(self) -> str:
        """The trees in LightGBM's own text format."""
        return str(self.booster_.model_to_string())

    def to_onnx(self) -> bytes:
        """The trees as an ONNX model: input "features", float32 [num_rows, num_features]; one output, log ratios."""
        model = convert_lightgbm(
            self.booster_,
            initial_types=[("features", FloatTensorType([None, len(SCHEMA.names)]))],
            zipmap=False,
            target_opset=15,
        )
        return bytes(model.SerializeToString())
