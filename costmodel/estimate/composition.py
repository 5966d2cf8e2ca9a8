"""Composes the costs of layer sequences into the latencies of models, for a batch of models at once.

A single estimate is a batch of one model. The predictor, searches over architectures, latency tables and the evaluation
of regressors all use the arrays of this module, so that there is one formula for the interval and one for the context
correction.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from costmodel.estimate.context_correction import ContextCorrection, pressure_basis, reread_kb_per_us
from costmodel.estimate.cost import SOURCES, UNPRICED, Cost, Source, Uncertainty

__all__ = [
    "Composed", "CostTable", "PricedBatch", "combined_half_widths", "half_width", "summed_by_correlation",
]  # fmt: skip

_MEASURED, _UNPRICED = SOURCES.index("measured"), SOURCES.index("unpriced")


@dataclass(frozen=True, slots=True)
class CostTable:
    """Costs of layer sequences in isolation, as arrays.

    Attributes:
        latency_us: Latency of each cost in microseconds, shape [num_costs].
        half_width: Half-width of each cost's interval in log latency, shape [num_costs].
        source: Index of each cost's source in `SOURCES`, shape [num_costs].
        kinds: For each cost, the operator types of its sequence, joined by "+".
        single: Whether each cost is that of a single layer, shape [num_costs].
        costs: The costs from which the arrays are made.
    """

    latency_us: np.ndarray
    half_width: np.ndarray
    source: np.ndarray
    kinds: tuple[str, ...]
    single: np.ndarray
    costs: tuple[Cost, ...]

    @classmethod
    def of(cls, costs: Sequence[Cost]) -> "CostTable":
        """Returns a table of `costs` in the given order."""
        latency_us = np.array([cost.latency_us for cost in costs], dtype=np.float64)
        highs_us = np.array([cost.interval_us[1] for cost in costs], dtype=np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            half_width = np.where(latency_us > 0, np.log(highs_us / latency_us), 0.0)
        source = np.array([SOURCES.index(cost.source) for cost in costs], dtype=np.int64)
        kinds = tuple(cost.kind for cost in costs)
        single = np.array(["+" not in kind for kind in kinds], dtype=bool)
        return cls(latency_us, half_width, source, kinds, single, tuple(costs))


class Composed(NamedTuple):
    """Composed latencies of a batch of models.

    Attributes:
        latency_us: Latency of each model in microseconds, shape [num_models].
        half_width: Half-width of each model's interval in log latency, shape [num_models].
        coverage: For each source except "unpriced", its share of each model's latency, shape [num_models]; the shares
            of a model add up to 1.
    """

    latency_us: np.ndarray
    half_width: np.ndarray
    coverage: dict[Source, np.ndarray]

    @property
    def interval_us(self) -> np.ndarray:
        """Lower and upper bound of each model's latency in microseconds, shape [num_models, 2]."""
        factors = np.exp(np.stack([-self.half_width, self.half_width], axis=-1))
        return np.asarray(self.latency_us[:, None] * factors)


