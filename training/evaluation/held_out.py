"""Predicts layers and models whose family is held out, and computes the errors of these predictions."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from costmodel.errors import MissingExtraError
from costmodel.estimate.context_correction import ContextCorrection
from costmodel.features.schema import FEATURE_GROUPS, SCHEMA
from costmodel.features.tabular import Encoded
from costmodel.training.context_correction import fit_correction_of, layers_of_model
from costmodel.training.dataset import Dataset, MeasuredModel
from costmodel.training.evaluation.splits import Split
from costmodel.training.regressors.learner import Regressor
from costmodel.training.regressors.registry import model_us

try:
    from joblib import Parallel, delayed
    from scipy.stats import kendalltau, spearmanr
except ModuleNotFoundError as error:
    raise MissingExtraError("evaluation", "train") from error

__all__ = ["Accuracy", "Errors", "HeldOut", "accuracy", "errors_of", "predict_held_out", "rank_correlation"]

# Features that depend on the layer alone, not on the weights of the model around it.
_ALONE = [i for i, name in enumerate(SCHEMA.names) if name not in FEATURE_GROUPS["footprint"]]


@dataclass(frozen=True)
class Errors:
    """Errors of predictions against measurements, as fractions; None where there are too few predictions.

    Attributes:
        mape: Mean absolute relative error.
        weighted_mape: Sum of absolute errors divided by the sum of the measurements.
        within_5pct: Share of the predictions with an error of at most 5%.
        within_10pct: Share of the predictions with an error of at most 10%.
        kendall_tau: Kendall's rank correlation of predictions and measurements.
        percentile_95: Error that 95% of the predictions do not exceed.
        macro_mape: Mean over lineages of the mean absolute relative error of each; None if no lineages are given.
    """

    mape: float | None = None
    weighted_mape: float | None = None
    within_5pct: float | None = None
    within_10pct: float | None = None
    kendall_tau: float | None = None
    percentile_95: float | None = None
    macro_mape: float | None = None


@dataclass(frozen=True)
class Accuracy:
    """Errors of one predictor with one seed on held-out families.

    Attributes:
        layer: Errors over layer sequences.
        model: Errors over models, with measured costs for the layers that also occur in another family.
        model_unseen: Errors over models, with all costs predicted.
        measured: Errors over models, with all costs measured: what no predictor of costs can be expected to improve on.
    """

    layer: Errors
    model: Errors
    model_unseen: Errors
    measured: Errors


@dataclass(frozen=True)
class HeldOut:
    """Predictions of one predictor with one seed, each made while the family of the layer or model was held out.

    Attributes:
        dataset: Measured sequences and models.
        rows_us: Predicted cost of each row of the data set in isolation, in microseconds; nan for samples and whole
            models. Shape [num_rows].
        models_us: For each measured model, predicted costs of its sequences in microseconds with context correction;
            nan if the model was not held out.
        known_us: For each measured model, measured costs of its sequences in microseconds with context correction.
        predicted_correction: Context correction of predicted costs, fitted to all models that were held out.
        measured_correction: Context correction of measured costs, fitted to all measured models.
    """

    dataset: Dataset
    rows_us: np.ndarray
    models_us: tuple[np.ndarray, ...]
    known_us: tuple[np.ndarray, ...]
    predicted_correction: ContextCorrection
    measured_correction: ContextCorrection

    @cached_property
    def judged(self) -> np.ndarray:
        """Positions of the rows of the data set that have a prediction."""
        return np.flatnonzero(~np.isnan(self.rows_us))

    @cached_property
    def judged_models(self) -> np.ndarray:
        """Positions of the models that have a prediction, among the models of the data set."""
        return np.flatnonzero(~np.isnan(self.unseen_us))

    @cached_property
    def unseen_us(self) -> np.ndarray:
        """Latency of each model in microseconds, with all costs predicted.

        Shape [num_models]; nan if the model was not held out.
        """
        return np.array([costs.sum() for costs in self.models_us], dtype=np.float64)

    @cached_property
    def composed_us(self) -> np.ndarray:
        """Latency of each model in microseconds, with measured costs for the layers that also occur in another family.

        Shape [num_models]; nan if the model was not held out.
        """
        data = self.dataset
        return np.array(
            [
                np.where(elsewhere, known, costs).sum()
                for elsewhere, known, costs in zip(data.known_elsewhere, self.known_us, self.models_us, strict=True)
            ],
            dtype=np.float64,
        )


def predict_held_out(
    dataset: Dataset,
    splits: Sequence[Split],
    make: Callable[[int], Regressor],
    seed: int,
    *,
    besides: Sequence[Split] = (),
    jobs: int = 1,
) -> HeldOut:
    """Predicts the layers and models of each split with a predictor that was trained without the split's families.

    The context correction for the models of a split is fitted to the models of the other splits, with the costs that
    are predicted while those models are held out. That of measured costs, from which it starts, is also fitted to
    random networks (`Dataset.random_models`), and holds as it is where there are enough of them.

    Args:
        dataset: Measured sequences and models.
        splits: Splits by family.
        make: Function that makes the predictor from a seed.
        seed: Seed of the predictor.
        besides: Further splits, which are not judged; context corrections are fitted to their models as well.
        jobs: Number of splits that are evaluated in parallel.
    """

    def predict_split(split: Split) -> tuple[np.ndarray, np.ndarray, dict[int, np.ndarray]]:
        regressor = make(seed).fit(dataset.encoded.take(split.train_rows), dataset.latencies_us[split.train_rows])
        costs = np.full(len(dataset), np.nan)
        if split.test_rows.any():
            judged = dataset.encoded.take(split.test_rows)
            costs[split.test_rows] = judged.totals(regressor.predict_us(judged))
        return (
            split.test_rows,
            costs,
            {i: _predict_in_model(dataset, dataset.models[i], regressor) for i in split.models},
        )

    # Threads: LightGBM and NumPy release the interpreter lock, and the data need not be copied.
    parts = Parallel(n_jobs=jobs, prefer="threads")(delayed(predict_split)(split) for split in (*splits, *besides))
    rows_us = np.full(len(dataset), np.nan)
    for judged, costs, _ in parts[: len(splits)]:
        rows_us[judged] = costs[judged]
    alone = {i: costs for _, _, models in parts for i, costs in models.items()}
    measured = {i: dataset.latencies_us[model.rows] for i, model in enumerate(dataset.all_models)}
    models_us = [np.full(len(model.rows), np.nan) for model in dataset.models]
    known_us = [measured[i] for i in range(len(dataset.models))]
    for split in splits:
        measured_correction = fit_correction_of(dataset, measured, split.models)
        predicted_correction = fit_correction_of(dataset, alone, split.models, near=measured_correction)
        for i in split.models:
            models_us[i] = layers_of_model(dataset, i, alone[i]).corrected_us(predicted_correction)
            known_us[i] = layers_of_model(dataset, i, measured[i]).corrected_us(measured_correction)
    of_measured = fit_correction_of(dataset, measured)
    of_predicted = fit_correction_of(dataset, alone, near=of_measured)
    return HeldOut(dataset, rows_us, tuple(models_us), tuple(known_us), of_predicted, of_measured)


def _predict_in_model(dataset: Dataset, model: MeasuredModel, regressor: Regressor) -> np.ndarray:
    """Returns the costs of a model's sequences in microseconds, as predicted from its whole graph.

    A predictor that uses the neighbours of a layer thus gets the neighbours in the model, as it does in normal use. A
    time that models take besides their layers is spread over the sequences. The result has shape [num_sequences].
    """
    whole, parts = dataset.encoded.take(np.array([model.row])), dataset.encoded.take(model.rows)
    costs = np.empty(len(parts.bounds_us))
    # The whole model has its layers in canonical order, but its sequences are in execution order. They are matched by
    # their features; exchanging layers with equal features leaves the sum unchanged.
    costs[_order_alone(parts)] = regressor.predict_us(whole)[_order_alone(whole)]
    return np.asarray(parts.totals(costs) * (1 + model_us(regressor) / costs.sum()))


def _order_alone(encoded: Encoded) -> np.ndarray:
    """Returns the positions of layers, sorted by those features that do not depend on the model around them.

    Sorting two lists of the same layers in this way shows which layer of one list is which layer of the other.
    """
    return np.lexsort(encoded.features[:, _ALONE].T)


def accuracy(run: HeldOut) -> Accuracy:
    """Computes the errors of a predictor over the layers and models that were held out."""
    data, models = run.dataset, run.judged_models
    measured = np.array([model.latency_us for model in data.models], dtype=np.float64)[models]
    lineages = [data.models[i].family for i in models.tolist()]
    return Accuracy(
        layer=errors_of(run.rows_us[run.judged], data.latencies_us[run.judged]),
        model=errors_of(run.composed_us[models], measured, lineages),
        model_unseen=errors_of(run.unseen_us[models], measured, lineages),
        measured=errors_of(np.array([run.known_us[i].sum() for i in models]), measured, lineages),
    )


def errors_of(predicted: np.ndarray, measured: np.ndarray, lineages: Sequence[str] = ()) -> Errors:
    """Computes the errors of predictions against the measurements of the same sequences or models.

    Args:
        predicted: Predictions, shape [num_predictions].
        measured: Measurements, shape [num_predictions].
        lineages: Lineage of each model; empty if the errors of lineages are not wanted.
    """
    if not len(measured):
        return Errors()
    relative = np.abs(predicted - measured) / measured
    tau = float(kendalltau(predicted, measured).statistic) if len(measured) > 1 else None
    return Errors(
        mape=float(relative.mean()),
        weighted_mape=float(np.abs(predicted - measured).sum() / measured.sum()),
        within_5pct=float((relative <= 0.05).mean()),
        within_10pct=float((relative <= 0.10).mean()),
        kendall_tau=None if tau is None or np.isnan(tau) else tau,
        percentile_95=float(np.quantile(relative, 0.95)),
        macro_mape=_macro(relative, lineages) if lineages else None,
    )


def _macro(relative: np.ndarray, lineages: Sequence[str]) -> float:
    of_model = np.array(lineages)
    return float(np.mean([relative[of_model == lineage].mean() for lineage in sorted(set(lineages))]))


def rank_correlation(one: np.ndarray, other: np.ndarray) -> float | None:
    """Returns Spearman's rank correlation of two arrays, from -1 to 1.

    It is None if one of the arrays is constant, or if they have fewer than two elements.
    """
    if len(one) < 2 or np.ptp(one) == 0 or np.ptp(other) == 0:
        return None
    return float(spearmanr(one, other).statistic)
