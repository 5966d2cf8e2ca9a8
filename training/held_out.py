"""Predictions of layers and models whose family was held out, and how far they are off."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from costmodel.errors import MissingExtraError
from costmodel.features.schema import SCHEMA
from costmodel.features.tabular import Encoded
from costmodel.in_place import InPlace
from costmodel.training.dataset import Dataset, MeasuredModel
from costmodel.training.in_place import LayersOf, fit_in_place
from costmodel.training.regressors import Regressor
from costmodel.training.splits import Split

try:
    from joblib import Parallel, delayed
    from scipy.stats import kendalltau, spearmanr
except ModuleNotFoundError as error:
    raise MissingExtraError("evaluation", "train") from error

__all__ = ["METRICS", "HeldOut", "accuracy", "errors_of", "held_out", "rank_correlation"]

# What `accuracy` says of layers, and of models composed in each of two ways.
METRICS = {
    "layer": ("mape", "weighted_mape", "within_10pct", "kendall_tau"),
    "model": ("mape", "within_5pct", "within_10pct", "kendall_tau"),
    "model_unseen": ("mape", "within_5pct", "within_10pct", "kendall_tau"),
}
# What a layer alone decides: not the weights of the model around it.
_PRESSURE = SCHEMA.names.index("footprint_over_l2")
_ALONE = [i for i, name in enumerate(SCHEMA.names) if not name.startswith("footprint")]


@dataclass(frozen=True)
class HeldOut:
    """Predictions of one predictor with one seed, each made without the family it belongs to.

    Attributes:
        dataset: What was measured.
        rows_us: Predicted costs, shape [num_rows]; nan for samples and whole models.
        models_us: For each measured model, predicted costs of its sequences in their place; nan where it was not held
            out.
        known_us: For each measured model, measured costs of its sequences in their place.
        predicted_in_place: What predicted costs become in a model, by all models that were held out.
        measured_in_place: What measured costs become in a model, by all of them.
    """

    dataset: Dataset
    rows_us: np.ndarray
    models_us: tuple[np.ndarray, ...]
    known_us: tuple[np.ndarray, ...]
    predicted_in_place: InPlace
    measured_in_place: InPlace

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
                np.where(elsewhere, known, costs).sum()
                for elsewhere, known, costs in zip(data.known_elsewhere, self.known_us, self.models_us, strict=True)
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
    dataset: Dataset,
    splits: Sequence[Split],
    make: Callable[[int], Regressor],
    seed: int,
    *,
    besides: Sequence[Split] = (),
    jobs: int = 1,
) -> HeldOut:
    """What a predictor says of families when it has not seen them.

    What a layer costs in a model, beside what it is predicted to cost alone, is learnt from the models of the other
    splits, with what is predicted when those are held out.

    Args:
        dataset: Measured sequences and models.
        splits: Which families are held out together.
        make: Of the predictor, from a seed.
        seed: Its seed.
        besides: Further splits to learn from what layers cost in a model; they are not judged.
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
    parts = Parallel(n_jobs=jobs, prefer="threads")(delayed(one)(split) for split in (*splits, *besides))
    rows_us = np.full(len(dataset), np.nan)
    for judged, costs, _ in parts[: len(splits)]:
        rows_us[judged] = costs[judged]
    alone = {i: costs for _, _, models in parts for i, costs in models.items()}
    measured = {i: dataset.latencies_us[model.rows] for i, model in enumerate(dataset.models)}
    models_us = [np.full(len(model.rows), np.nan) for model in dataset.models]
    known_us = list(measured.values())
    for split in splits:
        predicted_in_place, measured_in_place = (_fit(dataset, of, split.models) for of in (alone, measured))
        for i in split.models:
            models_us[i] = _layers_of(dataset, i, alone[i]).placed_us(predicted_in_place)
            known_us[i] = _layers_of(dataset, i, measured[i]).placed_us(measured_in_place)
    return HeldOut(dataset, rows_us, tuple(models_us), tuple(known_us), _fit(dataset, alone), _fit(dataset, measured))


def _fit(dataset: Dataset, costs_us: Mapping[int, np.ndarray], without: Sequence[int] = ()) -> InPlace:
    """What costs of layers alone become in a model, by some models; nothing else where only those were measured."""
    if dataset.whole_only:
        return InPlace()
    models = [i for i in costs_us if i not in set(without)]
    return fit_in_place(
        [_layers_of(dataset, i, costs_us[i]) for i in models], [dataset.models[i].latency_us for i in models]
    )


def _layers_of(dataset: Dataset, model: int, costs_us: np.ndarray) -> LayersOf:
    found = dataset.models[model]
    return LayersOf(
        costs_us,
        tuple(dataset.kinds[row] if dataset.encoded.lengths[row] == 1 else "" for row in found.rows.tolist()),
        float(dataset.encoded.features[dataset.encoded.starts[found.row], _PRESSURE]),
    )


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


def rank_correlation(one: np.ndarray, other: np.ndarray) -> float | None:
    """Spearman's, from -1 to 1; None where one of them never changes."""
    if len(one) < 2 or np.ptp(one) == 0 or np.ptp(other) == 0:
        return None
    return float(spearmanr(one, other).statistic)