@dataclass(frozen=True)
class PricedBatch:
    """The layer sequences of a batch of models, one after another, with their costs.

    Attributes:
        table: The costs of the sequences, equal ones only once.
        cost: Position in `table` of each sequence's cost, shape [num_sequences].
        model: Position in the batch of the model that each sequence belongs to, shape [num_sequences].
        num_models: Number of models.
        factor: Factor from each sequence's cost in isolation to its cost inside its model, shape [num_sequences].
    """

    table: CostTable
    cost: np.ndarray
    model: np.ndarray
    num_models: int
    factor: np.ndarray

    @classmethod
    def of(cls, models: Iterable[Sequence[Cost | None]]) -> "PricedBatch":
        """Builds a batch from several models, so that they are composed together.

        Args:
            models: For each model, the costs of its sequences, in which None stands for an unknown cost.
        """
        positions: dict[Cost, int] = {}
        cost, lengths = [], []
        for costs in models:
            cost += [positions.setdefault(UNPRICED if one is None else one, len(positions)) for one in costs]
            lengths.append(len(costs))
        model = np.repeat(np.arange(len(lengths)), lengths)
        positions_of = np.array(cost, dtype=np.int64)
        return cls(CostTable.of(list(positions)), positions_of, model, len(lengths), np.ones(len(cost)))

    @property
    def latency_us(self) -> np.ndarray:
        """Latency of each sequence inside its model in microseconds, shape [num_sequences]."""
        return np.asarray(self.table.latency_us[self.cost] * self.factor)

    @property
    def unpriced(self) -> np.ndarray:
        """Positions of the sequences that have no cost, in ascending order."""
        return np.flatnonzero(self.table.source[self.cost] == _UNPRICED)

    def costs_in_context(self) -> list[Cost]:
        """Returns the cost of each sequence inside its model, in the order of the sequences."""
        costs = self.table.costs
        return [
            costs[position].scaled(factor)
            for position, factor in zip(self.cost.tolist(), self.factor.tolist(), strict=True)
        ]

    def in_context(
        self,
        measured: ContextCorrection,
        predicted: ContextCorrection,
        cache_pressures: np.ndarray,
        weights_kb: np.ndarray,
        rows: np.ndarray,
    ) -> "PricedBatch":
        """Returns the batch with factors that apply the context correction to the costs of single layers.

        The factor of a sequence of several layers becomes 1, because the correction is learnt from single layers.

        Args:
            measured: Context correction for measured costs.
            predicted: Context correction for all other costs.
            cache_pressures: Cache pressure of each model, shape [num_models].
            weights_kb: `small_weights_kb` of each different sequence, shape [num_different].
            rows: Index in `weights_kb` of each sequence, shape [num_sequences].
        """
        of_models = pressure_basis(cache_pressures)

        def coefficients(correction: ContextCorrection) -> np.ndarray:
            return correction.pressure_coefficients(self.table.latency_us, self.table.kinds)

        is_measured = self.table.source == _MEASURED
        of_costs = np.where(is_measured[:, None], coefficients(measured), coefficients(predicted))
        of_costs[~self.table.single] = 0.0
        reread = np.where(self.table.single, np.where(is_measured, measured.reread, predicted.reread), 0.0)
        # Column by column, because a batch of a million networks has tens of millions of sequences.
        logarithm = np.zeros(len(self.cost))
        for of_cost, of_model in zip(of_costs.T, of_models.T, strict=True):
            logarithm += of_cost[self.cost] * of_model[self.model]
        if reread.any():
            latencies_us, pressures = self.table.latency_us[self.cost], cache_pressures[self.model]
            logarithm += reread[self.cost] * reread_kb_per_us(latencies_us, weights_kb[rows], pressures)
        return replace(self, factor=np.exp(logarithm))

    def with_model_time(self, model_us: float) -> "PricedBatch":
        """Returns the batch with a constant added to each model, spread over its sequences as their costs are.

        Args:
            model_us: Time in microseconds that each model takes besides its layers.
        """
        totals_us = np.bincount(self.model, weights=self.latency_us, minlength=self.num_models)
        shares = 1 + model_us / np.maximum(totals_us, np.finfo(float).tiny)
        return replace(self, factor=self.factor * np.where(totals_us > 0, shares, 1.0)[self.model])

    def with_totals(self, totals_us: np.ndarray) -> "PricedBatch":
        """Returns the batch with the costs of some models scaled, so that they add up to known latencies.

        Args:
            totals_us: Known latency of each model in microseconds, shape [num_models]; nan for a model that stays.
        """
        sums_us = np.bincount(self.model, weights=self.latency_us, minlength=self.num_models)
        known = ~np.isnan(totals_us) & (sums_us > 0)
        scales = np.ones(self.num_models)
        scales[known] = totals_us[known] / sums_us[known]
        return replace(self, factor=self.factor * scales[self.model])

    def compose(self, uncertainty: Uncertainty, included: np.ndarray | None = None) -> Composed:
        """Returns the composed latency of each model with its interval and coverage.

        Intervals are symmetric in log latency, so that their lower bounds are above 0. Each cost contributes its
        half-width times its share of the model's latency. Equal predicted costs in one model are taken for one layer
        that repeats, whose error repeats as well. Errors of different predictions are correlated, because a regressor
        that is wrong about one convolution is wrong about similar ones in the same direction. The noise of measurements
        is independent.

        Args:
            uncertainty: Correlation between the errors of predicted costs, and the error of composition itself.
            included: Share of each sequence's latency that the model's latency includes, shape [num_sequences]; by
                default all of it.
        """
        latency_us = self.latency_us if included is None else self.latency_us * included
        totals_us = np.bincount(self.model, weights=latency_us, minlength=self.num_models)
        share = latency_us / np.maximum(totals_us, np.finfo(float).tiny)[self.model]
        source = self.table.source[self.cost]
        coverage = {
            name: np.bincount(self.model, weights=share * (source == place), minlength=self.num_models)
            for place, name in enumerate(SOURCES)
            if place != _UNPRICED
        }
        widened = share * self.table.half_width[self.cost]
        is_measured = source == _MEASURED
        measured = np.bincount(self.model, weights=np.where(is_measured, widened**2, 0.0), minlength=self.num_models)
        repeats, cell = np.unique(
            (self.model * max(1, len(self.table.kinds)) + self.cost)[~is_measured], return_inverse=True
        )
        owner = repeats // max(1, len(self.table.kinds))
        correlated, independent = summed_by_correlation(widened[~is_measured], cell.reshape(-1), owner, self.num_models)
        width = combined_half_widths(measured, correlated, independent, uncertainty, totals_us)
        return Composed(totals_us, np.where(totals_us > 0, width, 0.0), coverage)


