"""Compares what ten or twenty-five latencies of whole models teach, by replaying measured search spaces.

    costmodel import data/amd-epyc-zen5-2c-ort1.31-1t-training.parquet
    python benchmarks/whole_model_latencies.py amd-epyc-zen5-2c-ort1.31-1t

For each search space, some of its models are drawn at random and their end-to-end latencies are learnt from; those of
the other models are predicted. No layer is used. Errors are means over draws; `--constant` adds the same time to every
latency, as a framework does that takes time besides the layers. With `--prior OTHER`, layers that were measured on
another system are learnt from first, as after `costmodel import latencies.csv --like OTHER`: those of all models, and
those of all lineages but the space's own.
"""

import argparse
from collections import Counter
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, replace
from typing import Protocol, Self

import numpy as np
from scipy.optimize import nnls
from scipy.stats import spearmanr
from sklearn.linear_model import RidgeCV

from costmodel.features.schema import SCHEMA
from costmodel.features.tabular import Encoded
from costmodel.paths import find_home
from costmodel.store.store import Store
from costmodel.training.calibration import conformal_quantile
from costmodel.training.dataset import Dataset, dataset_of, load_dataset
from costmodel.training.lineages import by_lineage
from costmodel.training.regressors.baselines import RooflineRegressor
from costmodel.training.regressors.lightgbm_regressor import LightGBMRegressor
from costmodel.training.regressors.linear_correction import LinearCorrection
from costmodel.training.regressors.log_linear import LogLinearRegressor

LEVEL = 0.9
FOLDS = 10
_ALONE = [column for column, name in enumerate(SCHEMA.names) if not name.startswith("footprint")]
_OPERATORS = [column for column, name in enumerate(SCHEMA.names) if name.startswith("op_")]


class Fit(Protocol):
    """A predictor of the latencies of whole models."""

    def fit(self, encoded: Encoded, latencies_us: np.ndarray) -> Self:
        """Learns from whole models and their latencies in microseconds."""

    def totals_us(self, encoded: Encoded) -> np.ndarray:
        """Predicts the latencies of whole models in microseconds, shape [num_models]."""


class Counts:
    """An additive fit: a constant, plus a time for each occurrence of each distinct layer, by ridge regression."""

    def fit(self, encoded: Encoded, latencies_us: np.ndarray) -> Self:
        """Fits the times; the weight of their squares is chosen by leaving each model out."""
        self.layers_ = {layer: place for place, layer in enumerate(dict.fromkeys(_layers(encoded)))}
        self.scale_ = float(np.mean(latencies_us))
        counts = self._counts(encoded)
        self.ridge_ = RidgeCV(alphas=np.logspace(-4, 3, 29)).fit(counts, latencies_us / self.scale_)
        return self

    def totals_us(self, encoded: Encoded) -> np.ndarray:
        """Predicts latencies; a layer that was not trained on takes no time."""
        return np.asarray(self.ridge_.predict(self._counts(encoded)) * self.scale_)

    def _counts(self, encoded: Encoded) -> np.ndarray:
        layers = _layers(encoded)
        counts = np.zeros((len(encoded), len(self.layers_)))
        for model, (start, end) in enumerate(zip(encoded.starts[:-1], encoded.starts[1:], strict=True)):
            for layer, number in Counter(layers[start:end]).items():
                if layer in self.layers_:
                    counts[model, self.layers_[layer]] = number
        return counts


class Bounds:
    """An additive fit: a constant, plus a factor for each operator on the sum of its layers' analytical bounds."""

    def fit(self, encoded: Encoded, latencies_us: np.ndarray) -> Self:
        """Fits the constant and the factors, none negative, by least squares on relative errors."""
        self.coefficients_, _ = nnls(self._sums(encoded) / latencies_us[:, None], np.ones(len(latencies_us)))
        return self

    def totals_us(self, encoded: Encoded) -> np.ndarray:
        """Predicts latencies."""
        return np.asarray(self._sums(encoded) @ self.coefficients_)

    @staticmethod
    def _sums(encoded: Encoded) -> np.ndarray:
        of_layers = encoded.features[:, _OPERATORS].astype(np.float64) * encoded.bounds_us[:, None]
        sums = np.add.reduceat(of_layers, encoded.starts[:-1], axis=0)
        return np.column_stack([np.full(len(encoded), 100.0), sums])


class Learnt:
    """A regressor of costmodel, which predicts layers; a model takes their sum and the regressor's constant."""

    def __init__(self, make: Callable[[], LogLinearRegressor | RooflineRegressor | LinearCorrection]) -> None:
        self._regressor = make()

    def fit(self, encoded: Encoded, latencies_us: np.ndarray) -> Self:
        """Fits the regressor."""
        self._regressor.fit(encoded, latencies_us)
        return self

    def totals_us(self, encoded: Encoded) -> np.ndarray:
        """Predicts latencies."""
        constant_us = getattr(self._regressor, "model_us_", 0.0)
        return encoded.totals(self._regressor.predict_us(encoded)) + constant_us


ADDITIVE: Mapping[str, Callable[[], Fit]] = {
    "additive, counts of layers": Counts,
    "additive, bounds by operator": Bounds,
}
FITS: Mapping[str, Callable[[], Fit]] = {
    "log_linear": lambda: Learnt(LogLinearRegressor),
    "log_linear, least squares": lambda: Learnt(lambda: LogLinearRegressor(scale=None)),
    "log_linear, no constant": lambda: Learnt(lambda: LogLinearRegressor(constant=False)),
    "one factor on the bound": lambda: Learnt(RooflineRegressor),
    **ADDITIVE,
}


