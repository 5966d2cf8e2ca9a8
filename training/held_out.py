"""Predictions of layers and models whose family was held out, and how far they are off."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from costmodel.errors import MissingExtraError
from costmodel.features.schema import SCHEMA
from costmodel.features.tabular import Encoded
from costmodel.training.dataset import Dataset, MeasuredModel
from costmodel.training.regressors import Regressor
from costmodel.training.splits import Split

try:
    from joblib import Parallel, delayed
    from scipy.stats import kendalltau
except ModuleNotFoundError as error:
    raise MissingExtraError("evaluation", "train") from error

__all__ = ["METRICS", "HeldOut", "accuracy", "errors_of", "held_out"]

# What `accuracy` says of layers, and of models composed in each of two ways.
METRICS = {
    "layer": ("mape", "weighted_mape", "within_10pct", "kendall_tau"),
    "model": ("mape", "within_5pct", "within_10pct", "kendall_tau"),
    "model_unseen": ("mape", "within_5pct", "within_10pct", "kendall_tau"),
}
# What a layer alone decides: not the weights of the model around it.
_ALONE = [i for i, name in enumerate(SCHEMA.names) if not name.startswith("footprint")]


@dataclass(frozen=True)
class HeldOut:
    """Predictions of one predictor with one seed, each made without the family it belongs to.

    Attributes:
        dataset: What was measured.
        rows_us: Predicted costs, shape [num_rows]; nan for samples and whole models.
        models_us: For each measured model, predicted costs of its sequences; nan where it was not held out.
    """

    dataset: Dataset
    rows_us: np.ndarray
    models_us: tuple[np.ndarray, ...]

    @cached_property
    def judged(self) -> np.ndarray:
        """Rows with a prediction, as positions."""
        return np.flatnonzero(~np.isnan(self.rows_us))

    @cached_property
    def judged_models(self) -> np.ndarray:
        """Models with a prediction, as positions."""
        return np.flatnonzero(~np.isnan(self.unseen_us))

    @cached_property
    def unseen_us(self) -> np.ndarray:
        """Predicted latencies of the models, no layer measured; shape [num_models], nan if not held out."""
        return np.array([costs.sum() for costs in self.models_us], dtype=np.float64)

    @cached_property
    def composed_us(self) -> np.ndarray:
        """Latencies of the models as the product answers: layers that other families have are measured."""
        data = self.dataset
        return np.array(
            [
                np.where(data.known_elsewhere[i], data.latencies_us[model.rows], costs).sum()
                for i, (model, costs) in enumerate(zip(data.models, self.models_us, strict=True))
            ],
            dtype=np.float64,
        )

    @cached_property
    def kinds_us(self) -> tuple[dict[str, float], ...]:
        """For each model, predicted costs by kind of sequence."""
        return tuple(self._by_kind(i, np.ones(len(costs), dtype=bool)) for i, costs in enumerate(self.models_us))

    @cached_property
    def unknown_kinds_us(self) -> tuple[dict[str, float], ...]:
        """For each model, predicted costs by kind of the sequences that no other family has."""
        return tuple(self._by_kind(i, ~known) for i, known in enumerate(self.dataset.known_elsewhere))

    def _by_kind(self, model: int, chosen: np.ndarray) -> dict[str, float]:
        sums: dict[str, float] = {}
        rows = self.dataset.models[model].rows[chosen]
        for row, us in zip(rows.tolist(), self.models_us[model][chosen].tolist(), strict=True):
            kind = self.dataset.kinds[row]
            sums[kind] = sums.get(kind, 0.0) + us
        return sums


def held_out(
    dataset: Dataset, splits: Iterable[Split], make: Callable[[int], Regressor], seed: int, *, jobs: int = 1
) -> HeldOut:
    """What a predictor says of families when it has not seen them.

    Args:
        dataset: Measured sequences and models.
        splits: Which families are held out together.
        make: Of the predictor, from a seed.
        seed: Its seed.
        jobs: Splits at once.
    """

    def one(split: Split) -> tuple[np.ndarray, np.ndarray, dict[int, np.ndarray]]:
        regressor = make(seed).fit(dataset.encoded.take(split.kept), dataset.latencies_us[split.kept])
        costs = np.full(len(dataset), np.nan)
        if split.judged.any():
            some = dataset.encoded.take(split.judged)
            costs[split.judged] = some.totals(regressor.predict_us(some))
        return split.judged, costs, {i: _in_model(dataset, dataset.models[i], regressor) for i in split.models}

    # Threads: LightGBM and numpy let go of the interpreter, and the data need not be copied.
    parts = Parallel(n_jobs=jobs, prefer="threads")(delayed(one)(split) for split in splits)
    rows_us = np.full(len(dataset), np.nan)
    by_model: dict[int, np.ndarray] = {}
    for judged, costs, models in parts:
        rows_us[judged] = costs[judged]
        by_model |= models
    models_us = (by_model.get(i, np.full(len(model.rows), np.nan)) for i, model in enumerate(dataset.models))
    return HeldOut(dataset, rows_us, tuple(models_us))


def _in_model(dataset: Dataset, model: MeasuredModel, regressor: Regressor) -> np.ndarray:
    """Predicted costs of a model's sequences, shape [num_sequences], from its graph as a whole.

    So a predictor that sees the neighbours of a layer sees those that it has there, as it does when it serves.
    """
    whole, parts = dataset.encoded.take(np.array([model.row])), dataset.encoded.take(model.rows)
    costs = np.empty(len(parts.bounds_us))
    # The whole has its layers in canonical order, the sequences are in execution order: those of equal features are the
    # same layer, or ones whose places in the model are exchanged, which leaves the sum as it is.
    costs[_order(parts)] = regressor.predict_us(whole)[_order(whole)]
    return parts.totals(costs)


def _order(encoded: Encoded) -> np.ndarray:
    """Layers in the order of what their features say of them alone."""
    return np.lexsort(encoded.features[:, _ALONE].T)


def accuracy(run: HeldOut) -> dict[str, dict[str, float | None]]:
    """The metrics of `METRICS` over the layers and the models that were held out."""
    data, models = run.dataset, run.judged_models
    measured = np.array([model.latency_us for model in data.models], dtype=np.float64)[models]
    found = {
        "layer": errors_of(run.rows_us[run.judged], data.latencies_us[run.judged]),
        "model": errors_of(run.composed_us[models], measured),
        "model_unseen": errors_of(run.unseen_us[models], measured),
    }
    return {part: {key: found[part][key] for key in keys} for part, keys in METRICS.items()}


def errors_of(predicted: np.ndarray, measured: np.ndarray) -> dict[str, float | None]:
    """Every metric of predictions beside what was measured, in fractions; None where there are too few to say."""
    if not len(measured):
        return dict.fromkeys(("mape", "weighted_mape", "within_5pct", "within_10pct", "kendall_tau"))
    relative = np.abs(predicted - measured) / measured
    tau = float(kendalltau(predicted, measured).statistic) if len(measured) > 1 else None
    return {
        "mape": float(relative.mean()),
        "weighted_mape": float(np.abs(predicted - measured).sum() / measured.sum()),
        "within_5pct": float((relative <= 0.05).mean()),
        "within_10pct": float((relative <= 0.10).mean()),
        "kendall_tau": None if tau is None or np.isnan(tau) else tau,
    }
