"""Evaluation across systems: how well costs on a system are predicted that is new, and models that are new as well.

A system is held out together with all systems of its microarchitecture, and its costs are predicted from the other
systems: by facts about its processor, and after so many minutes of measuring, replayed on what was measured. Each
is judged on models whose lineage is known there, on models that only the other systems have measured, and on models of
lineages that no system has measured. The context correction is fitted to models that are known by then; baselines have
none. Features contain the measured rates of the system, also where nothing but facts is used; only predictions for
lineages that no system has measured depend on them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from statistics import geometric_mean
from typing import Any

import numpy as np

from costmodel.errors import MissingExtraError, TrainingError, UnknownSystemError
from costmodel.features.schema import SCHEMA
from costmodel.measure.protocol import Protocol
from costmodel.progress import Progress, reported
from costmodel.store.store import Store
from costmodel.systems.system import System
from costmodel.training.adaptation import Adaptation, AdaptationState, load_adaptation
from costmodel.training.context_correction import fit_correction_of, layers_of_model
from costmodel.training.dataset import Dataset
from costmodel.training.evaluation.held_out import errors_of
from costmodel.training.evaluation.replay import measurable, replayed
from costmodel.training.evaluation.splits import Split, leave_families_out
from costmodel.training.extrapolation import extrapolated_state
from costmodel.training.lineages import by_lineage
from costmodel.training.regressors.lightgbm_regressor import LightGBMRegressor

try:
    from joblib import Parallel, delayed
except ModuleNotFoundError as error:
    raise MissingExtraError("evaluation", "train") from error

__all__ = ["AcrossSystems", "Judgement", "evaluate_across"]

# Minutes of measuring after which predictions are judged.
MINUTES = (0.5, 2.0, 10.0)
# Number of whole models that the affine baseline is fitted to, and how often they are drawn.
_AFFINE_MODELS, _AFFINE_DRAWS = 10, 5
_LEAST_AFFINE = 2  # fewer models determine no line
# Smallest number of models measured end to end on which a system is judged.
_LEAST_JUDGED = 4
# Share of its analytical bound from which a layer counts as bound by memory.
_MOSTLY = 0.5

_MEMORY_SHARE = SCHEMA.names.index("memory_share")


@dataclass(frozen=True, slots=True)
class Judgement:
    """The errors of the predicted latencies of models on a system, relative to their measured end-to-end latencies.

    Attributes:
        method: What predicted: "facts", "0.5 min" of measuring, or the name of a baseline.
        lineages: Which models are judged: those that may be measured on the system ("known"), those of lineages that
            only the bases have measured ("unmeasured"), or those of lineages that neither has measured ("unseen").
        models: Number of predictions; a model counts for each group of lineages, or draw of ten models, in which it is
            predicted.
        error: Mean absolute relative error.
        within_10pct: Share of the models whose error is at most 10%.
        bias: Geometric mean of predicted over measured latency.
        kendall_tau: Rank correlation of predicted and measured latencies; None for fewer than two models.
        expected: Error that `costmodel adapt` would have expected, for known lineages; None if it expects none.
    """

    method: str
    lineages: str
    models: int
    error: float
    within_10pct: float
    bias: float
    kendall_tau: float | None
    expected: float | None = None


@dataclass(frozen=True, slots=True)
class AcrossSystems:
    """How well a system's costs are predicted from systems of other microarchitectures.

    Attributes:
        system: The system that is held out.
        bases: The systems that it is predicted from.
        judgements: A judgement for each method and kind of lineages.
    """

    system: str
    bases: tuple[str, ...]
    judgements: tuple[Judgement, ...]

    def to_dict(self) -> dict[str, Any]:
        """Returns the result as JSON-serialisable data."""
        return asdict(self)


def evaluate_across(
    store: Store,
    system: System,
    bases: Sequence[System],
    *,
    minutes: Sequence[float] = MINUTES,
    folds: int = 4,
    jobs: int = 1,
    protocol: Protocol | None = None,
    progress: Progress | None = None,
) -> AcrossSystems:
    """Evaluates predictions for a system that is held out with its microarchitecture.

    Args:
        store: Store with the measurements of all systems.
        system: The system to hold out.
        bases: Systems to predict from; those of the same microarchitecture are left out.
        minutes: Minutes of measuring after which predictions are judged.
        folds: Number of groups in which lineages are held out.
        jobs: Number of groups that are evaluated in parallel.
        protocol: Measurement protocol, which determines how long measuring takes; by default `Protocol()`.
        progress: Called with (groups done, groups in total, name of the system).

    Raises:
        TrainingError: No base is left, or too few models are measured.
    """
    others = [base for base in bases if _microarchitecture(base) != _microarchitecture(system)]
    if not others:
        raise TrainingError(
            f"{system.name} can only be predicted from systems of another microarchitecture: name one more system"
        )
    latencies_us = store.latencies_us(system.name)
    adaptation = measurable(load_adaptation(store, [base.name for base in others], system), latencies_us)
    held_out = _HeldOut(adaptation, latencies_us, tuple(others), tuple(minutes), protocol or Protocol())
    if np.isfinite(held_out.wholes_us).sum() < _LEAST_JUDGED:
        raise TrainingError(
            f"fewer than {_LEAST_JUDGED} models are measured end to end on {system.name}, too few to judge "
            "predictions: measure more with `costmodel survey`"
        )
    splits = leave_families_out(by_lineage(adaptation.dataset), folds)
    groups = Parallel(n_jobs=jobs, prefer="threads", return_as="generator")(
        delayed(held_out.predict)(split) for split in splits
    )
    found: dict[tuple[str, str], list[_Predicted]] = {}
    for _, group in zip(reported(splits, lambda _: system.name, progress), groups, strict=True):
        for predicted in group:
            found.setdefault((predicted.method, predicted.lineages), []).append(predicted)
    judgements = [
        _judgement(adaptation.dataset, parts) for parts in found.values() if any(part.measured_us for part in parts)
    ]
    return AcrossSystems(system.name, adaptation.bases, tuple(judgements))


@dataclass(frozen=True, slots=True)
class _Predicted:
    """Predictions of a method for some models, made while a group of lineages is held out.

    Models are numbered by their position in the data set. All times are in microseconds.

    Attributes:
        method: What predicted.
        lineages: Which models are predicted, as in `Judgement`.
        costs_us: For each model, the predicted costs of its sequences in isolation, shape [num_sequences].
        measured_us: Measured latency of each of these models.
        known_us: Latencies of models of other lineages that are known by then, to which the context correction is
            fitted; with none, there is no correction.
        fitted_us: For each of these other models, the costs of its sequences that the correction starts from; None for
            those that are predicted while the other model's group is held out, as `predict_held_out` does it.
        expected: Error that `costmodel adapt` would have expected; None if it expects none.
    """

    method: str
    lineages: str
    costs_us: Mapping[int, np.ndarray]
    measured_us: Mapping[int, float]
    known_us: Mapping[int, float] = field(default_factory=dict)
    fitted_us: Mapping[int, np.ndarray] | None = None
    expected: float | None = None

    def latencies_us(self, dataset: Dataset, groups: Sequence["_Predicted"]) -> list[float]:
        """Returns the predicted latencies of the models, in the order of `costs_us`.

        Args:
            dataset: Data set with the models.
            groups: Predictions of the same method for all groups of lineages, each held out in its turn.
        """
        fitted = self.fitted_us
        if fitted is None:
            fitted = {number: costs for group in groups for number, costs in group.costs_us.items()}
        known = tuple(
            replace(model, latency_us=self.known_us.get(number, np.nan)) for number, model in enumerate(dataset.models)
        )
        correction = fit_correction_of(
            replace(dataset, models=known),
            {
                number: costs
                for number, costs in fitted.items()
                if number in self.known_us and not np.isnan(costs).any()
            },
        )
        return [
            float(layers_of_model(dataset, number, costs).corrected_us(correction).sum())
            for number, costs in self.costs_us.items()
        ]


def _judgement(dataset: Dataset, parts: Sequence[_Predicted]) -> Judgement:
    """Judges the models of all groups together; a model that is predicted in several groups counts several times."""
    predicted = np.concatenate([part.latencies_us(dataset, parts) for part in parts])
    measured = np.concatenate([list(part.measured_us.values()) for part in parts])
    errors = errors_of(predicted, measured)
    assert errors.mape is not None
    assert errors.within_10pct is not None
    expected = [part.expected for part in parts if part.expected is not None and not np.isnan(part.expected)]
    return Judgement(
        method=parts[0].method,
        lineages=parts[0].lineages,
        models=len(measured),
        error=errors.mape,
        within_10pct=errors.within_10pct,
        bias=geometric_mean(predicted / measured),
        kendall_tau=errors.kendall_tau,
        expected=float(np.mean(expected)) if expected else None,
    )


@dataclass(frozen=True)
class _HeldOut:
    """A system that is held out, with everything that predicts it.

    Attributes:
        adaptation: Adaptation from the bases to the system, restricted to what is measured there.
        latencies_us: Latencies on the system in microseconds, by signature.
        bases: The base systems.
        minutes: Minutes of measuring after which predictions are judged.
        protocol: Measurement protocol.
    """

    adaptation: Adaptation
    latencies_us: Mapping[str, float]
    bases: tuple[System, ...]
    minutes: tuple[float, ...]
    protocol: Protocol

    @cached_property
    def wholes_us(self) -> np.ndarray:
        """Measured latency of each model in microseconds, nan for models that cannot be judged; shape [num_models]."""
        dataset = self.adaptation.dataset
        judged = {usage.name for usage in self.adaptation.usages}
        return np.array([
            self.latencies_us.get(dataset.signatures[model.row], np.nan) if model.name in judged else np.nan
            for model in dataset.models
        ])  # fmt: skip

    def predict(self, split: Split) -> list[_Predicted]:
        """Returns the predictions of all methods, with the families of a split as the lineages that are held out."""
        return list(self._predicted(split))

    def _predicted(self, split: Split) -> Iterator[_Predicted]:
        """Yields the predictions of all methods, with the families of a split as the lineages that are held out."""
        dataset, held = self.adaptation.dataset, set(split.models)
        names = {dataset.models[number].name for number in held}
        here = replace(self.adaptation, usages=tuple(u for u in self.adaptation.usages if u.name not in names))
        wholes = {number: us for number, us in enumerate(self.wholes_us.tolist()) if not np.isnan(us)}
        known = {number: us for number, us in wholes.items() if number not in held}
        unmeasured = {number: us for number, us in wholes.items() if number in held}

        def of_all(method: str, state: AdaptationState, expected: float | None = None) -> Iterator[_Predicted]:
            adapted = here.adapted(state)
            by_name = {model.name: model.latency_us for model in adapted.models}
            known_us = {
                number: by_name[model.name]
                for number, model in enumerate(dataset.models)
                if model.name in by_name and number not in held
            }
            costs, unseen = adapted.latencies_us, self._of_unseen(adapted.latencies_us, split)
            apart = np.where(np.isnan(state.apart_us), costs, state.apart_us)
            yield _Predicted(
                method, "known", self._of(costs, known), known, known_us, self._of(costs, known_us), expected
            )
            yield _Predicted(
                method, "unmeasured", self._of(costs, unmeasured), unmeasured, known_us, self._of(apart, known_us)
            )
            yield _Predicted(method, "unseen", self._of(unseen, unmeasured), unmeasured, known_us)

        def of_scratch(minutes: str, costs_us: np.ndarray) -> _Predicted:
            known_us = {
                number: float(costs_us[model.row])
                for number, model in enumerate(dataset.models)
                if not np.isnan(costs_us[model.row]) and number not in held
            }
            costs = self._of(self._of_unseen(costs_us, split), unmeasured)
            return _Predicted(f"scratch, {minutes}", "unseen", costs, unmeasured, known_us)

        with suppress(UnknownSystemError):  # nothing is known about the processor
            yield from of_all("facts", extrapolated_state(here, self.bases, here.sequences))
        yield from self._baselines(known, unmeasured)
        for minutes, state in zip(
            self.minutes, replayed(here, self.latencies_us, self.minutes, self.protocol), strict=True
        ):
            yield from of_all(f"{minutes:g} min", state, here.expected(state).error)
            yield of_scratch(f"{minutes:g} min", np.where(state.measured, state.costs_us, np.nan))
        everything = np.array([self.latencies_us.get(signature, np.nan) for signature in dataset.signatures])
        yield of_scratch("everything", everything)

    def _of(self, costs_us: np.ndarray, numbers: Iterable[int]) -> dict[int, np.ndarray]:
        """Returns the costs of the sequences of each of some models in microseconds, by the number of the model.

        Args:
            costs_us: Costs of all rows of the data set in microseconds, shape [num_rows].
            numbers: Numbers of the models.
        """
        models = self.adaptation.dataset.models
        return {number: costs_us[models[number].rows] for number in numbers}

    def _of_unseen(self, costs_us: np.ndarray, split: Split) -> np.ndarray:
        """Returns costs that a regressor predicts which has learnt from the costs of the other lineages only.

        They are nan for rows that no held-out family has.

        Args:
            costs_us: Costs to learn from in microseconds, nan where there is none; shape [num_rows].
            split: Split whose held-out families are not learnt from.
        """
        dataset = self.adaptation.dataset
        rows = split.train_rows & ~dataset.whole & ~np.isnan(costs_us)
        regressor = LightGBMRegressor(0).fit(dataset.encoded.take(rows), costs_us[rows])
        wanted = ~split.train_rows & ~dataset.whole
        part = dataset.encoded.take(wanted)
        found = np.full(len(dataset), np.nan)
        found[wanted] = part.totals(regressor.predict_us(part))
        return found

    def _baselines(self, known: Mapping[int, float], unmeasured: Mapping[int, float]) -> Iterator[_Predicted]:
        """Yields the predictions of simple ways to use the costs on the first base.

        Args:
            known: Latencies in microseconds, by the number of the model, of models that may be measured whole.
            unmeasured: Those of the models that are judged.
        """
        dataset, anchors_us = self.adaptation.dataset, self.adaptation.anchors_us

        def judged(method: str, factors: np.ndarray | float) -> _Predicted:
            return _Predicted(method, "unmeasured", self._of(anchors_us * factors, unmeasured), unmeasured)

        base = next(base for base in self.bases if base.name == self.adaptation.bases[0])
        product = base.capabilities["gemm_gflops"] / dataset.system.capabilities["gemm_gflops"]
        yield judged("ratio of products", product)
        stream = base.capabilities["memory_gbps"] / dataset.system.capabilities["memory_gbps"]
        encoded = dataset.encoded
        memory = encoded.features[:, _MEMORY_SHARE] >= _MOSTLY
        bounds = np.where(memory, stream, product) * encoded.bounds_us
        yield judged("ratio of bounds", encoded.totals(bounds) / encoded.totals(encoded.bounds_us))
        if len(known) < _LEAST_AFFINE:
            return
        sums = {number: costs.sum() for number, costs in self._of(anchors_us, range(len(dataset.models))).items()}
        random = np.random.default_rng(0)
        for _ in range(_AFFINE_DRAWS):
            drawn = random.permutation(np.array(list(known)))[:_AFFINE_MODELS].tolist()
            exact = np.array([known[number] for number in drawn])
            # Weighted, so that the relative errors are small and not only those of the largest models.
            slope, offset = np.polyfit([sums[number] for number in drawn], exact, 1, w=1 / exact)
            costs = {
                number: of_model * max(1.0, slope * sums[number] + offset) / sums[number]
                for number, of_model in self._of(anchors_us, unmeasured).items()
            }
            yield _Predicted("affine, ten models", "unmeasured", costs, unmeasured)


def _microarchitecture(system: System) -> str:
    """Returns what tells kinds of processors apart: the microarchitecture or, if it is not listed, the brand."""
    return (system.host.microarchitecture or system.host.model_name if system.host is not None else "") or system.name
