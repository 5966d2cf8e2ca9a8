"""Calibrates prediction intervals by errors on held-out families, and computes the share of models inside them."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from costmodel.errors import MissingExtraError
from costmodel.estimate.composition import combined_half_widths, summed_by_correlation
from costmodel.estimate.cost import Uncertainty
from costmodel.training.calibration import DISTANCES, Calibration, conformal_quantile
from costmodel.training.evaluation.distances import Distances
from costmodel.training.evaluation.held_out import HeldOut

try:
    from scipy.stats import rankdata
except ModuleNotFoundError as error:
    raise MissingExtraError("evaluation", "train") from error

__all__ = ["LEVELS", "CoveragePoint", "HeldOutWithDistances", "coverage_by_level", "independent_shares"]

# Nominal coverages at which intervals are checked.
LEVELS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
# Number of groups of families in which coverage is judged; each group takes a calibration with the others.
_GROUPS = 10
# Power by which the error of composition grows as models get shorter. It grows on each of six systems, most of which
# have too few short models to fit a power (docs/adr/0009, "Short models").
_CONSTRUCTION_POWER = 0.2


@dataclass(frozen=True)
class CoveragePoint:
    """Shares of layers and models inside their intervals at one nominal coverage, and widths of the intervals.

    Half-widths are in log latency. An attribute is None where there was nothing to judge.

    Attributes:
        level: Nominal coverage.
        model: Share of the models inside, with measured costs for the layers that also occur in another family.
        model_unseen: Share of the models inside, with all costs predicted.
        layer: Share of the layer sequences inside.
        model_width: Mean half-width of the intervals of `model`.
        model_unseen_width: Mean half-width of the intervals of `model_unseen`.
        layer_width: Mean half-width of the intervals of `layer`.
    """

    level: float
    model: float | None
    model_unseen: float | None
    layer: float | None
    model_width: float | None
    model_unseen_width: float | None
    layer_width: float | None


@dataclass(frozen=True)
class HeldOutWithDistances:
    """Predictions for held-out families, with the distances of the sequences to the training data.

    Attributes:
        run: Predictions of one predictor with one seed for held-out families.
        distances: Distances of the held-out sequences to the training data.
    """

    run: HeldOut
    distances: Distances

    def calibrate(self, level: float, without: Collection[str] = ()) -> Calibration:
        """Calibrates intervals by the errors on held-out families.

        Args:
            level: Nominal coverage.
            without: Families whose errors are left out, because the intervals are to be judged on them.

        Raises:
            ValueError: There are no errors of other families.
        """
        run, data = self.run, self.run.dataset
        models = np.array([i for i in run.judged_models.tolist() if data.models[i].family not in without], dtype=int)
        if data.whole_only:
            return _from_whole_models(self._errors(run.unseen_us)[models], level)
        rows = np.array([row for row in run.judged.tolist() if data.families[row].isdisjoint(without)], dtype=int)
        calibration = Calibration.fit(
            [data.kinds[row] for row in rows],
            run.rows_us[rows],
            self.distances.rows[rows],
            np.log(data.latencies_us[rows] / run.rows_us[rows]),
            level,
        )
        if not len(models):
            return calibration
        lineages = [data.models[i].family for i in models.tolist()]
        shape = Uncertainty(construction=1.0, construction_power=_CONSTRUCTION_POWER)
        constructed = (np.abs(self._errors(self._constructed_us)) / shape.construction_at(self._constructed_us))[models]
        of_composition = replace(
            shape, construction=conformal_quantile(constructed, level, independent_shares(constructed, lineages))
        )
        scores = [
            self._scores(calibration, of_composition, known=known)[models]
            for known in (False, True)  # models with measured costs where available, and without
        ]
        all_scores = np.concatenate(scores)
        correlation = conformal_quantile(all_scores, level, independent_shares(all_scores, lineages * len(scores)))
        return replace(calibration, uncertainty=replace(of_composition, correlation=correlation))

    def coverage(self, level: float) -> CoveragePoint:
        """Computes the share of models, and of layers, that lie in an interval calibrated without their family.

        Args:
            level: Nominal coverage.
        """
        run, data = self.run, self.run.dataset
        families = sorted({family for row in run.judged.tolist() for family in data.families[row]})
        families += sorted({model.family for model in data.models} - set(families))
        hits: dict[str, list[np.ndarray]] = {"model": [], "model_unseen": [], "layer": []}
        widths: dict[str, list[np.ndarray]] = {name: [] for name in hits}
        errors = {"model": self._errors(run.composed_us), "model_unseen": self._errors(run.unseen_us)}
        judged_rows = np.zeros(len(data), dtype=bool)
        for group in (set(families[start::_GROUPS]) for start in range(min(_GROUPS, len(families)))):
            try:
                calibration = self.calibrate(level, group)
            except ValueError:
                continue  # there are no errors of other families to calibrate by
            models = [i for i in run.judged_models.tolist() if data.models[i].family in group]
            for name, known in (("model", True), ("model_unseen", False)):
                of_models = self.half_widths(calibration, known=known)[models]
                hits[name].append(np.abs(errors[name])[models] <= of_models)
                widths[name].append(of_models)
            rows = np.array(
                [r for r in run.judged.tolist() if data.families[r] & group and not judged_rows[r]], dtype=int
            )
            judged_rows[rows] = True
            if not data.whole_only:
                of_rows = calibration.half_widths(
                    [data.kinds[row] for row in rows], run.rows_us[rows], self.distances.rows[rows]
                )
                hits["layer"].append(np.abs(np.log(data.latencies_us[rows] / run.rows_us[rows])) <= of_rows)
                widths["layer"].append(of_rows)
        return CoveragePoint(
            level=level,
            model=_mean(hits["model"]),
            model_unseen=_mean(hits["model_unseen"]),
            layer=_mean(hits["layer"]),
            model_width=_mean(widths["model"]),
            model_unseen_width=_mean(widths["model_unseen"]),
            layer_width=_mean(widths["layer"]),
        )

    @cached_property
    def _latencies_us(self) -> np.ndarray:
        return np.array([model.latency_us for model in self.run.dataset.models], dtype=np.float64)

    @cached_property
    def _constructed_us(self) -> np.ndarray:
        """Latency of each model in microseconds with every layer measured, shape [num_models]."""
        return np.array([costs.sum() for costs in self.run.known_us], dtype=np.float64)

    def _errors(self, predicted_us: np.ndarray) -> np.ndarray:
        """Returns log(measured latency / predicted latency) of each model, shape [num_models]."""
        return np.asarray(np.log(self._latencies_us / predicted_us))

    def _totals_us(self, *, known: bool) -> np.ndarray:
        """Returns the predicted latency of each model in microseconds, shape [num_models].

        Args:
            known: Whether layers that also occur in another family count as measured.
        """
        return self.run.composed_us if known else self.run.unseen_us

    @cached_property
    def _parts(self) -> "_ModelSequences":
        return _ModelSequences.of(self.run, self.distances)

    def _correlated_and_not(self, calibration: Calibration, *, known: bool) -> tuple[np.ndarray, np.ndarray]:
        """Returns squared half-widths of the models' intervals, for fully correlated and for uncorrelated layer errors.

        Args:
            calibration: Calibration of the layers' intervals.
            known: Whether layers that also occur in another family count as measured.

        Returns:
            Squared half-width of each model in log latency if the errors of its layers are fully correlated, shape
            [num_models]; and the same if they are uncorrelated.
        """
        parts = self._parts
        widths = calibration.half_widths(parts.kinds, parts.costs_us, parts.distances)
        totals = self._totals_us(known=known)
        with np.errstate(invalid="ignore"):
            shares = np.where(parts.known & known, 0.0, parts.costs_us * widths / totals[parts.models])
        return summed_by_correlation(shares, parts.layers, parts.owners, len(totals))

    def _scores(self, calibration: Calibration, uncertainty: Uncertainty, *, known: bool) -> np.ndarray:
        """Returns, for each model, the correlation of its layers' errors that puts its latency on the interval's edge.

        This correlation is the model's score; it is 0 if the latency lies inside the interval for any correlation. The
        interval of a larger correlation contains that of a smaller one, so that with the conformal quantile of these
        scores as the correlation, intervals have the nominal coverage (Gupta et al., 2022).

        Args:
            calibration: Calibration of the layers' intervals.
            uncertainty: Error of composition; its correlation has no effect.
            known: Whether layers that also occur in another family count as measured.
        """
        correlated, uncorrelated = self._correlated_and_not(calibration, known=known)
        totals_us = self._totals_us(known=known)
        unexplained = self._errors(totals_us) ** 2 - uncertainty.construction_at(totals_us) ** 2 - uncorrelated
        return np.asarray(np.where(unexplained > 0, unexplained / np.maximum(correlated - uncorrelated, 1e-12), 0.0))

    def half_widths(self, calibration: Calibration, *, known: bool) -> np.ndarray:
        """Returns the half-widths of the models' intervals, computed as in `costmodel.estimate.composition.half_width`.

        Args:
            calibration: Calibration of the intervals.
            known: Whether layers that also occur in another family count as measured.

        Returns:
            Half-widths in log latency, shape [num_models].
        """
        correlated, uncorrelated = self._correlated_and_not(calibration, known=known)
        return combined_half_widths(
            np.zeros(len(correlated)), correlated, uncorrelated, calibration.uncertainty, self._totals_us(known=known)
        )


@dataclass(frozen=True)
class _ModelSequences:
    """The sequences of all measured models, concatenated to arrays of shape [num_sequences].

    Attributes:
        models: Position, in the data set, of the model that each sequence belongs to.
        layers: Identifying number of each sequence, the same for equal sequences of one model and for no others.
        owners: Position of the model that each number in `layers` belongs to, shape [num_numbers].
        kinds: Kind (operator types) of each sequence.
        costs_us: Predicted cost of each sequence in microseconds.
        known: Whether each sequence also occurs in a model of another family.
        distances: Distance of each sequence to the training data.
    """

    models: np.ndarray
    layers: np.ndarray
    owners: np.ndarray
    kinds: tuple[str, ...]
    costs_us: np.ndarray
    known: np.ndarray
    distances: np.ndarray

    @classmethod
    def of(cls, run: HeldOut, distances: Distances) -> "_ModelSequences":
        data = run.dataset
        rows = np.concatenate([np.zeros(0, dtype=int), *(model.rows for model in data.models)])
        models = np.repeat(np.arange(len(data.models)), [len(model.rows) for model in data.models])
        unique, layers = np.unique(np.stack([models, rows]), axis=1, return_inverse=True)
        return cls(
            models=models,
            layers=layers.reshape(-1),
            owners=unique[0],
            kinds=tuple(data.kinds[row] for row in rows.tolist()),
            costs_us=np.concatenate([np.zeros(0), *run.models_us]),
            known=np.concatenate([np.zeros(0, dtype=bool), *data.known_elsewhere]),
            distances=np.concatenate([np.zeros(0), *distances.models]),
        )


def _from_whole_models(errors: np.ndarray, level: float) -> Calibration:
    """Calibrates intervals by errors of whole models alone; layers and sums of layers get the same half-width.

    Args:
        errors: log(measured latency / predicted latency) of each model.
        level: Nominal coverage.
    """
    width = conformal_quantile(np.abs(errors), level)
    return Calibration(level, by_distance=(width,) * (len(DISTANCES) + 1), uncertainty=Uncertainty(construction=0.0))


def _mean(parts: list[np.ndarray]) -> float | None:
    values = np.concatenate(parts) if parts else np.zeros(0)
    return float(values.mean()) if len(values) else None


def independent_shares(values: np.ndarray, groups: Sequence[str]) -> np.ndarray:
    """Returns the number of independent values that each value counts as, because values of one group are alike.

    A group of n values counts as n / (1 + (n - 1) r) independent ones (Kish, 1965). r is the intraclass correlation of
    the ranks of the values, estimated by analysis of variance: 0 if groups do not matter, 1 if they decide all.

    Args:
        values: The values, shape [num_values].
        groups: Group of each value.
    """
    _, group, sizes = np.unique(np.asarray(groups), return_inverse=True, return_counts=True)
    number, groups_number = len(values), len(sizes)
    if groups_number < 2 or number == groups_number:
        return np.asarray(1 / sizes[group])
    ranks = rankdata(values)
    means = np.bincount(group, ranks) / sizes
    between = float((sizes * (means - ranks.mean()) ** 2).sum()) / (groups_number - 1)
    within = float(((ranks - means[group]) ** 2).sum()) / (number - groups_number)
    typical_size = (number - float((sizes**2).sum()) / number) / (groups_number - 1)
    spread = between + (typical_size - 1) * within
    correlation = min(1.0, max(0.0, (between - within) / spread)) if spread > 0 else 1.0
    return np.asarray(1 / (1 + (sizes[group] - 1) * correlation))


def coverage_by_level(judged: HeldOutWithDistances, levels: Iterable[float] = LEVELS) -> tuple[CoveragePoint, ...]:
    """Computes the share of models, and of layers, inside their intervals at each of several nominal coverages."""
    return tuple(judged.coverage(level) for level in levels)
