"""Variants of the boosted trees on what this host has measured: the evidence behind docs/adr/0004.

    costmodel tour && python benchmarks/regressor_variants.py

Leave one family out, seed 0. Errors of sequences are means of |predicted / measured - 1|; those of models compare the
summed prediction with the sum of the measured sequences, so that the error of composition is left out.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from costmodel.home import find_home
from costmodel.runtimes import RuntimeSettings, get_runtime
from costmodel.store import Store
from costmodel.systems import this_system
from costmodel.training.baselines import NearestRegressor
from costmodel.training.boosted import LightGBMRegressor
from costmodel.training.dataset import Dataset, load_dataset
from costmodel.training.regressors import Regressor


class Variant(LightGBMRegressor):
    """The trees with some parameters changed."""

    def __init__(self, rounds: int = 1000, **changed: object) -> None:
        super().__init__(seed=0, threads=2)
        self._rounds = rounds
        self._changed = changed

    @property
    def parameters(self) -> Mapping[str, object]:
        """As decided, with the changes."""
        return {**super().parameters, **self._changed}

    @property
    def rounds(self) -> int:
        """Number of trees."""
        return self._rounds


VARIANTS: Mapping[str, Any] = {
    "as decided: 7 leaves, 1000 trees, absolute error": lambda: Variant(),
    "31 leaves, 500 trees": lambda: Variant(500, num_leaves=31),
    "15 leaves, 500 trees": lambda: Variant(500, num_leaves=15),
    "10 rows in a leaf": lambda: Variant(min_data_in_leaf=10),
    "2 rows in a leaf": lambda: Variant(min_data_in_leaf=2),
    "slower: rate 0.02, 2500 trees": lambda: Variant(2500, learning_rate=0.02),
    "extremely random splits": lambda: Variant(extra_trees=True),
    "squared error": lambda: Variant(objective="regression"),
    "Huber's error": lambda: Variant(objective="huber", alpha=0.2),
    "nearest neighbour": NearestRegressor,
}


def held_out_errors(dataset: Dataset, make: Any, *, samples: bool = True) -> tuple[float, float, float]:
    """Mean error of sequences, mean and largest error of models, each with its own family left out."""
    rows, models = [], []
    for family in dataset.all_families:
        kept = dataset.without_family(family)
        used = kept if samples else kept & ~dataset.sampled
        regressor: Regressor = make().fit(dataset.features[used], dataset.bounds_us[used], dataset.latencies_us[used])
        costs = regressor.predict_us(dataset.features, dataset.bounds_us)
        judged = ~kept & ~dataset.sampled
        rows.append(np.abs(costs[judged] / dataset.latencies_us[judged] - 1))
        models += [
            abs(costs[m.rows].sum() / dataset.latencies_us[m.rows].sum() - 1)
            for m in dataset.models
            if m.family == family
        ]
    return float(np.concatenate(rows).mean()), float(np.mean(models)), float(np.max(models))


def main() -> None:
    """Print one row for each variant."""
    system = this_system(get_runtime(), RuntimeSettings())
    dataset = load_dataset(Store(find_home().store_url), system.name)
    print(f"{system.name}, {len(dataset)} sequences, {len(dataset.models)} models")
    print(f"{'variant':<50}{'sequences':>10}{'models':>8}{'worst':>8}")
    for name, make in VARIANTS.items():
        layer, mean, worst = held_out_errors(dataset, make)
        print(f"{name:<50}{layer:>10.1%}{mean:>8.1%}{worst:>8.1%}", flush=True)
    layer, mean, worst = held_out_errors(dataset, Variant, samples=False)
    print(f"{'as decided, without the samples':<50}{layer:>10.1%}{mean:>8.1%}{worst:>8.1%}")


if __name__ == "__main__":
    main()
