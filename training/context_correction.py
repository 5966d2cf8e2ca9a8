"""Fits the context correction: the factor from a layer's cost in isolation to its cost inside a model.

It is fitted to models that were measured whole (docs/adr/0008).
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

import numpy as np

from costmodel.estimate.context_correction import (
    SCALES_BETWEEN,
    SHORT_US,
    ContextCorrection,
    pressure_basis,
    reread_kb_per_us,
    short_layer_basis,
    small_weights_kb,
)
from costmodel.features.schema import SCHEMA
from costmodel.training.dataset import Dataset

__all__ = ["ModelLayers", "estimated_ratios", "fit_context_correction", "fit_correction_of", "layers_of_model"]

_CACHE_PRESSURE = SCHEMA.names.index("footprint_over_l2")
_WEIGHTS = SCHEMA.names.index("log_weight_bytes")

# Ridge penalties, which keep a dozen models from being overfitted: those of the longer scales and of models between
# inside and outside of the cache, of which there are few, are larger, and that of the footprint, whose values are large
# numbers, the largest.
_RIDGE_OF_SCALES = (3.0, 3.0, 30.0, 30.0)
_RIDGE_BETWEEN, _RIDGE_OF_FOOTPRINT, _RIDGE_OF_OPERATORS, _RIDGE_OF_REREAD = 10.0, 100.0, 3.0, 3.0
# Penalty of everything that differs from another correction.
_RIDGE_OF_DIFFERENCES = 200.0
# Number of random networks, most of the corpus, to which the correction of measured costs has to be fitted to hold for
# predicted ones as it is.
_ENOUGH_RANDOM_MODELS = 100
# Scale of the errors from which they count linearly instead of by their squares.
_SMALL = 0.02
# Iterations of reweighting.
_STEPS = 20
# Groups of models that are left out in turn, to see how far estimates are off.
_FOLDS = 5


@dataclass(frozen=True)
class ModelLayers:
    """The layers of one model, with what each of them costs in isolation.

    Attributes:
        costs_us: Cost of each layer in isolation in microseconds, shape [num_layers].
        operators: Operator of each layer; an empty string for a sequence of several layers, whose cost is not
            corrected.
        cache_pressure: Cache pressure of the model: how far its weights overflow a core's own cache, as a logarithm.
        weights_kb: `small_weights_kb` of each layer, shape [num_layers].
    """

    costs_us: np.ndarray
    operators: tuple[str, ...]
    cache_pressure: float
    weights_kb: np.ndarray

    def corrected_us(self, correction: ContextCorrection) -> np.ndarray:
        """Returns what each layer costs inside the model in microseconds, shape [num_layers]."""
        single = np.array([bool(operator) for operator in self.operators])
        factors = correction.factors(self.costs_us, self.operators, self.cache_pressure, self.weights_kb)
        return np.where(single, self.costs_us * factors, self.costs_us)


def fit_context_correction(
    models: Sequence[ModelLayers],
    latencies_us: Sequence[float],
    near: ContextCorrection | None = None,
) -> ContextCorrection:
    """Fits the context correction with which the costs of each model's layers add up to the model's latency.

    log(latency / sum of isolated costs) of a model is described as a linear function of the shares of that sum that
    belong to short layers and to each operator, of the cache pressure, of the shares of short layers times how far the
    model is between inside and outside of the level 2 cache, and of the weights that are read again. The fit minimises
    the absolute errors plus a ridge penalty on what differs from `near`, by iteratively reweighted least squares. The
    coefficient of the weights is not negative, and stays that of `near`. To first order,
    `ModelLayers.corrected_us` then adds up to the latency.

    Args:
        models: Models with the costs of their layers in isolation.
        latencies_us: Measured end-to-end latency of each model in microseconds.
        near: Correction that holds unless the models say otherwise; None for no correction.
    """
    if not models:
        return near or ContextCorrection()
    near_operators = {} if near is None else near.operators
    names = sorted({operator for model in models for operator in model.operators if operator} | near_operators.keys())
    design = np.array([_design_row(model, names) for model in models])
    target = np.log(np.asarray(latencies_us) / [model.costs_us.sum() for model in models])
    short, between = slice(len(SHORT_US)), slice(len(SHORT_US), len(SHORT_US) + SCALES_BETWEEN)
    footprint, reread = between.stop, between.stop + 1
    ridge = np.full(design.shape[1], _RIDGE_OF_OPERATORS)
    ridge[short], ridge[between], ridge[footprint] = _RIDGE_OF_SCALES, _RIDGE_BETWEEN, _RIDGE_OF_FOOTPRINT
    ridge[reread] = _RIDGE_OF_REREAD
    start = np.zeros(design.shape[1])
    if near is not None:
        ridge = np.full(design.shape[1], _RIDGE_OF_DIFFERENCES)
        of_operators = [near_operators.get(name, 0.0) for name in names]
        start = np.array([*near.short, *near.short_between, near.footprint, near.reread, *of_operators])
        target = target - design @ start
        # How long the machine reads weights has nothing to do with how a cost became known. A coefficient that is free
        # to differ describes errors of the regressor.
        design[:, reread] = 0.0
    coefficients = _least_absolute(design, target, ridge)
    if coefficients[reread] < 0:  # reading takes time
        design[:, reread] = 0.0
        coefficients = _least_absolute(design, target, ridge)
    coefficients = coefficients + start
    return ContextCorrection(
        short=tuple(coefficients[short].tolist()),
        short_between=tuple(coefficients[between].tolist()),
        footprint=float(coefficients[footprint]),
        reread=float(coefficients[reread]),
        operators=dict(zip(names, coefficients[reread + 1 :].tolist(), strict=True)),
    )


def _least_absolute(design: np.ndarray, target: np.ndarray, ridge: np.ndarray) -> np.ndarray:
    """Returns the coefficients with the smallest absolute errors plus ridge penalty, shape [num_coefficients]."""
    coefficients = np.zeros(design.shape[1])
    for _ in range(_STEPS):
        weights = 1 / (_SMALL + np.abs(target - design @ coefficients))
        squares = (design * weights[:, None]).T @ design + np.diag(ridge)
        coefficients = np.linalg.solve(squares, design.T @ (weights * target))
    return coefficients


def fit_correction_of(
    dataset: Dataset,
    costs_us: Mapping[int, np.ndarray],
    without: Sequence[int] = (),
    near: ContextCorrection | None = None,
) -> ContextCorrection:
    """Fits the context correction to the models of a data set whose costs are given.

    Where only whole models were measured, there is no correction. Where enough random networks were measured, that of
    measured costs holds for predicted costs, too: what these would differ by is the error of a regressor for other
    models (docs/adr/0008, "Closer to the measured correction").

    Args:
        dataset: Measured sequences and models.
        costs_us: Costs of a model's sequences in isolation in microseconds, by the model's position in
            `Dataset.all_models`.
        without: Positions of models to leave out.
        near: Correction of measured costs, from which that of predicted ones starts; None for no correction.
    """
    if dataset.whole_only:
        return ContextCorrection()
    if near is not None and len(dataset.random_models) >= _ENOUGH_RANDOM_MODELS:
        return near
    models = [i for i in costs_us if i not in set(without)]
    return fit_context_correction(
        [layers_of_model(dataset, i, costs_us[i]) for i in models],
        [dataset.all_models[i].latency_us for i in models],
        near,
    )


def estimated_ratios(dataset: Dataset, models: Set[int]) -> dict[int, float]:
    """Returns, by position, the latency of each of some models divided by its estimate from the costs of its sequences.

    Each estimate is the sum of the costs in the data set with a context correction that is fitted without the model.

    Args:
        dataset: Measured sequences and models. Models of which a latency is nan are not fitted to.
        models: Positions of the models in `Dataset.models`; none of their latencies is nan.
    """
    costs_us = {i: dataset.latencies_us[model.rows] for i, model in enumerate(dataset.all_models)}
    known = {
        i: costs
        for i, costs in costs_us.items()
        if np.isfinite(dataset.all_models[i].latency_us) and np.isfinite(costs).all()
    }
    ratios = {}
    for fold in range(_FOLDS):
        held = sorted(models)[fold::_FOLDS]
        if held:
            correction = fit_correction_of(dataset, known, held)
            for i in held:
                estimate_us = layers_of_model(dataset, i, costs_us[i]).corrected_us(correction).sum()
                ratios[i] = float(dataset.models[i].latency_us / estimate_us)
    return ratios


def layers_of_model(dataset: Dataset, model: int, costs_us: np.ndarray) -> ModelLayers:
    """Returns the layers of one model of a data set, with given costs in isolation.

    Args:
        dataset: Measured sequences and models.
        model: Position of the model in `Dataset.all_models`.
        costs_us: Cost of each sequence of the model in isolation in microseconds, shape [num_sequences].
    """
    measured_model, encoded = dataset.all_models[model], dataset.encoded
    single = encoded.lengths[measured_model.rows] == 1
    weights = np.expm1(encoded.features[encoded.starts[measured_model.rows], _WEIGHTS].astype(np.float64))
    return ModelLayers(
        costs_us,
        tuple(dataset.kinds[row] if one else "" for row, one in zip(measured_model.rows, single, strict=True)),
        float(encoded.features[encoded.starts[measured_model.row], _CACHE_PRESSURE]),
        small_weights_kb(weights, dataset.system.host),
    )


def _design_row(model: ModelLayers, names: Sequence[str]) -> np.ndarray:
    """Returns the row of a model in the design matrix of the linear fit, shape [num_coefficients].

    Its elements are means over the model's layers, weighted by their costs: of the functions of `short_layer_basis`, of
    these times how far the model is between inside and outside of the cache, of the model's cache pressure, of the
    weights that are read again, and of an indicator for each operator in `names`. A sequence of several layers counts
    as 0 in each mean.
    """
    column = {name: position for position, name in enumerate(names)}
    single = np.array([bool(operator) for operator in model.operators])
    shares = np.where(single, model.costs_us, 0.0) / model.costs_us.sum()
    of_operators = np.zeros(len(names))
    np.add.at(of_operators, [column[operator] for operator in model.operators if operator], shares[single])
    basis = shares @ short_layer_basis(model.costs_us)
    pressures = np.array([model.cache_pressure])
    _, pressure, between = pressure_basis(pressures)[0]
    reread = shares @ reread_kb_per_us(model.costs_us, model.weights_kb, pressures)
    return np.concatenate([basis, between * basis[:SCALES_BETWEEN], [shares.sum() * pressure, reread], of_operators])
