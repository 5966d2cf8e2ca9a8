"""Evaluation across systems: how well costs on a system are predicted that is new, and models that are new as well.

A system is held out together with all systems of its microarchitecture, and its costs are predicted from the other
systems: by facts about its processor, and after so many minutes of measuring, replayed on what was measured. Each
is judged on models whose lineage is known there, on models that only the other systems have measured, and on models of
lineages that no system has measured. The context correction is fitted to models that are known by then, and baselines
have none. Features contain the measured rates of the system, also where nothing but facts is used; only predictions for
lineages that no system has measured depend on them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from costmodel.errors import MissingExtraError, TrainingError, UnknownSystemError
from costmodel.estimate.context_correction import ContextCorrection
from costmodel.features.schema import SCHEMA
from costmodel.measure.protocol import Protocol
from costmodel.progress import Progress, reported
from costmodel.store.store import Store
from costmodel.systems.system import System
from costmodel.training.adaptation import Adaptation, AdaptationState, load_adaptation
from costmodel.training.context_correction import fit_correction_of, layers_of_model
from costmodel.training.dataset import Dataset
from costmodel.training.evaluation.replay import measurable, replayed
from costmodel.training.evaluation.splits import Split, leave_families_out
from costmodel.training.extrapolation import extrapolated_state
from costmodel.training.lineages import by_lineage
from costmodel.training.regressors.lightgbm_regressor import LightGBMRegressor

try:
    from joblib import Parallel, delayed
    from scipy.stats import kendalltau
except ModuleNotFoundError as error:
    raise MissingExtraError("evaluation", "train") from error

__all__ = ["AcrossSystems", "Judgement", "evaluate_across"]

# Minutes of measuring after which predictions are judged.
MINUTES = (0.5, 2.0, 10.0)
# Number of whole models that the affine baseline is fitted to, and how often they are drawn.
_AFFINE_MODELS, _AFFINE_DRAWS = 10, 5
_LEAST_AFFINE = 2  # fewer models determine no line
_WITHIN = 0.1
# Smallest number of models measured end to end on which a system is judged.
_LEAST_JUDGED = 4
# Share of its analytical bound from which a layer counts as bound by memory.
_MOSTLY = 0.5

_NO_CORRECTION = ContextCorrection()
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
    found: dict[tuple[str, str], list[_Judged]] = {}
    wholes = [latencies_us.get(adaptation.dataset.signatures[model.row]) for model in adaptation.dataset.models]
    if sum(us is not None for us in wholes) < _LEAST_JUDGED:
        raise TrainingError(
            f"fewer than {_LEAST_JUDGED} models are measured end to end on {system.name}, too few to judge "
            "predictions: measure more with `costmodel survey`"
        )
    splits = leave_families_out(by_lineage(adaptation.dataset), folds)
    parts = Parallel(n_jobs=jobs, prefer="threads", return_as="generator")(
        delayed(held_out.judge)(split) for split in splits
    )
    for _, part in zip(reported(splits, lambda _: system.name, progress), parts, strict=True):
        for judged in part:
            found.setdefault((judged.method, judged.lineages), []).append(judged)
    judgements = [_judgement(parts) for parts in found.values() if any(len(part.measured_us) for part in parts)]
    return AcrossSystems(system.name, adaptation.bases, tuple(judgements))


@dataclass(frozen=True, slots=True)
class _Judged:
    """Predicted and measured latencies of some models in microseconds, shape [num_models] each."""

    method: str
    lineages: str
    predicted_us: np.ndarray
    measured_us: np.ndarray
    expected: float | None = None


def _judgement(parts: Sequence[_Judged]) -> Judgement:
    """Judges the models of all folds together; a model that is judged in several folds counts several times."""
    predicted = np.concatenate([part.predicted_us for part in parts])
    measured = np.concatenate([part.measured_us for part in parts])
    ratios = predicted / measured
    expected = [part.expected for part in parts if part.expected is not None and not np.isnan(part.expected)]
    return Judgement(
        method=parts[0].method,
        lineages=parts[0].lineages,
        models=len(ratios),
        error=float(np.abs(ratios - 1).mean()),
        within_10pct=float((np.abs(ratios - 1) <= _WITHIN).mean()),
        bias=float(np.exp(np.log(ratios).mean())),
        kendall_tau=float(kendalltau(predicted, measured)[0]) if len(ratios) > 1 else None,
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

    def judge(self, split: Split) -> list[_Judged]:
        """Returns the judgements of all methods, with the families of a split as the lineages that are held out."""
        return list(self._judged(split))

    def _judged(self, split: Split) -> Iterator[_Judged]:
        """Yields the judgements of all methods, with the families of a split as the lineages that are held out."""
        dataset = self.adaptation.dataset
        held = {dataset.models[number].name for number in split.models}
        usages = {usage.name: usage for usage in self.adaptation.usages}
        wholes = {m.name: self.latencies_us.get(dataset.signatures[m.row]) for m in dataset.models if m.name in usages}
        known = {name: us for name, us in wholes.items() if us is not None and name not in held}
        unmeasured = {name: us for name, us in wholes.items() if us is not None and name in held}
        here = replace(self.adaptation, usages=tuple(usage for name, usage in usages.items() if name not in held))

        numbers = {model.name: number for number, model in enumerate(dataset.models)}

        def judged(
            method: str,
            lineages: str,
            costs_us: np.ndarray,
            models: Mapping[str, float],
            expected: float | None = None,
            correction: ContextCorrection = _NO_CORRECTION,
        ) -> _Judged:
            sums = [
                layers_of_model(dataset, numbers[name], costs_us[usages[name].rows]).corrected_us(correction).sum()
                for name in models
            ]
            return _Judged(method, lineages, np.array(sums), np.array(list(models.values())), expected)

        def of_all(method: str, state: AdaptationState, expected: float | None = None) -> Iterator[_Judged]:
            adapted = here.adapted(state)
            correction = _correction(adapted, held)
            yield judged(method, "known", state.costs_us, known, expected, correction)
            yield judged(method, "unmeasured", state.costs_us, unmeasured, None, correction)
            unseen_us = self._of_unseen(adapted.latencies_us, split)
            yield judged(method, "unseen", unseen_us, unmeasured, None, correction)

        def of_scratch(minutes: str, costs_us: np.ndarray) -> _Judged:
            models = tuple(replace(model, latency_us=float(costs_us[model.row])) for model in dataset.models)
            correction = _correction(replace(dataset, latencies_us=costs_us, models=models), held)
            unseen_us = self._of_unseen(costs_us, split)
            return judged(f"scratch, {minutes}", "unseen", unseen_us, unmeasured, None, correction)

        with suppress(UnknownSystemError):  # nothing is known about the processor
            yield from of_all("facts", extrapolated_state(here, self.bases))
        yield from self._baselines(split, judged, known, unmeasured)
        for minutes, state in zip(
            self.minutes, replayed(here, self.latencies_us, self.minutes, self.protocol), strict=True
        ):
            yield from of_all(f"{minutes:g} min", state, here.expected(state).error)
            yield of_scratch(f"{minutes:g} min", np.where(state.measured, state.costs_us, np.nan))
        everything = np.array([self.latencies_us.get(signature, np.nan) for signature in dataset.signatures])
        yield of_scratch("everything", everything)

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

    def _baselines(
        self,
        split: Split,
        judged: Callable[[str, str, np.ndarray, Mapping[str, float]], _Judged],
        known: Mapping[str, float],
        unmeasured: Mapping[str, float],
    ) -> Iterator[_Judged]:
        """Yields the judgements of simple ways to use the costs on the first base."""
        dataset, anchors_us = self.adaptation.dataset, self.adaptation.anchors_us
        base = next(base for base in self.bases if base.name == self.adaptation.bases[0])
        product = base.capabilities["gemm_gflops"] / dataset.system.capabilities["gemm_gflops"]
        yield judged("ratio of products", "unmeasured", anchors_us * product, unmeasured)
        stream = base.capabilities["memory_gbps"] / dataset.system.capabilities["memory_gbps"]
        encoded = dataset.encoded
        memory = encoded.features[:, _MEMORY_SHARE] >= _MOSTLY
        bounds = np.where(memory, stream, product) * encoded.bounds_us
        ratio = encoded.totals(bounds) / encoded.totals(encoded.bounds_us)
        yield judged("ratio of bounds", "unmeasured", anchors_us * ratio, unmeasured)
        if len(known) < _LEAST_AFFINE:
            return
        usages = {usage.name: usage for usage in self.adaptation.usages}
        random = np.random.default_rng(0)
        for _ in range(_AFFINE_DRAWS):
            drawn = random.permutation(np.array(list(known)))[:_AFFINE_MODELS].tolist()
            sums = np.array([anchors_us[usages[name].rows].sum() for name in drawn])
            exact = np.array([known[name] for name in drawn])
            # Weighted, so that the relative errors are small and not only those of the largest models.
            slope, offset = np.polyfit(sums, exact, 1, w=1 / exact)
            of_others = np.array([anchors_us[usages[name].rows].sum() for name in unmeasured])
            yield _Judged(
                "affine, ten models",
                "unmeasured",
                np.maximum(1.0, slope * of_others + offset),
                np.array([*unmeasured.values()]),
            )


def _correction(dataset: Dataset, held: Set[str]) -> ContextCorrection:
    """Fits the context correction to the models of a data set that are known with all their sequences.

    Args:
        dataset: Data set whose latencies and models have nan for what is unknown.
        held: Names of models to leave out.
    """
    costs = {number: dataset.latencies_us[model.rows] for number, model in enumerate(dataset.models)}
    unknown = [
        number
        for number, model in enumerate(dataset.models)
        if model.name in held or np.isnan(model.latency_us) or np.isnan(costs[number]).any()
    ]
    return fit_correction_of(dataset, costs, unknown)


def _microarchitecture(system: System) -> str:
    """Returns what tells kinds of processors apart: the microarchitecture or, if it is not listed, the brand."""
    return (system.host.microarchitecture or system.host.model_name if system.host is not None else "") or system.name
