"""Learns from whole models what layers cost in them, beside what they cost alone (docs/adr/0008)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from costmodel.in_place import SHORT_US, InPlace, shortness

__all__ = ["LayersOf", "fit_in_place"]

# Weights of the squares of the coefficients: a dozen models must not be told more than they say, and least of all by
# their footprints, which are large numbers.
_RIDGE, _RIDGE_OF_FOOTPRINT = 3.0, 100.0
# Errors count by their size, not by its square, from here on.
_SMALL = 0.02
_STEPS = 20


@dataclass(frozen=True)
class LayersOf:
    """The layers of a model and what they cost alone.

    Attributes:
        costs_us: Shape [num_layers].
        operators: Of each; empty for what is several layers that cannot be told apart: it costs what it costs.
        pressure: That of the model's weights, see `costmodel.in_place.pressure`.
    """

    costs_us: np.ndarray
    operators: tuple[str, ...]
    pressure: float

    def placed_us(self, in_place: InPlace) -> np.ndarray:
        """What they cost in the model, shape [num_layers]."""
        single = np.array([bool(operator) for operator in self.operators])
        factors = in_place.factors(self.costs_us, self.operators, self.pressure)
        return np.where(single, self.costs_us * factors, self.costs_us)


def fit_in_place(models: Sequence[LayersOf], latencies_us: Sequence[float]) -> InPlace:
    """The coefficients with which the layers of models add up to their latencies.

    A line in log(latency / sum of layers) over the shares of the sum that are short, of each operator, and so on; least
    absolute errors with a ridge, by iterated reweighting. To first order that is the sum of `LayersOf.placed_us`.

    Args:
        models: With the costs of their layers alone.
        latencies_us: Measured end to end.
    """
    if not models:
        return InPlace()
    names = sorted({operator for model in models for operator in model.operators if operator})
    design = np.array([_shares(model, names) for model in models])
    target = np.log(np.asarray(latencies_us) / [model.costs_us.sum() for model in models])
    short = len(SHORT_US)
    ridge = np.full(design.shape[1], _RIDGE)
    ridge[short] = _RIDGE_OF_FOOTPRINT
    found = np.zeros(design.shape[1])
    for _ in range(_STEPS):
        weights = 1 / (_SMALL + np.abs(target - design @ found))
        squares = (design * weights[:, None]).T @ design + np.diag(ridge)
        found = np.linalg.solve(squares, design.T @ (weights * target))
    return InPlace(
        short=tuple(found[:short].tolist()),
        footprint=float(found[short]),
        operators=dict(zip(names, found[short + 1 :].tolist(), strict=True)),
    )


def _shares(model: LayersOf, names: Sequence[str]) -> np.ndarray:
    """A row of the design: means over the model's layers, weighted by cost."""
    column = {name: position for position, name in enumerate(names)}
    single = np.array([bool(operator) for operator in model.operators])
    shares = np.where(single, model.costs_us, 0.0) / model.costs_us.sum()
    of_operators = np.zeros(len(names))
    np.add.at(of_operators, [column[operator] for operator in model.operators if operator], shares[single])
    return np.concatenate([shares @ shortness(model.costs_us), [shares.sum() * model.pressure], of_operators])
