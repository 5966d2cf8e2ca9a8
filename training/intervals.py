"""Intervals from the errors on held-out families, and how many models lie inside them."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from costmodel.composition import Uncertainty
from costmodel.training.calibration import DISTANCES, Calibration, conformal_quantile
from costmodel.training.distances import Distances
from costmodel.training.held_out import HeldOut

__all__ = ["LEVELS", "Judged", "coverage_by_level"]

# Nominal coverages at which intervals are checked.
LEVELS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
# Parts that families are judged in: each takes a calibration with the others.
_PARTS = 10


@dataclass(frozen=True)
class Judged:
    """What a predictor said of held-out families, and how far these were from what it had seen.

    Attributes:
        run: Its predictions.
        distances: Of what was held out from what was trained on.
    """

    run: HeldOut
    distances: Distances

    def calibrate(self, level: float, without: Collection[str] = ()) -> Calibration:
        """Intervals from held-out errors.

        Args:
            level: Nominal coverage.
            without: Families that are to be judged by them.

        Raises:
            ValueError: Nothing is left to learn from.
        """
        run, data = self.run, self.run.dataset
        models = np.array([i for i in run.judged_models.tolist() if data.models[i].family not in without], dtype=int)
        if data.whole_only:
            return _of_wholes(self._errors(run.unseen_us)[models], level)
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
            for known in (False, True)  # as the product answers, more measured or less
        ]
        correlation = conformal_quantile(np.concatenate(scores), level)
        return replace(calibration, uncertainty=Uncertainty(correlation, construction))

    def coverage(self, level: float) -> dict[str, float | None]:
        """Share of models and layers whose latency lies in an interval that was calibrated without their family.

        Returns:
            `model`, with measured costs where another family has the layer; `model_unseen`, with predicted ones only;
            `layer`; and the mean half-widths of these as `model_width` and so on. None where there is nothing to judge.
        """
        run, data = self.run, self.run.dataset
        families = sorted({family for row in run.judged.tolist() for family in data.families[row]})
        families += sorted({model.family for model in data.models} - set(families))
        hits: dict[str, list[np.ndarray]] = {"model": [], "model_unseen": [], "layer": []}
        widths: dict[str, list[np.ndarray]] = {name: [] for name in hits}
        errors = {"model": self._errors(run.composed_us), "model_unseen": self._errors(run.unseen_us)}
        seen = np.zeros(len(data), dtype=bool)
        for part in (set(families[start::_PARTS]) for start in range(min(_PARTS, len(families)))):
            try:
                calibration = self.calibrate(level, part)
            except ValueError:
                continue  # nobody else was judged
            models = [i for i in run.judged_models.tolist() if data.models[i].family in part]
            for name, known in (("model", True), ("model_unseen", False)):
                of_models = self._half_widths(calibration, known=known)[models]
                hits[name].append(np.abs(errors[name])[models] <= of_models)
                widths[name].append(of_models)
            rows = np.array([r for r in run.judged.tolist() if data.families[r] & part and not seen[r]], dtype=int)
            seen[rows] = True
            if not data.whole_only:
                of_rows = calibration.half_widths(
                    [data.kinds[row] for row in rows], run.rows_us[rows], self.distances.rows[rows]
                )
                hits["layer"].append(np.abs(np.log(data.latencies_us[rows] / run.rows_us[rows])) <= of_rows)
                widths["layer"].append(of_rows)
        return {name: _mean(found) for name, found in hits.items()} | {
            f"{name}_width": _mean(found) for name, found in widths.items()
        }

    @cached_property
    def _latencies_us(self) -> np.ndarray:
        return np.array([model.latency_us for model in self.run.dataset.models], dtype=np.float64)

    @cached_property
    def _constructed_us(self) -> np.ndarray:
        """The models' latencies with every layer measured."""
        return np.array([costs.sum() for costs in self.run.known_us], dtype=np.float64)

    def _errors(self, predicted_us: np.ndarray) -> np.ndarray:
        return np.asarray(np.log(self._latencies_us / predicted_us))

    @cached_property
    def _parts(self) -> "_Parts":
        return _Parts.of(self.run, self.distances)

    def _together_and_apart(self, calibration: Calibration, *, known: bool) -> tuple[np.ndarray, np.ndarray]:
        """Squared half-widths of models if the errors of their layers are wholly correlated, and if not at all."""
        parts, run = self._parts, self.run
        widths = calibration.half_widths(parts.kinds, parts.costs_us, parts.distances)
        totals = run.composed_us if known else run.unseen_us
        with np.errstate(invalid="ignore"):
            shares = np.where(parts.known & known, 0.0, parts.costs_us * widths / totals[parts.models])
        of_layers = np.bincount(parts.layers, shares, len(parts.owners))
        together, apart = (np.bincount(parts.owners, of, len(totals)) for of in (of_layers, of_layers**2))
        return together**2, apart

    def _scores(self, calibration: Calibration, construction: float, *, known: bool) -> np.ndarray:
        """For each model, the correlation with which its latency lies at the edge of its interval; 0 for inside anyway.

        Intervals are nested in the correlation, so that the conformal quantile of these covers (Gupta et al., 2022).
        """
        together, apart = self._together_and_apart(calibration, known=known)
        run = self.run
        missing = self._errors(run.composed_us if known else run.unseen_us) ** 2 - construction**2 - apart
        return np.asarray(np.where(missing > 0, missing / np.maximum(together - apart, 1e-12), 0.0))

    def _half_widths(self, calibration: Calibration, *, known: bool) -> np.ndarray:
        """Of the models, as `costmodel.composition.half_width` has them."""
        together, apart = self._together_and_apart(calibration, known=known)
        uncertainty = calibration.uncertainty
        squares = uncertainty.correlation * together + (1 - uncertainty.correlation) * apart
        return np.asarray(np.sqrt(np.maximum(0.0, squares) + uncertainty.construction**2))


@dataclass(frozen=True)
class _Parts:
    """The sequences of all models, one after another.

    Attributes:
        models: Of each sequence, the place of its model.
        layers: Of each, a number that it shares with its like in the same model.
        owners: Of each of these numbers, the place of the model.
        kinds: Of each.
        costs_us: Predicted, of each.
        known: Whether another family has it.
        distances: Of each from what was trained on.
    """

    models: np.ndarray
    layers: np.ndarray
    owners: np.ndarray
    kinds: tuple[str, ...]
    costs_us: np.ndarray
    known: np.ndarray
    distances: np.ndarray

    @classmethod
    def of(cls, run: HeldOut, distances: Distances) -> "_Parts":
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


def _of_wholes(errors: np.ndarray, level: float) -> Calibration:
    """Intervals where no errors of layers are known: a sum of layers may be as far off as whole models were."""
    width = conformal_quantile(np.abs(errors), level)
    return Calibration(level, by_distance=(width,) * (len(DISTANCES) + 1), uncertainty=Uncertainty(construction=0.0))


def _mean(parts: list[np.ndarray]) -> float | None:
    found = np.concatenate(parts) if parts else np.zeros(0)
    return float(found.mean()) if len(found) else None


def coverage_by_level(judged: Judged, levels: Iterable[float] = LEVELS) -> list[dict[str, Any]]:
    """For each nominal coverage the shares inside their intervals, as `Judged.coverage` says them."""
    return [{"level": level, **judged.coverage(level)} for level in levels]
