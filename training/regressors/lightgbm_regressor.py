"""A regressor of gradient-boosted trees; no other module uses LightGBM."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np

from costmodel.errors import MissingExtraError
from costmodel.features.schema import FEATURE_GROUPS, SCHEMA
from costmodel.features.tabular import Encoded
from costmodel.training.regressors.targets import layer_targets

try:
    import lightgbm
    from onnxmltools.convert import convert_lightgbm
    from onnxmltools.convert.common.data_types import FloatTensorType
except ModuleNotFoundError as error:
    raise MissingExtraError("training", "train") from error

__all__ = ["DEFAULTS", "OBJECTIVES", "Hyperparameters", "LightGBMRegressor", "default_num_leaves"]

# Objectives, each with its parameter for the error of log(cost / bound) from which errors count linearly, if any. The
# absolute error is not among them, because LightGBM has no monotone constraints with it.
OBJECTIVES: Mapping[str, str | None] = {"fair": "fair_c", "huber": "alpha", "regression": None}

# The number of leaves grows with the number of rows (docs/adr/0006).
_FEWEST_LEAVES, _MOST_LEAVES, _ROWS_PER_LEAF = 7, 31, 300


@dataclass(frozen=True, slots=True)
class Hyperparameters:
    """Hyperparameters of LightGBM.

    Attributes:
        num_leaves: Maximum number of leaves of a tree; None to derive it from the number of training layers, see
            `default_num_leaves`.
        num_boost_round: Number of trees.
        learning_rate: Factor on the output of each tree.
        min_data_in_leaf: Minimum number of training layers in a leaf.
        feature_fraction: Share of the features that a tree may use.
        bagging_fraction: Share of the training layers that a tree is trained on.
        lambda_l2: L2 penalty on the outputs of leaves.
        path_smooth: How strongly the output of a leaf with little training data is drawn to that of its parent.
        objective: Loss to minimise, one of `OBJECTIVES`.
        linear_from: Size from which errors of log(cost / bound) count linearly instead of by their squares, for
            objectives with such a parameter.
        time_weight: Power of its cost by which a layer is weighted in training: 0 for equal weights, 1 for the cost
            itself.
    """

    num_leaves: int | None = None
    num_boost_round: int = 1000
    learning_rate: float = 0.05
    min_data_in_leaf: int = 5
    feature_fraction: float = 0.5
    bagging_fraction: float = 0.8
    lambda_l2: float = 1.0
    path_smooth: float = 0.0
    objective: str = "fair"
    linear_from: float = 0.1
    time_weight: float = 0.1

    def to_dict(self) -> dict[str, Any]:
        """Returns the hyperparameters as JSON data."""
        return asdict(self)


# Evidence for these values: docs/adr/0006 and 0019, benchmarks/regressor_variants.py.
DEFAULTS = Hyperparameters()


def default_num_leaves(num_rows: int) -> int:
    """Returns the default for the maximum number of leaves of a tree, given the number of layers trained on."""
    return min(_MOST_LEAVES, max(_FEWEST_LEAVES, num_rows // _ROWS_PER_LEAF))


class LightGBMRegressor:
    """A regressor of gradient-boosted trees that predict log(cost / bound), trained on all operators together.

    Args:
        seed: Seed of the random choice of layers and features for each tree.
        threads: Number of threads for training and prediction.
        hyperparameters: Hyperparameters of LightGBM.
        columns: Names of the features.
        rising: Names of the features with which a prediction never falls. By default they are those of the model around
            a layer: the more memory a model touches, the less of its layer's data is in the caches. Without this
            constraint trees use them to tell models apart (docs/adr/0018).
    """

    def __init__(
        self,
        seed: int = 0,
        threads: int = 1,
        hyperparameters: Hyperparameters = DEFAULTS,
        columns: Sequence[str] = SCHEMA.names,
        rising: Collection[str] = FEATURE_GROUPS["footprint"],
    ) -> None:
        self.seed = seed
        self.threads = threads
        self.hyperparameters = hyperparameters
        self.columns = columns
        self.rising = rising
        self.num_leaves_ = hyperparameters.num_leaves or _FEWEST_LEAVES

    @property
    def parameters(self) -> Mapping[str, object]:
        """Parameters that are passed to LightGBM."""
        chosen = self.hyperparameters
        linear_from = OBJECTIVES[chosen.objective]
        return {
            "objective": chosen.objective,
            **({linear_from: chosen.linear_from} if linear_from else {}),
            "learning_rate": chosen.learning_rate,
            "num_leaves": self.num_leaves_,
            "min_data_in_leaf": chosen.min_data_in_leaf,
            "feature_fraction": chosen.feature_fraction,
            "bagging_fraction": chosen.bagging_fraction,
            "bagging_freq": 1,
            "lambda_l2": chosen.lambda_l2,
            "path_smooth": chosen.path_smooth,
            "monotone_constraints": [int(name in self.rising) for name in self.columns],
            "seed": self.seed,
            "num_threads": self.threads,
            "deterministic": True,
            "force_row_wise": True,
            "verbosity": -1,
        }

    @property
    def rounds(self) -> int:
        """Number of trees that are trained."""
        return self.hyperparameters.num_boost_round

    @property
    def settings(self) -> Mapping[str, object]:
        """Settings of the regressor by name, by which training runs can be compared."""
        return {
            **{name: value for name, value in self.parameters.items() if name != "monotone_constraints"},
            "num_boost_round": self.rounds,
            "time_weight": self.hyperparameters.time_weight,
            "rising": " ".join(self.rising),
        }

    def fit(self, encoded: Encoded, latencies_us: np.ndarray) -> Self:
        """Trains the trees on costs of layers, which are derived from the measured sequences."""
        rows, costs_us = layer_targets(encoded, latencies_us)
        target = np.log(costs_us / encoded.bounds_us[rows])
        self.num_leaves_ = self.hyperparameters.num_leaves or default_num_leaves(len(rows))
        data = lightgbm.Dataset(
            encoded.features[rows],
            target,
            weight=self._weights(costs_us),
            feature_name=list(self.columns),
            free_raw_data=True,
        )
        self.booster_ = lightgbm.train(dict(self.parameters), data, num_boost_round=self.rounds)
        return self

    def _weights(self, costs_us: np.ndarray) -> np.ndarray | None:
        """Returns the weight of each layer in training, with a mean of 1; None for equal weights."""
        if not self.hyperparameters.time_weight:
            return None
        weights = costs_us**self.hyperparameters.time_weight
        return np.asarray(weights / weights.mean())

    def predict_us(self, encoded: Encoded) -> np.ndarray:
        """Predicts the costs of layers in microseconds, shape [num_layers]."""
        ratios = self.booster_.predict(encoded.features, num_threads=self.threads)
        return np.asarray(encoded.bounds_us * np.exp(ratios))

    def to_text(self) -> str:
        """Returns the trees in LightGBM's text format."""
        return str(self.booster_.model_to_string())

    def to_onnx(self) -> bytes:
        """Returns the trees as an ONNX model.

        Input: "features", float32 [num_layers, num_features]. Output: log(cost / bound) of each layer.
        """
        # The converter does not know all objectives, none of which changes what the trees say.
        as_squares = re.sub(r"^(objective=|\[objective: )[^]\n]*", r"\1regression", self.to_text(), flags=re.MULTILINE)
        model = convert_lightgbm(
            lightgbm.Booster(model_str=as_squares),
            initial_types=[("features", FloatTensorType([None, len(self.columns)]))],
            zipmap=False,
            target_opset=15,
        )
        return bytes(model.SerializeToString())