def summed_by_correlation(
    widths: np.ndarray, cell: np.ndarray, owner: np.ndarray, num_models: int
) -> tuple[np.ndarray, np.ndarray]:
    """Returns what predicted costs add to the squared half-width of each model, in two extreme cases.

    In both cases a layer that repeats in a model has the same error each time.

    Args:
        widths: Contribution of each predicted sequence to the half-width of its model, shape [num_sequences].
        cell: For each predicted sequence, the number of its cell, shape [num_sequences]; a sequence and its repetitions
            in the same model form one cell.
        owner: Position in the batch of the model that each cell belongs to, shape [num_cells].
        num_models: Number of models.

    Returns:
        Two arrays of shape [num_models]: the squared half-widths if the errors of different layers are fully
        correlated, and those if they are independent.
    """
    of_cell = np.bincount(cell, weights=widths, minlength=len(owner))
    correlated = np.bincount(owner, weights=of_cell, minlength=num_models) ** 2
    return correlated, np.bincount(owner, weights=of_cell**2, minlength=num_models)


def combined_half_widths(
    measured: np.ndarray,
    correlated: np.ndarray,
    independent: np.ndarray,
    uncertainty: Uncertainty,
    latencies_us: np.ndarray,
) -> np.ndarray:
    """Returns the half-width of each model's interval in log latency, shape [num_models].

    Args:
        measured: Part of each squared half-width that comes from measured costs, shape [num_models].
        correlated: Part that comes from predicted costs if their errors are fully correlated, shape [num_models].
        independent: Part that comes from predicted costs if their errors are independent, shape [num_models].
        uncertainty: Actual correlation between the errors of predicted costs, and the error of composition itself.
        latencies_us: Composed latency of each model in microseconds, shape [num_models].
    """
    rho = uncertainty.correlation
    # Rounding must not make the sum negative where all of a model is one repeated layer.
    predicted = np.maximum(0.0, rho * correlated + (1 - rho) * independent)
    return np.asarray(np.sqrt(measured + predicted + uncertainty.construction_at(latencies_us) ** 2))


def half_width(costs: Sequence[Cost], uncertainty: Uncertainty) -> float:
    """Returns the half-width, in log latency, of the interval of one model whose layer sequences have these costs."""
    return float(PricedBatch.of([costs]).compose(uncertainty).half_width[0])
