"""Fits the context correction to whole models: what layers cost inside them compared with alone (docs/adr/0008)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from costmodel.estimate.context_correction import SHORT_US, ContextCorrection, short_layer_basis

__all__ = ["ModelLayers", "fit_context_correction"]

# Ridge penalties, which keep a dozen models from being overfitted; the largest is that of the footprint, whose values
# are large numbers.
_RIDGE, _RIDGE_OF_FOOTPRINT = 3.0, 100.0
# Scale of the errors from which they count linearly instead of by their squares.
_SMALL = 0.02
# Iterations of reweighting.
_STEPS = 20


@dataclass(frozen=True)
class ModelLayers:
    """The layers of a model with their costs alone.

    Attributes:
        costs_us: Cost of each layer alone in microseconds, shape [num_layers].
        operators: Operator of each layer; empty for a sequence of several layers, whose cost is not corrected.
        cache_pressure: Cache pressure of the model's weights, see `costmodel.estimate.context_correction`.
    """

    costs_us: np.ndarray
    operators: tuple[str, ...]
    cache_pressure: float

    def corrected_us(self, correction: ContextCorrection) -> np.ndarray:
        """Returns the cost of each layer inside the model in microseconds, shape [num_layers]."""
        single = np.array([bool(operator) for operator in self.operators])
        factors = correction.factors(self.costs_us, self.operators, self.cache_pressure)
        return np.where(single, self.costs_us * factors, self.costs_us)


def fit_context_correction(models: Sequence[ModelLayers], latencies_us: Sequence[float]) -> ContextCorrection:
    """Fits the context correction with which the layers of each model add up to its latency.

    log(latency / sum of layers) is a linear function of the shares of the sum that belong to short layers and to
    each operator, and of the cache pressure; the fit has the least absolute errors under a ridge penalty, by iterated
    reweighting. To first order this makes the latency the sum of `ModelLayers.corrected_us`.

    Args:
        models: Models with the costs of their layers alone.
        latencies_us: Measured end-to-end latency of each model in microseconds.
    """
    if not models:
        return ContextCorrection()
    names = sorted({operator for model in models for operator in model.operators if operator})
    design = np.array([_design_row(model, names) for model in models])
    target = np.log(np.asarray(latencies_us) / [model.costs_us.sum() for model in models])
    num_short = len(SHORT_US)
    ridge = np.full(design.shape[1], _RIDGE)
    ridge[num_short] = _RIDGE_OF_FOOTPRINT
    coefficients = np.zeros(design.shape[1])
    for _ in range(_STEPS):
        weights = 1 / (_SMALL + np.abs(target - design @ coefficients))
        squares = (design * weights[:, None]).T @ design + np.diag(ridge)
        coefficients = np.linalg.solve(squares, design.T @ (weights * target))
    return ContextCorrection(
        short=tuple(coefficients[:num_short].tolist()),
        footprint=float(coefficients[num_short]),
        operators=dict(zip(names, coefficients[num_short + 1 :].tolist(), strict=True)),
    )


def _design_row(model: ModelLayers, names: Sequence[str]) -> np.ndarray:
    """Returns the row of a model in the design matrix: means over its layers, weighted by cost."""
    column = {name: position for position, name in enumerate(names)}
    single = np.array([bool(operator) for operator in model.operators])
    shares = np.where(single, model.costs_us, 0.0) / model.costs_us.sum()
    of_operators = np.zeros(len(names))
    np.add.at(of_operators, [column[operator] for operator in model.operators if operator], shares[single])
    return np.concatenate(
        [shares @ short_layer_basis(model.costs_us), [shares.sum() * model.cache_pressure], of_operators]
    )
