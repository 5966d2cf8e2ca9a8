"""A regressor that learns costs with few threads, and what more threads make of them."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import Self

import numpy as np
import onnx
from onnx import helper

from costmodel.features.schema import FEATURE_GROUPS, SCHEMA
from costmodel.features.tabular import Encoded
from costmodel.training.regressors.learner import Learner, WithBase
from costmodel.training.regressors.lightgbm_regressor import Hyperparameters, LightGBMRegressor
from costmodel.training.regressors.onnx_combination import assembled_onnx

__all__ = ["THREADS", "ThreadScalingRegressor"]

# Column of the feature that says with how many threads a layer was run.
THREADS = SCHEMA.names.index("threads")
_BOUND = SCHEMA.names.index("log_bound_us")
_SPEEDUP = SCHEMA.names.index("log_threads_speedup")
_WAIT = SCHEMA.names.index("log_threads_wait")
# What the trees of the factor know besides the features of a layer: log(cost / bound) and log(cost) with few threads.
_COLUMNS = (*SCHEMA.names, "log_ratio_of_few", "log_cost_of_few")
# Columns by which a layer is recognised. What its model is said to touch depends on what else was measured.
_ALIKE = [column for column, name in enumerate(SCHEMA.names) if name not in ("threads", *FEATURE_GROUPS["footprint"])]
# A factor is a simpler function than a cost.
_OF_FACTOR = Hyperparameters(num_boost_round=500, min_data_in_leaf=10, time_weight=0.0)
# With fewer layers that were measured with both numbers of threads, costs are learnt from all rows together; also where
# fewer than this share of the sequences that were measured with most threads was measured with few.
_LEAST_PAIRS = 100
_LEAST_SHARE = 0.5


class ThreadScalingRegressor(WithBase):
    """A regressor of the cost with the fewest threads of the training data, and of what more threads make of it.

    That cost is divided among the threads as the kernel divides its work, and the time for which they wait for each
    other is added (`costmodel.features.analytical_bound`). By what factor the result is wrong is learnt by trees, from
    the layers that were measured with both numbers. Where all training data have one number of threads, the regressor
    is its base.

    Args:
        base: Regressor of the cost with the fewest threads; it may not use the neighbours of a layer.
        seed: Seed of the trees.
    """

    def __init__(self, base: Learner, seed: int = 0) -> None:
        self.base = base
        self.factor_: LightGBMRegressor | None = None
        self._seed = seed

    @property
    def settings(self) -> Mapping[str, object]:
        """Settings of the base, and the number of threads from which costs are scaled, if there are several."""
        return {**self.base.settings, **({} if self.factor_ is None else {"scaled_from_threads": self.few_})}

    def fit(self, encoded: Encoded, latencies_us: np.ndarray) -> Self:
        """Trains the base on the sequences with the fewest threads, and the factor on layers that have both."""
        threads = encoded.features[encoded.starts[:-1], THREADS]
        self.few_ = float(threads.min())
        few, many = threads == self.few_, (threads == threads.max()) & (threads != self.few_)
        quicker, slower_us = _pairs(encoded, latencies_us, few, many)
        self.factor_ = None
        if len(quicker) < _LEAST_PAIRS or few.sum() < _LEAST_SHARE * many.sum():
            self.base.fit(encoded, latencies_us)
            return self
        self.base.fit(encoded.take(few), latencies_us[few])
        pairs = encoded.take(quicker)
        self.factor_ = LightGBMRegressor(self._seed, self.threads, _OF_FACTOR, _COLUMNS, rising=())
        self.factor_.fit(_widened(pairs, np.log(slower_us / pairs.bounds_us)), latencies_us[quicker])
        return self

    def predict_us(self, encoded: Encoded) -> np.ndarray:
        """Predicts the costs of layers in microseconds, shape [num_layers]."""
        if self.factor_ is None:
            return self.base.predict_us(encoded)
        features = encoded.features.copy()
        features[:, THREADS] = self.few_
        slower_us = self.base.predict_us(replace(encoded, features=features))
        return self.factor_.predict_us(_widened(encoded, np.log(slower_us / encoded.bounds_us)))

    def to_text(self) -> str:
        """Returns the text format of the base, or an empty string where costs are scaled."""
        return self.base.to_text() if self.factor_ is None else ""

    def to_onnx(self) -> bytes:
        """Returns the base and the factor as one ONNX model.

        Input: "features", float32 [num_layers, num_features]. Output: log(cost / bound), float32 [num_layers, 1].
        """
        if self.factor_ is None:
            return self.base.to_onnx()
        base, factor = (
            onnx.compose.add_prefix(onnx.load_from_string(regressor.to_onnx()), prefix)
            for regressor, prefix in ((self.base, "few/"), (self.factor_, "factor/"))
        )
        of_few, scaled = base.graph.output[0].name, factor.graph.output[0].name
        others, few = np.ones(len(SCHEMA.names), np.float32), np.zeros(len(SCHEMA.names), np.float32)
        others[THREADS], few[THREADS] = 0, self.few_
        constants = {
            "others": others,
            "few": few,
            "bound_column": np.array([_BOUND]),
            "speedup_column": np.array([_SPEEDUP]),
            "wait_column": np.array([_WAIT]),
            "one": np.ones(1, np.float32),
            "flat": np.array([-1, 1]),
        }
        nodes = [
            helper.make_node("Mul", ["features", "others"], ["without_threads"]),
            helper.make_node("Add", ["without_threads", "few"], ["few/features"]),
            *base.graph.node,
            helper.make_node("Reshape", [of_few, "flat"], ["ratio"]),
            *(
                helper.make_node("Gather", ["features", f"{name}_column"], [name], axis=1)
                for name in ("bound", "speedup", "wait")
            ),
            helper.make_node("Add", ["ratio", "bound"], ["cost"]),
            helper.make_node("Concat", ["features", "ratio", "cost"], ["factor/features"], axis=1),
            *factor.graph.node,
            helper.make_node("Reshape", [scaled, "flat"], ["factor"]),
            helper.make_node("Sub", ["cost", "speedup"], ["log_divided"]),
            helper.make_node("Exp", ["log_divided"], ["divided"]),
            helper.make_node("Exp", ["wait"], ["wait_and_one"]),
            helper.make_node("Sub", ["wait_and_one", "one"], ["waiting"]),
            helper.make_node("Add", ["divided", "waiting"], ["expected"]),
            helper.make_node("Log", ["expected"], ["log_expected"]),
            helper.make_node("Sub", ["log_expected", "bound"], ["expected_ratio"]),
            helper.make_node("Add", ["expected_ratio", "factor"], ["log_ratios"]),
        ]
        return assembled_onnx(nodes, [factor, base], constants)


def _pairs(
    encoded: Encoded, latencies_us: np.ndarray, few: np.ndarray, many: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the single layers with most threads whose cost with few threads is known, and that cost.

    Args:
        encoded: Sequences of both.
        latencies_us: Cost of each sequence in microseconds.
        few: Mask of the sequences that were run with few threads.
        many: Mask of those that were run with most threads.

    Returns:
        Positions of the sequences, and the cost of each with few threads in microseconds, the median of several.
    """
    alike = encoded.features[encoded.starts[:-1]][:, _ALIKE]
    single = encoded.lengths == 1
    slower: dict[bytes, list[float]] = defaultdict(list)
    for row in np.flatnonzero(few & single):
        slower[alike[row].tobytes()].append(latencies_us[row])
    found = [row for row in np.flatnonzero(many & single) if alike[row].tobytes() in slower]
    return np.array(found, dtype=np.int64), np.array([np.median(slower[alike[row].tobytes()]) for row in found])


def _widened(encoded: Encoded, log_ratios: np.ndarray) -> Encoded:
    """Returns layers with what they cost with few threads, as two further features.

    In place of the bounds stands what the layers cost with many threads if these divide the work as the kernel allows
    them to, and wait for each other as usual.

    Args:
        encoded: Layers.
        log_ratios: log(cost with few threads / bound) of each layer, shape [num_layers].
    """
    ratios = log_ratios.astype(np.float32)[:, None]
    wide = np.hstack([encoded.features, ratios, ratios + encoded.features[:, [_BOUND]]])
    speedup, wait = np.exp(encoded.features[:, _SPEEDUP]), np.expm1(encoded.features[:, _WAIT])
    return replace(encoded, features=wide, bounds_us=encoded.bounds_us * np.exp(log_ratios) / speedup + wait)
