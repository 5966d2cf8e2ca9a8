"""Gradient-boosted trees: the only file that knows LightGBM."""

from collections.abc import Mapping
from typing import Self

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

__all__ = ["LightGBMRegressor"]

# The more layers are known, the finer they may be told apart (docs/adr/0006).
_FEWEST_LEAVES, _MOST_LEAVES, _ROWS_A_LEAF = 7, 31, 300


class LightGBMRegressor:
    """Gradient-boosted trees on log(cost / bound), pooled over all operators.

    Args:
        seed: Of bagging and feature sampling.
        threads: Used for training.
    """

    def __init__(self, seed: int = 0, threads: int = 1) -> None:
        self.seed = seed
        self.threads = threads
        self.leaves_ = _FEWEST_LEAVES

    @property
    def parameters(self) -> Mapping[str, object]:
        """What LightGBM is told."""
        return {
            "objective": "regression_l1",
            "learning_rate": 0.05,
            "num_leaves": self.leaves_,
            "min_data_in_leaf": 5,
            "feature_fraction": 0.5,
            "bagging_fraction": 0.8,
            "bagging_freq": 1,
            "lambda_l2": 1.0,
            "seed": self.seed,
            "num_threads": self.threads,
            "deterministic": True,
            "force_row_wise": True,
            "verbosity": -1,
        }

    @property
    def rounds(self) -> int:
        """Number of trees."""
        return 1000

    @property
    def settings(self) -> Mapping[str, object]:
        """All that it was told, to compare runs by."""
        return {**self.parameters, "rounds": self.rounds}

    def fit(self, encoded: Encoded, latencies_us: np.ndarray) -> Self:
        """Grow the trees."""
        rows, costs_us = layer_targets(encoded, latencies_us)
        target = np.log(costs_us / encoded.bounds_us[rows])
        self.leaves_ = min(_MOST_LEAVES, max(_FEWEST_LEAVES, len(rows) // _ROWS_A_LEAF))
        data = lightgbm.Dataset(encoded.features[rows], target, feature_name=list(SCHEMA.names), free_raw_data=True)
        self.booster_ = lightgbm.train(dict(self.parameters), data, num_boost_round=self.rounds)
        return self

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
