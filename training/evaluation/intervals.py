"""Calibrates intervals by the errors on held-out families, and computes the share of models that lie inside them."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from costmodel.estimate.composition import combined_half_widths, summed_by_correlation
from costmodel.estimate.cost import Uncertainty
from costmodel.training.calibration import DISTANCES, Calibration, conformal_quantile
from costmodel.training.evaluation.distances import Distances
from costmodel.training.evaluation.held_out import HeldOut

__all__ = ["LEVELS", "HeldOutWithDistances", "coverage_by_level"]

# Nominal coverages at which intervals are checked.
LEVELS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
# Number of groups of families in which coverage is judged; each group takes a calibration with the others.
_GROUPS = 10


@dataclass(frozen=True)
class HeldOutWithDistances:
    """Predictions of held-out families with their distances to the training data.

    Attributes:
        run: Held-out predictions of one predictor with one seed.
        distances: Distances of the held-out sequences to the training data.
    """

    run: HeldOut
    distances: Distances

    def calibrate(self, level: float, without: Collection[str] = ()) -> Calibration:
        """Calibrates intervals by held-out errors.

        Args:
            level: Nominal coverage.
            without: Families to leave out, because the intervals are to be judged on them.

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
        construction = conformal_quantile(np.abs(self._errors(self._constructed_us))[models], level)
        scores = [
            self._scores(calibration, construction, known=known)[models]
            for known in (False, True)  # models with measured costs where available, and without
        ]
        correlation = conformal_quantile(np.concatenate(scores), level)
        return replace(calibration, uncertainty=Uncertainty(correlation, construction))

    def coverage(self, level: float) -> dict[str, float | None]:
        """Computes the share of models and layers that lie in an interval calibrated without their family.

        Args:
            level: Nominal coverage.

        Returns:
            Shares `model`, with measured costs where another family has the layer; `model_unseen`, with predicted costs
            only; and `layer`; and the mean half-widths of their intervals as `model_width` and so on. None where there
            is nothing to judge.
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
                of_models = self._half_widths(calibration, known=known)[models]
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
        return {name: _mean(values) for name, values in hits.items()} | {
            f"{name}_width": _mean(values) for name, values in widths.items()
        }

    @cached_property
    def _latencies_us(self) -> np.ndarray:
        return np.array([model.latency_us for model in self.run.dataset.models], dtype=np.float64)

    @cached_property
    def _constructed_us(self) -> np.ndarray:
        """Latencies of the models with every layer measured, shape [num_models]."""
        return np.array([costs.sum() for costs in self.run.known_us], dtype=np.float64)

    def _errors(self, predicted_us: np.ndarray) -> np.ndarray:
        """Returns log(measured / predicted) of each model."""
        return np.asarray(np.log(self._latencies_us / predicted_us))

    @cached_property
    def _parts(self) -> "_ModelSequences":
        return _ModelSequences.of(self.run, self.distances)

    def _correlated_and_not(self, calibration: Calibration, *, known: bool) -> tuple[np.ndarray, np.ndarray]:
        """Returns squared half-widths of models for fully correlated and for uncorrelated errors of their layers."""
        parts, run = self._parts, self.run
        widths = calibration.half_widths(parts.kinds, parts.costs_us, parts.distances)
        totals = run.composed_us if known else run.unseen_us
        with np.errstate(invalid="ignore"):
            shares = np.where(parts.known & known, 0.0, parts.costs_us * widths / totals[parts.models])
        return summed_by_correlation(shares, parts.layers, parts.owners, len(totals))

    def _scores(self, calibration: Calibration, construction: float, *, known: bool) -> np.ndarray:
        """Returns for each model the correlation at which its latency lies on the edge of its interval.

        The score is 0 if the latency lies inside the interval for any correlation. Intervals are nested in the
        correlation, so that the conformal quantile of these scores gives the nominal coverage (Gupta et al., 2022).
        """
        correlated, uncorrelated = self._correlated_and_not(calibration, known=known)
        run = self.run
        unexplained = self._errors(run.composed_us if known else run.unseen_us) ** 2 - construction**2 - uncorrelated
        return np.asarray(np.where(unexplained > 0, unexplained / np.maximum(correlated - uncorrelated, 1e-12), 0.0))

    def _half_widths(self, calibration: Calibration, *, known: bool) -> np.ndarray:
        """Returns the half-widths of the models' intervals, as `costmodel.estimate.composition.half_width` does."""
        correlated, uncorrelated = self._correlated_and_not(calibration, known=known)
        return combined_half_widths(np.zeros(len(correlated)), correlated, uncorrelated, calibration.uncertainty)


@dataclass(frozen=True)
class _ModelSequences:
    """The sequences of all models, concatenated.

    Attributes:
        models: Position of the model of each sequence.
        layers: Number of each sequence, the same for equal sequences of one model.
        owners: Position of the model that each number of `layers` belongs to.
        kinds: Kind of each sequence.
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
    """Calibrates intervals by errors of whole models only, which then also apply to layers and sums of layers."""
    width = conformal_quantile(np.abs(errors), level)
    return Calibration(level, by_distance=(width,) * (len(DISTANCES) + 1), uncertainty=Uncertainty(construction=0.0))


def _mean(parts: list[np.ndarray]) -> float | None:
    values = np.concatenate(parts) if parts else np.zeros(0)
    return float(values.mean()) if len(values) else None


def coverage_by_level(judged: HeldOutWithDistances, levels: Iterable[float] = LEVELS) -> list[dict[str, Any]]:
    """Returns for each nominal coverage the shares inside their intervals."""
    return [{"level": level, **judged.coverage(level)} for level in levels]
