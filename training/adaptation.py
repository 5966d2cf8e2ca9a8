"""Adaptation: predicts costs on a new system from those on base systems and a few measurements on the new one.

The cost of a layer on the first base system is the layer's anchor, and a Gaussian process learns log(cost on the new
system / anchor) from the layer's features and from its costs on the other bases; its standard deviation is the
uncertainty of a cost. Predictions for families without their measurements show how large errors are.
"""

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from costmodel.ir.footprint import model_read_bytes, read_bytes, weight_bytes
from costmodel.ir.sequence import LayerSequence
from costmodel.measure.duration import estimated_group_seconds
from costmodel.measure.protocol import Protocol
from costmodel.store.store import Store
from costmodel.systems.system import System
from costmodel.training.base_costs import base_costs
from costmodel.training.context_correction import estimated_ratios
from costmodel.training.dataset import Dataset, dataset_of
from costmodel.training.evaluation.splits import LEAST_FAMILIES, leave_families_out
from costmodel.training.lineages import by_lineage
from costmodel.training.regressors.anchors import anchored
from costmodel.training.regressors.transfer import UNKNOWN_SPREAD, CostTransfer
from costmodel.training.suggestion import BenchmarkTimeModel, Usage, importance

__all__ = ["Adaptation", "AdaptationState", "Expected", "load_adaptation"]

# Groups of families that are held out in turn, to see how large errors are.
_FOLDS = 5
# With fewer measured layers than this, regressors are not judged on them.
_LEAST_TO_JUDGE = 30
# Smallest measured share of a model's cost from which the error of the sum of its layers is derived.
_LEAST_MEASURED_SHARE = 0.3
# Number of models measured whole whose errors alone are taken to be representative of the others.
_LEAST_CHECKED = 10
# Relative error up to which an estimate counts for `Expected.within_10pct`.
_WITHIN = 0.1


@dataclass(frozen=True)
class Expected:
    """Errors that are to be expected of the estimates of models on the new system.

    Attributes:
        error: Mean absolute relative error.
        within_10pct: Share of the models whose estimate is off by at most 10%.
    """

    error: float
    within_10pct: float


@dataclass(frozen=True)
class AdaptationState:
    """Measured and predicted costs on the new system, after some measurements on it.

    A row is a row of the data set, that is, a sequence that could be measured.

    Attributes:
        measured: Whether each row is measured on the new system, shape [num_rows].
        costs_us: Cost of each row in microseconds: measured, or else its anchor (usually its cost on the base system)
            times a learnt factor; shape [num_rows].
        spread: Uncertainty of each row's cost: standard deviation of its logarithm; shape [num_rows].
        apart_us: For each measured single layer, the cost in microseconds predicted without the measurements of the
            layer's families; nan for all other rows. Shape [num_rows].
    """

    measured: np.ndarray
    costs_us: np.ndarray
    spread: np.ndarray
    apart_us: np.ndarray


