"""Compares variants of the gradient-boosted trees, and the benefit of each group of features (docs/adr/0006).

    costmodel import data/amd-epyc-zen5-2c-ort1.31-1t-training.parquet
    python benchmarks/regressor_variants.py amd-epyc-zen5-2c-ort1.31-1t

Families are held out in eight groups, seed 0: a regressor is not trained on any layer of the models that it is judged
on, and all of their layers are predicted. Errors of models are relative to their end-to-end latency.
"""

import argparse
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from functools import partial
from time import perf_counter
from typing import Any, Self

import numpy as np

from costmodel.features.schema import FEATURE_GROUPS, SCHEMA
from costmodel.features.tabular import Encoded
from costmodel.paths import find_home
from costmodel.store.store import Store
from costmodel.training.dataset import Dataset, load_dataset
from costmodel.training.evaluation.held_out import accuracy, predict_held_out
from costmodel.training.evaluation.splits import leave_families_out
from costmodel.training.lineages import by_lineage
from costmodel.training.regressors.learner import Regressor
from costmodel.training.regressors.lightgbm_regressor import DEFAULTS, Hyperparameters, LightGBMRegressor
from costmodel.training.regressors.registry import REGRESSORS

FOLDS = 8
ROUNDS = DEFAULTS.num_boost_round
THREADS = 2


class Variant(LightGBMRegressor):
    """A LightGBM regressor with some parameters changed, or without some features."""

    def __init__(self, *, without: tuple[str, ...] = (), **changed: Any) -> None:
        own = {field.name for field in fields(Hyperparameters)} & changed.keys()
        super().__init__(0, THREADS, replace(DEFAULTS, **{name: changed.pop(name) for name in own}))
        self._blind = [SCHEMA.names.index(name) for name in without]
        self._changed = changed

    @property
    def parameters(self) -> Mapping[str, object]:
        """Parameters of the regressor, with the changes."""
        return {**super().parameters, **self._changed}

    def fit(self, encoded: Encoded, latencies_us: np.ndarray) -> Self:
        """Fits the trees to the remaining features."""
        return super().fit(self._seen(encoded), latencies_us)

    def predict_us(self, encoded: Encoded) -> np.ndarray:
        """Predicts costs from the remaining features."""
        return super().predict_us(self._seen(encoded))

    def _seen(self, encoded: Encoded) -> Encoded:
        features = encoded.features.copy()
        features[:, self._blind] = 0
        return replace(encoded, features=features)


class PerOperator:
    """A regressor with own trees for each operator that has enough rows, and pooled trees for the others."""

    def __init__(self, least_rows: int) -> None:
        self._least_rows = least_rows

    def fit(self, encoded: Encoded, latencies_us: np.ndarray) -> Self:
        """Fits the pooled trees and those of each operator."""
        self.pooled_ = Variant().fit(encoded, latencies_us)
        single = np.flatnonzero(encoded.lengths == 1)
        operators = _operators(encoded)[encoded.starts[single]]
        self.own_ = {}
        for operator, number in zip(*np.unique(operators, return_counts=True), strict=True):
            if number >= self._least_rows:
                mine = single[operators == operator]
                self.own_[operator] = Variant().fit(encoded.take(mine), latencies_us[mine])
        return self

    def predict_us(self, encoded: Encoded) -> np.ndarray:
        """Predicts the cost of each layer by the trees of its operator."""
        costs_us = self.pooled_.predict_us(encoded)
        operators = _operators(encoded)
        for operator, own in self.own_.items():
            rows = np.flatnonzero(operators == operator)
            if len(rows):
                alone = Encoded(
                    encoded.features[rows], encoded.bounds_us[rows], np.arange(len(rows) + 1), np.zeros((2, 0), int)
                )
                costs_us[rows] = own.predict_us(alone)
        return costs_us


def _operators(encoded: Encoded) -> np.ndarray:
    """Returns the index of each layer's operator, shape [num_layers]."""
    columns = [SCHEMA.names.index(name) for name in FEATURE_GROUPS["operator"]]
    return np.asarray(encoded.features[:, columns].argmax(axis=1))


VARIANTS: Mapping[str, Callable[[], Regressor]] = {
    "as decided": Variant,
    "15 leaves": lambda: Variant(num_leaves=15),
    "63 leaves": lambda: Variant(num_leaves=63),
    "half the trees": lambda: Variant(num_boost_round=ROUNDS // 2),
    "slower: half the rate, twice the trees": lambda: Variant(num_boost_round=2 * ROUNDS, learning_rate=0.025),
    "20 rows in a leaf": lambda: Variant(min_data_in_leaf=20),
    "extremely random splits": lambda: Variant(extra_trees=True),
    "without monotone constraints": lambda: Variant(monotone_constraints=None),
    "squared error": lambda: Variant(objective="regression"),
    "expensive layers count more": lambda: Variant(time_weight=0.25),
    **{f"one for each operator of {n} rows": partial(PerOperator, n) for n in (30, 200)},
    **{f"without the features of {group}": partial(Variant, without=names) for group, names in FEATURE_GROUPS.items()},
    **{f"instead: {name}": partial(make, 0) for name, make in REGRESSORS.items() if name != "lightgbm"},
}  # fmt: skip


def main() -> None:
    """Prints one row for each variant."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("system")
    parser.add_argument("--only", default="", help="only variants with this text in their name")
    given = parser.parse_args()
    dataset = load_dataset(Store(find_home().store_url), given.system)
    print(f"{given.system}, {len(dataset)} sequences, {len(dataset.models)} models, {FOLDS} groups of families")
    print(f"{'variant':<42}{'layers':>8}{'by time':>9}{'models':>9}{'in 5%':>7}{'in 10%':>7}{'seconds':>9}")
    for name, make in VARIANTS.items():
        if given.only in name:
            print(_row(name, dataset, make), flush=True)


def _row(name: str, dataset: Dataset, make: Callable[[], Regressor]) -> str:
    started = perf_counter()
    run = predict_held_out(dataset, leave_families_out(by_lineage(dataset), FOLDS), lambda _: make(), 0)
    found = accuracy(run)
    layer, model = found.layer, found.model_unseen
    return (
        f"{name:<42}{layer.mape:>8.1%}{layer.weighted_mape:>9.1%}{model.mape:>9.1%}"
        f"{model.within_5pct:>7.0%}{model.within_10pct:>7.0%}{(perf_counter() - started) / FOLDS:>9.1f}"
    )


if __name__ == "__main__":
    main()