@dataclass(frozen=True)
class Score:
    """How well the models that were not learnt from were predicted, as means over draws.

    Attributes:
        error: Mean absolute relative error.
        order: Spearman's rank correlation.
        covered: Share of the latencies inside 90% intervals, which are calibrated on the models learnt from.
    """

    error: float
    order: float
    covered: float


def _layers(encoded: Encoded) -> list[bytes]:
    return [row.tobytes() for row in encoded.features[:, _ALONE]]


def held_out_errors(make: Callable[[], Fit], encoded: Encoded, latencies_us: np.ndarray) -> np.ndarray:
    """Returns |log(latency / prediction)| of each model, predicted from the other models."""
    errors = np.empty(len(encoded))
    fold = np.arange(len(encoded)) % FOLDS
    for number in range(FOLDS):
        fit = make().fit(encoded.take(fold != number), latencies_us[fold != number])
        predicted = np.maximum(fit.totals_us(encoded.take(fold == number)), 1.0)
        errors[fold == number] = np.log(latencies_us[fold == number] / predicted)
    return np.abs(errors)


def score(make: Callable[[], Fit], dataset: Dataset, rows: np.ndarray, number: int, draws: int) -> Score:
    """Learns from `number` of the models in `rows`, drawn at random, and predicts the others; averages over draws."""
    scores = []
    for seed in range(draws):
        order = np.random.default_rng(seed).permutation(rows)
        known, others = dataset.encoded.take(order[:number]), dataset.encoded.take(order[number:])
        measured = dataset.latencies_us[order[number:]]
        predicted = np.maximum(make().fit(known, dataset.latencies_us[order[:number]]).totals_us(others), 1.0)
        width = conformal_quantile(held_out_errors(make, known, dataset.latencies_us[order[:number]]), LEVEL)
        scores.append(
            (
                np.mean(np.abs(predicted / measured - 1)),
                spearmanr(predicted, measured).statistic,
                np.mean(np.abs(np.log(predicted / measured)) <= width),
            )
        )
    return Score(*np.mean(scores, axis=0).tolist())


def wholes_of(store: Store, system: str, like: str | None = None) -> Dataset:
    """Returns the data set of a system's whole models alone, with the features that it has if it is like another."""
    latencies = store.latencies_us(system, store.whole_model_signatures())
    return dataset_of(store, replace(store.system(like or system), name=system), latencies)


def corrections(base: Dataset, models: Set[str]) -> Mapping[str, Callable[[], Fit]]:
    """Returns fits that correct what another system's regressor predicts, trained with and without some models.

    Args:
        base: What was measured on the other system, with its models in lineages.
        models: Names of the models whose lineages the second regressor is not trained on.
    """
    lineages = {model.family for model in base.models if model.name in models}
    unrelated = np.array([not of_row & lineages for of_row in base.families])

    def fit(rows: np.ndarray) -> Callable[[], Fit]:
        prior = LightGBMRegressor(0, threads=2).fit(base.encoded.take(rows), base.latencies_us[rows])
        return lambda: Learnt(lambda: LinearCorrection(prior))

    return {
        "linear_correction": fit(np.ones(len(base), dtype=bool)),
        "linear_correction, lineage unseen": fit(unrelated),
    }


def main() -> None:
    """Prints, for each system, search space and number of models, the scores of all fits."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("systems", nargs="+")
    parser.add_argument("--store", default=None, help="URL of the results store; by default the one of this home")
    parser.add_argument("--models", type=int, nargs="+", default=[10, 25], help="numbers of models to learn from")
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--least", type=int, default=24, help="number of models that a search space must have")
    parser.add_argument("--constant", type=float, default=0.0, help="share of the mean latency to add to all latencies")
    parser.add_argument("--prior", help="another system, of which layers are measured")
    given = parser.parse_args()
    store = Store(given.store or find_home().store_url, create=False)
    base = by_lineage(load_dataset(store, given.prior)) if given.prior else None
    for system in given.systems:
        dataset = wholes_of(store, system, given.prior)
        families = Counter(model.family for model in dataset.models)
        for family, size in families.most_common():
            if size < given.least:
                continue
            rows = np.array([model.row for model in dataset.models if model.family == family])
            latencies_us = dataset.latencies_us + given.constant * dataset.latencies_us[rows].mean()
            shifted = replace(dataset, latencies_us=latencies_us)
            names = {model.name for model in dataset.models if model.family == family}
            fits = FITS if base is None else {**FITS, **corrections(base, names)}
            for number in (number for number in given.models if number + 10 <= size):
                print(f"\n{system}, {family}: {number} of {size} models learnt from")
                print(f"{'':36s}{'error':>8s}{'order':>8s}{'covered':>9s}{'to best additive':>18s}")
                scores = {name: score(make, shifted, rows, number, given.draws) for name, make in fits.items()}
                best = min(scores[name].error for name in ADDITIVE)
                for name, one in scores.items():
                    print(f"{name:36s}{one.error:8.1%}{one.order:8.3f}{one.covered:9.0%}{one.error / best:18.2f}")


if __name__ == "__main__":
    main()