@dataclass(frozen=True)
class Adaptation:
    """The sequences that could be measured on a new system, with their costs on base systems.

    Attributes:
        dataset: Data set with a row for each sequence, encoded for the new system. The costs in it are those on the
            first base system, nan where it has none.
        anchors_us: Anchor of each row in microseconds, its assumed cost until it is measured; shape [num_rows].
        bases: Names of the base systems, first the one whose costs are the anchors.
        ratios: log(cost / anchor) of each row on the other base systems, shape [num_rows, num_bases - 1], or
            [num_rows, 0] if there are no bases.
        usages: Models whose sequences may be measured.
        construction: For each model that was measured whole on the base system, its latency divided by its estimate
            from the latencies of its sequences there; shape [num_models].
        sequences: Layer sequences of the models by signature.
    """

    dataset: Dataset
    anchors_us: np.ndarray
    bases: tuple[str, ...]
    ratios: np.ndarray
    usages: tuple[Usage, ...]
    construction: np.ndarray
    sequences: Mapping[str, LayerSequence]

    @cached_property
    def _used(self) -> dict[str, Usage]:
        return {usage.name: usage for usage in self.usages}

    def to_check(self, learnt: AdaptationState, protocol: Protocol, budget_s: float) -> list[tuple[int, Usage]]:
        """Draws models at random that are to be measured whole, so that errors of their estimates become known.

        Only models that are not measured whole yet are drawn, and no more than the time allows.

        Args:
            learnt: Measured and predicted costs on the new system so far.
            protocol: Measurement protocol, which determines how long a measurement takes.
            budget_s: Seconds that measuring all drawn models may take.

        Returns:
            For each drawn model, the row of the data set that is the whole model, and the model's sequences.
        """
        models = [m for m in self.dataset.models if m.name in self._used]
        chosen = []
        for number in np.random.default_rng(0).permutation(len(models)).tolist():
            row = models[number].row
            seconds = estimated_group_seconds([float(learnt.costs_us[row])], 0, 0, protocol)
            if not learnt.measured[row] and seconds <= budget_s:
                chosen.append((row, self._used[models[number].name]))
                budget_s -= seconds
        return chosen

    @cached_property
    def row_of(self) -> dict[str, int]:
        """Position of each row in the data set, by the signature of its sequence."""
        return {signature: row for row, signature in enumerate(self.dataset.signatures)}

    @cached_property
    def open(self) -> np.ndarray:
        """Whether each row of the data set occurs in a model, so that it can be measured; shape [num_rows]."""
        used = np.zeros(len(self.dataset), dtype=bool)
        for usage in self.usages:
            used[usage.rows] = True
        return used

    @cached_property
    def weights_bytes(self) -> np.ndarray:
        """Size in bytes of the weights of each row that occurs in a model, 0 for other rows; shape [num_rows]."""
        return self._of_open(weight_bytes)

    @cached_property
    def reads_bytes(self) -> np.ndarray:
        """Bytes of weights that one run of each row reads, 0 for rows that occur in no model; shape [num_rows]."""
        return self._of_open(read_bytes)

    def _of_open(self, nbytes: Callable[[LayerSequence], int]) -> np.ndarray:
        """Returns a size in bytes of each row that occurs in a model, 0 for other rows; shape [num_rows].

        Args:
            nbytes: Function that computes the size of a row from its layer sequence.
        """
        sizes = np.zeros(len(self.dataset), dtype=np.int64)
        for row in np.flatnonzero(self.open):
            sizes[row] = nbytes(self.sequences[self.dataset.signatures[row]])
        return sizes

    def shares(self, learnt: AdaptationState) -> np.ndarray:
        """Returns the share of a model's latency that each row makes up, averaged over the models; shape [num_rows]."""
        return importance(self.usages, learnt.costs_us)

    def prices(self, learnt: AdaptationState, protocol: Protocol) -> BenchmarkTimeModel:
        """Returns what predicts how long it takes to measure rows of the data set on the new system."""
        host = self.dataset.system.host
        return BenchmarkTimeModel(learnt.costs_us, self.weights_bytes, self.reads_bytes, host, protocol)

    def learn(self, latencies_us: Mapping[str, float]) -> AdaptationState:
        """Predicts the costs of all rows of the data set from measurements on the new system.

        Args:
            latencies_us: Latency measured on the new system in microseconds, by signature; signatures that have no row
                in the data set are ignored.
        """
        exact = np.full(len(self.dataset), np.nan)
        for signature, latency_us in latencies_us.items():
            if signature in self.row_of:
                exact[self.row_of[signature]] = latency_us
        measured = ~np.isnan(exact)
        single = measured & ~self.dataset.whole & (self.dataset.encoded.lengths == 1)
        apart = np.full(len(self.dataset), np.nan)
        if not single.any():
            costs = np.where(measured, exact, self.anchors_us)
            return AdaptationState(measured, costs, np.full(len(self.dataset), UNKNOWN_SPREAD), apart)
        shares = importance(self.usages, self.anchors_us)
        costs, spread = self._transfer.predict_costs(exact, single, ~self.dataset.whole, shares)
        for split in leave_families_out(by_lineage(self.dataset), _FOLDS):
            learnt_from, judged = single & split.train_rows, single & split.test_rows
            if learnt_from.any() and judged.any():
                apart[judged] = self._transfer.predict_costs(exact, learnt_from, judged, shares)[0][judged]
        return AdaptationState(measured, np.where(measured, exact, costs), spread, apart)

    @cached_property
    def _transfer(self) -> CostTransfer:
        return CostTransfer(anchored(self.dataset.encoded, self.anchors_us), self.ratios)

    def expected(self, learnt: AdaptationState) -> Expected:
        """Returns the errors that are to be expected of the models' estimates on the new system.

        The estimate of each model that is measured whole, from the costs of its layers, measured or predicted, and a
        context correction that is fitted without it, is compared with the model's latency. While few are measured
        whole, two other errors count as well: that of costs which are predicted for layers of held-out lineages, and
        that of a model's estimate from its measured layers on the base system.
        """
        checked = {m.name for m in self.dataset.models if learnt.measured[m.row] and m.name in self._used}
        adapted = self.adapted(learnt)
        ratios = estimated_ratios(adapted, {i for i, model in enumerate(adapted.models) if model.name in checked})
        found = np.array([1 / ratio - 1 for ratio in ratios.values()])
        composed = self._composed_errors(learnt) if len(found) < _LEAST_CHECKED else np.empty(0)
        missing = 1 - min(1.0, len(found) / _LEAST_CHECKED)
        if missing and not len(composed):
            return Expected(float("nan"), float("nan"))

        def mean(of: Callable[[np.ndarray], np.ndarray]) -> float:
            parts = [(1 - missing, found), (missing, composed)]
            return float(sum(weight * of(np.abs(errors)).mean() for weight, errors in parts if weight))

        return Expected(mean(lambda errors: errors), mean(lambda errors: errors <= _WITHIN))

    def _composed_errors(self, learnt: AdaptationState) -> np.ndarray:
        """Returns possible relative errors of the estimates of all models, shape [num_errors].

        Each model contributes several: one for each pair of a relative error from `sum_errors`, which applies to the
        part of the model's latency that is not measured, and a ratio from `construction`.
        """
        errors = self.sum_errors(learnt)[:, None]
        ratios = self.construction if len(self.construction) else np.ones(1)
        errors_of_models = [np.empty(0)]
        for usage in self.usages if len(errors) else ():
            costs = learnt.costs_us[usage.rows]
            share = 1 - costs[learnt.measured[usage.rows]].sum() / costs.sum()
            errors_of_models.append(((1 + share * errors) / ratios - 1).ravel())
        return np.concatenate(errors_of_models)

    def sum_errors(self, learnt: AdaptationState) -> np.ndarray:
        """Returns, for each model, the relative error of the sum of predicted costs over its measured layers.

        The error is relative to the sum of the measured costs of these layers. Each layer is predicted
        without the measurements of its families. Models of which too small a share is measured are left out.
        """
        errors = []
        for usage in self.usages:
            costs = learnt.costs_us[usage.rows]
            rows = usage.rows[~np.isnan(learnt.apart_us[usage.rows])]
            if learnt.costs_us[rows].sum() >= _LEAST_MEASURED_SHARE * costs.sum():
                errors.append(learnt.apart_us[rows].sum() / learnt.costs_us[rows].sum() - 1)
        return np.array(errors)

    def _judges(self, learnt: AdaptationState) -> bool:
        """Returns whether enough rows of enough families are measured on the new system to judge regressors on them."""
        rows = np.flatnonzero(learnt.measured & ~self.dataset.whole & ~self.dataset.sampled)
        families = set().union(*(self.dataset.families[row] for row in rows))
        return len(rows) >= _LEAST_TO_JUDGE and len(families) > LEAST_FAMILIES

    def adapted(self, learnt: AdaptationState) -> Dataset:
        """Returns a data set of the new system, with measured costs and, for rows without one, predicted costs.

        Regressors are judged on the measured rows; rows with predicted costs are only trained on. While too little is
        measured, rows with predicted costs are judged on as well, and intervals are about as wide as those of the base
        system. The latency of a model that is not measured whole is its latency on the base system, times the ratio of
        the sum of its layers' costs on the new system to that sum on the base system; models are left out of which too
        little is measured, unless too little is measured altogether.
        """
        dataset, costs = self.dataset, learnt.costs_us.copy()
        judges = self._judges(learnt)
        least_share = 1 - _LEAST_MEASURED_SHARE if judges else 0.0
        models = []
        for model in dataset.models:
            total = costs[model.rows].sum()
            share = costs[model.rows][learnt.measured[model.rows]].sum() / total
            on_base = not np.isnan(model.latency_us)
            if not learnt.measured[model.row]:
                ratio = model.latency_us / self.anchors_us[model.rows].sum() if on_base else 1.0
                costs[model.row] = total * ratio
            if learnt.measured[model.row] or (on_base and share >= least_share):
                models.append(replace(model, latency_us=float(costs[model.row])))
        return replace(
            dataset,
            latencies_us=costs,
            sampled=dataset.sampled | ~(learnt.measured | dataset.whole) if judges else dataset.sampled,
            models=tuple(models),
        )


