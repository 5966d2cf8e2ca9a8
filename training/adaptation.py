"""A system by another one: what the base measured, times factors learnt from the little that is measured on both.

Layers of which the base has a cost keep it as their anchor, and trees learn log(cost / anchor) from features. Each of a
few members leaves some families out, so that their difference says how sure the answer is, and what a member says of
the families that it has not seen says how far off it is.
"""

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from costmodel.duration import group_s
from costmodel.features.tabular import Encoded
from costmodel.groups import read_bytes, weight_bytes
from costmodel.measurement import Protocol
from costmodel.sequence import LayerSequence
from costmodel.store import Store
from costmodel.systems import System
from costmodel.training.anchors import anchored, anchors
from costmodel.training.boosted import Hyperparameters, LightGBMRegressor
from costmodel.training.dataset import Dataset, dataset_of
from costmodel.training.regressors import Regressor
from costmodel.training.splits import LEAST_FAMILIES, leave_families_out
from costmodel.training.suggestion import Prices, Usage, importance

__all__ = ["Adaptation", "Expected", "Learnt", "load_adaptation"]

MEMBERS = 5
# Fewer layers than that are no evidence of anything but a common factor.
_LEAST_TO_LEARN = 30
# What is to be said of log(cost / anchor) while nothing is measured.
_UNKNOWN_SPREAD = 0.3
# A model of which less is measured does not say how far off its sum would be.
_LEAST_MEASURED_SHARE = 0.3
# As many models that are measured whole say how far off the others are.
_LEAST_CHECKED = 10
_NEAR = 0.1
# Trees for hundreds of rows, grown again after every round of measuring.
_MEMBER = Hyperparameters(rounds=300, leaves=15)


@dataclass(frozen=True)
class Expected:
    """How far off estimates of the models are to be expected.

    Attributes:
        error: Mean relative error.
        within_10pct: Share of them that is off by at most 10%.
    """

    error: float
    within_10pct: float


@dataclass(frozen=True)
class Learnt:
    """What is known of the new system at some moment.

    Attributes:
        measured: Rows that are measured there, shape [num_rows].
        costs_us: Measured where they are, else anchors times what was learnt; shape [num_rows].
        spread: How far the members are apart, in log cost; shape [num_rows].
        apart_us: Of measured rows, the cost that was told by the members which have not seen their families; nan of
            all others. Shape [num_rows].
    """

    measured: np.ndarray
    costs_us: np.ndarray
    spread: np.ndarray
    apart_us: np.ndarray


@dataclass(frozen=True)
class Adaptation:
    """Everything that could be measured on a new system, with what another one says of it.

    Attributes:
        dataset: Encoded for the new system. Costs are those of the base, and nan where it has none.
        anchors_us: What stands for each row until it is measured, shape [num_rows].
        usages: The models whose sequences may be measured.
        construction: For models that the base has measured whole, whole over sum of sequences there.
        sequences: What each signature stands for.
        make: Of the regressor of a member, from a seed.
    """

    dataset: Dataset
    anchors_us: np.ndarray
    usages: tuple[Usage, ...]
    construction: np.ndarray
    sequences: Mapping[str, LayerSequence]
    make: Callable[[int], Regressor] = lambda seed: LightGBMRegressor(seed, hyperparameters=_MEMBER)

    @cached_property
    def _used(self) -> dict[str, Usage]:
        return {usage.name: usage for usage in self.usages}

    def to_check(self, learnt: Learnt, protocol: Protocol, budget_s: float) -> list[tuple[int, Usage]]:
        """Models to measure whole, so that one sees how far off estimates are: drawn by chance, within a time.

        Returns:
            The row of each as a whole, and the model.
        """
        models = [m for m in self.dataset.models if m.name in self._used]
        found = []
        for number in np.random.default_rng(0).permutation(len(models)).tolist():
            row = models[number].row
            seconds = group_s([float(learnt.costs_us[row])], 0, 0, protocol)
            if not learnt.measured[row] and seconds <= budget_s:
                found.append((row, self._used[models[number].name]))
                budget_s -= seconds
        return found

    @cached_property
    def row_of(self) -> dict[str, int]:
        """Row of each signature."""
        return {signature: row for row, signature in enumerate(self.dataset.signatures)}

    @cached_property
    def open(self) -> np.ndarray:
        """Rows that a model uses, and that can be measured because of that; shape [num_rows]."""
        used = np.zeros(len(self.dataset), dtype=bool)
        for usage in self.usages:
            used[usage.rows] = True
        return used

    @cached_property
    def weights_bytes(self) -> np.ndarray:
        """Weights of each open row, 0 of the others; shape [num_rows]."""
        return self._of_open(weight_bytes)

    @cached_property
    def reads_bytes(self) -> np.ndarray:
        """Of the weights of each open row those that a run reads; shape [num_rows]."""
        return self._of_open(read_bytes)

    def _of_open(self, nbytes: Callable[[LayerSequence], int]) -> np.ndarray:
        found = np.zeros(len(self.dataset), dtype=np.int64)
        for row in np.flatnonzero(self.open):
            found[row] = nbytes(self.sequences[self.dataset.signatures[row]])
        return found

    @cached_property
    def _anchored(self) -> Encoded:
        return anchored(self.dataset.encoded, self.anchors_us)

    def shares(self, learnt: Learnt) -> np.ndarray:
        """How much of the models' latencies each row is; shape [num_rows]."""
        return importance(self.usages, learnt.costs_us)

    def prices(self, learnt: Learnt, protocol: Protocol) -> Prices:
        """How long measuring takes."""
        host = self.dataset.system.host
        return Prices(learnt.costs_us, self.weights_bytes, self.reads_bytes, host, protocol)

    def learn(self, latencies_us: Mapping[str, float]) -> Learnt:
        """What measurements on the new system say of all rows.

        Args:
            latencies_us: By signature; those that are no row are passed over.
        """
        exact = np.full(len(self.dataset), np.nan)
        for signature, latency_us in latencies_us.items():
            if signature in self.row_of:
                exact[self.row_of[signature]] = latency_us
        measured = ~np.isnan(exact)
        single = measured & ~self.dataset.whole & (self.dataset.encoded.lengths == 1)
        if single.sum() < _LEAST_TO_LEARN:
            factor = float(np.median(exact[single] / self.anchors_us[single])) if single.any() else 1.0
            costs = np.where(measured, exact, self.anchors_us * factor)
            spread = np.full(len(self.dataset), _UNKNOWN_SPREAD)
            return Learnt(measured, costs, spread, np.full(len(self.dataset), np.nan))
        told, apart = self._members(exact, single)
        costs = np.where(measured, exact, np.exp(np.median(told, axis=0)))
        return Learnt(measured, costs, told.std(axis=0), apart)

    def _members(self, exact: np.ndarray, single: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Log costs by each member, shape [num_members, num_rows]; and costs told without having seen the family."""
        told = []
        apart = np.full(len(self.dataset), np.nan)
        for number, split in enumerate(leave_families_out(self.dataset, MEMBERS)):
            kept = single & split.kept
            if kept.sum() < _LEAST_TO_LEARN / 2:
                continue
            regressor = self.make(number).fit(self._anchored.take(kept), exact[kept])
            costs = self._anchored.totals(regressor.predict_us(self._anchored))
            told.append(np.log(costs))
            judged = single & split.judged
            apart[judged] = costs[judged]
        return np.array(told), apart

    def expected(self, learnt: Learnt) -> Expected:
        """The error to expect of the models.

        By those that are measured whole, if they are enough: what is known of their layers, measured or told, beside
        what the models take. Before that by what was told of layers without their families, and by what sums of layers
        are off on the base.
        """
        checked = [m for m in self.dataset.models if learnt.measured[m.row] and m.name in self._used]
        if len(checked) >= _LEAST_CHECKED:
            off = np.array([learnt.costs_us[m.rows].sum() / learnt.costs_us[m.row] - 1 for m in checked])
        else:
            off = self._composed_errors(learnt)
        if not len(off):
            return Expected(float("nan"), float("nan"))
        return Expected(float(np.abs(off).mean()), float((np.abs(off) <= _NEAR).mean()))

    def _composed_errors(self, learnt: Learnt) -> np.ndarray:
        """Errors of each model, for every pair of an error of a sum and a ratio of a whole to its sum."""
        errors = self.sum_errors(learnt)[:, None]
        ratios = self.construction if len(self.construction) else np.ones(1)
        found = [np.empty(0)]
        for usage in self.usages if len(errors) else ():
            costs = learnt.costs_us[usage.rows]
            share = 1 - costs[learnt.measured[usage.rows]].sum() / costs.sum()
            found.append(((1 + share * errors) / ratios - 1).ravel())
        return np.concatenate(found)

    def sum_errors(self, learnt: Learnt) -> np.ndarray:
        """Relative errors of sums over the measured layers of each model, told without its family; of some of them."""
        found = []
        for usage in self.usages:
            costs = learnt.costs_us[usage.rows]
            rows = usage.rows[~np.isnan(learnt.apart_us[usage.rows])]
            if learnt.costs_us[rows].sum() >= _LEAST_MEASURED_SHARE * costs.sum():
                found.append(learnt.apart_us[rows].sum() / learnt.costs_us[rows].sum() - 1)
        return np.array(found)

    def _judges(self, learnt: Learnt) -> bool:
        """Whether enough of enough families is measured to judge on."""
        rows = np.flatnonzero(learnt.measured & ~self.dataset.whole & ~self.dataset.sampled)
        families = set().union(*(self.dataset.families[row] for row in rows))
        return len(rows) >= _LEAST_TO_LEARN and len(families) > LEAST_FAMILIES

    def adapted(self, learnt: Learnt) -> Dataset:
        """The data set of the new system: measured rows are judged on, transferred ones train.

        While hardly anything is measured, transferred rows are judged on, too: intervals are about those of the base
        then. The latency of a model that is not measured whole is what the base's was, times what its layers cost here
        over what they cost there.
        """
        dataset, costs = self.dataset, learnt.costs_us.copy()
        models = []
        for model in dataset.models:
            total = costs[model.rows].sum()
            share = costs[model.rows][learnt.measured[model.rows]].sum() / total
            on_base = not np.isnan(model.latency_us)
            if not learnt.measured[model.row]:
                ratio = model.latency_us / self.anchors_us[model.rows].sum() if on_base else 1.0
                costs[model.row] = total * ratio
            if learnt.measured[model.row] or (on_base and share >= 1 - _LEAST_MEASURED_SHARE):
                models.append(replace(model, latency_us=float(costs[model.row])))
        return replace(
            dataset,
            latencies_us=costs,
            sampled=dataset.sampled | ~(learnt.measured | dataset.whole) if self._judges(learnt) else dataset.sampled,
            models=tuple(models),
        )


def load_adaptation(
    store: Store, base: str | None, system: System, *, lowering: str = "", names: Set[str] | None = None
) -> Adaptation:
    """What could be measured on a system.

    Args:
        store: Where the models are, and what was measured on the base.
        base: Name of the system that stands for the new one at first; None for analytical bounds.
        system: The new one, with its capabilities.
        lowering: Of the models that count; empty for those of which the base has measured every layer.
        names: Of the models that count; None for all.

    Raises:
        UnknownSystemError: Nothing is known of the base.
        TrainingError: There is too little to learn from.
    """
    known = store.latencies_us(store.system(base).name) if base is not None else {}
    models = [m for m in store.models() if m.granularity == 1 and m.family]
    if lowering:
        models = [m for m in models if m.lowering == lowering and (names is None or m.name in names)]
    elif known:
        models = [m for m in models if known.keys() >= {piece.signature for piece in m.pieces}]
    pieces = {piece.signature for model in models for piece in model.pieces}
    whole = {model.whole for model in models}
    dataset = dataset_of(store, system, dict.fromkeys(pieces | whole, np.nan) | known)
    row_of = {signature: row for row, signature in enumerate(dataset.signatures)}
    sequences = store.sequences(pieces)
    first = {model.whole: model for model in models}
    usages = tuple(
        Usage(
            model.name,
            np.array([row_of[piece.signature] for piece in model.pieces]),
            sum(read_bytes(sequences[piece.signature]) for piece in model.pieces),
        )
        for model in first.values()
    )
    ratios = np.array([m.latency_us / dataset.latencies_us[m.rows].sum() for m in dataset.models], dtype=np.float64)
    return Adaptation(dataset, anchors(dataset), usages, ratios[np.isfinite(ratios)], sequences)