def load_adaptation(
    store: Store, bases: Sequence[str], system: System, *, lowering: str = "", names: Set[str] | None = None
) -> Adaptation:
    """Loads the sequences that could be measured on a new system, with their costs on base systems.

    Args:
        store: Store with the models and the measurements on the base systems.
        bases: Names of the base systems. The costs on the one with the most measurements are the anchors; if there are
            no bases, analytical bounds are.
        system: The new system, with its capabilities.
        lowering: Lowering of the models to use; empty for the models of which every layer was measured on some base
            system.
        names: Names of the models of that lowering to use; None for all.

    Raises:
        UnknownSystemError: The store lacks one of the base systems.
        TrainingError: There are too few sequences to learn from.
    """
    by_base = {base: store.latencies_us(store.system(base).name) for base in bases}
    wholes = store.whole_model_signatures()
    names_of_bases = sorted(by_base, key=lambda base: -len(by_base[base].keys() - wholes))
    known = [by_base[base] for base in names_of_bases]
    measured = set().union(*known)
    models = [m for m in store.models() if m.granularity == 1 and m.family]
    if lowering:
        models = [m for m in models if m.lowering == lowering and (names is None or m.name in names)]
    elif known:
        models = [m for m in models if measured >= {segment.signature for segment in m.segments}]
    segments = {segment.signature for model in models for segment in model.segments}
    whole = {model.whole for model in models}
    unknown = dict.fromkeys(segments | whole | measured, np.nan)
    dataset = dataset_of(store, system, unknown | (known[0] if known else {}))
    row_of = {signature: row for row, signature in enumerate(dataset.signatures)}
    sequences = store.sequences(segments)
    whole_models = store.sequences(whole)
    first = {model.whole: model for model in models}
    usages = tuple(
        Usage(
            model.name,
            np.array([row_of[segment.signature] for segment in model.segments]),
            model_read_bytes((sequences[s.signature] for s in model.segments), whole_models[model.whole]),
        )
        for model in first.values()
    )
    known_models = {
        i
        for i, m in enumerate(dataset.models)
        if np.isfinite(m.latency_us) and np.isfinite(dataset.latencies_us[m.rows]).all()
    }
    on_models = np.array(list(estimated_ratios(dataset, known_models).values()), dtype=np.float64)
    costs = base_costs(dataset, dict(zip(names_of_bases[1:], known[1:], strict=True)))
    return Adaptation(
        dataset,
        costs.anchors_us,
        (*names_of_bases[:1], *costs.others),
        costs.ratios,
        usages,
        on_models,
        sequences,
    )
