"""The job of `costmodel adapt`: adapts the cost models of measured systems to another system within minutes."""

import math
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from costmodel.jobs.bench_report import BenchReport
from costmodel.jobs.benchmark_session import BenchmarkSession
from costmodel.jobs.decomposed_models import decompose_models, put_models
from costmodel.measure.groups import Group
from costmodel.measure.protocol import Protocol
from costmodel.progress import Progress, Stages, no_progress
from costmodel.runtimes.base import Runtime, lowering_key
from costmodel.store.store import Store
from costmodel.systems.system import System

if TYPE_CHECKING:
    from costmodel.training.adaptation import Adaptation, AdaptationState
    from costmodel.training.dataset import Dataset
    from costmodel.training.evaluation.results import EvaluationReport
    from costmodel.training.suggestion import MeasurementBatch

__all__ = ["AdaptReport", "Point", "adapt"]

# Regressor to train at the end; it trains in seconds on single layers.
_LEARNER = "lightgbm"

# Seconds of the first round. Later rounds take a share of the time so far, since the curve bends less and less.
_FIRST_ROUND_S = 10.0
_SHARE_OF_PAST = 0.25
# Share of each round for measuring whole models, whose latencies show the error of estimates.
_SHARE_OF_CHECKS = 0.15


@dataclass(frozen=True)
class Point:
    """One point of the curve of expected error over time.

    Attributes:
        seconds: Seconds since measuring began.
        measured: Number of sequences that have been measured on the new system so far.
        share: Share of a model's latency that the measured sequences make up, averaged over the models.
        expected_error: Expected mean relative error of the models' estimates; None while it is unknown.
        expected_within_10pct: Expected share of the models whose estimate is within 10% of the latency; None while it
            is unknown.
        round_error: Relative error, weighted by latency, of the costs that had been predicted for the sequences of the
            last round before it measured them; None before the first round, or if the last round measured none.
    """

    seconds: float
    measured: int
    share: float
    expected_error: float | None
    expected_within_10pct: float | None
    round_error: float | None


@dataclass
class AdaptReport:
    """The result of adapting a cost model to a new system.

    Attributes:
        system: Name of the new system.
        bases: Names of the base systems, from whose measurements adaptation started.
        curve: Expected error over time, one point for each round and one for the beginning.
        reason: Why measuring ended: the budget was spent ("budget"), everything was measured ("complete"), or the user
            pressed Ctrl-C ("interrupted").
        bench: Report of all measurements together.
        version: Version of the regressor that became the champion of the new system.
        path: Folder of the new champion's bundle.
        evaluation: Results of the new champion on held-out lineages; None until it is trained.
        run_id: Identifier of the MLflow run; None if it was not recorded.
        warnings: Sentences about limits of the new champion.
    """

    system: str
    bases: tuple[str, ...]
    curve: list[Point] = field(default_factory=list)
    reason: str = ""
    bench: BenchReport = field(default_factory=BenchReport)
    version: str = ""
    path: Path = Path()
    evaluation: "EvaluationReport | None" = None
    run_id: str | None = None
    warnings: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Returns the JSON document that `costmodel adapt --json` prints."""
        return {
            "system": self.system,
            "bases": list(self.bases),
            "curve": [asdict(point) for point in self.curve],
            "ended": self.reason,
            "measured": self.bench.measured,
            "failed": self.bench.failed,
            "predictor": {"name": _LEARNER, "version": self.version},
            "path": str(self.path),
            "evaluation": {} if self.evaluation is None else self.evaluation.to_dict(),
            "run_id": self.run_id,
            "warnings": list(self.warnings),
        }


def adapt(
    store: Store,
    system: System,
    runtime: Runtime,
    bases: Sequence[str],
    bundles: Path,
    *,
    budget_s: float,
    tracking: Path | None = None,
    target: str | None = None,
    cache: Path | None = None,
    protocol: Protocol | None = None,
    seed: int = 0,
    on_point: Callable[[Point], None] = lambda point: None,
    progress: Stages | None = None,
    clock_s: Callable[[], float] = time.monotonic,
    bench: Callable[..., BenchmarkSession] = BenchmarkSession,
) -> AdaptReport:
    """Measures in rounds the sequences that improve estimates most, then trains a regressor and makes it the champion.

    Args:
        store: Store that has the base systems and the models, and receives the results.
        system: This host, described as a system; results are stored under its name.
        runtime: Runtime that lowers the models and runs their layer sequences.
        bases: Names of the base systems, at least one, from whose measurements adaptation starts.
        bundles: Folder of trained regressors.
        budget_s: Seconds for choosing and measuring sequences; training takes further time.
        tracking: Folder of MLflow's default store, in which the training is recorded; None to record nothing.
        target: Name of a corpus, or path of a model or folder, whose estimates are to become accurate; by default the
            models that are measured on the base systems.
        cache: Folder in which lowered graphs are cached; required if `target` is given.
        protocol: Measurement protocol; by default `Protocol()`. A protocol with half the laps takes half the time, but
            errors are larger.
        seed: Seed with which the regressor is trained.
        on_point: Function that is called with each new point of the curve of expected error.
        progress: Function that takes the name of a stage of the job and returns its progress callback; None to report
            nothing.
        clock_s: Function that returns the time of a monotonic clock in seconds.
        bench: Function that makes a benchmark session from a store, a system, a runtime and a protocol.

    Raises:
        UnknownSystemError: The store does not know a base system.
        TrainingError: There is too little data to learn from.
        ModelError: The target has no models, or none that can be used.
        HostBusyError: Another process is measuring.
        SystemMismatchError: The store has a system of that name with another machine, runtime or settings.
    """
    from costmodel.training.adaptation import load_adaptation

    stage = progress or no_progress
    report = AdaptReport(system.name, tuple(bases))
    levels = {store.system(base).settings.level for base in bases}
    protocol = protocol or Protocol()
    lowering = lowering_key(runtime, system.settings.level)
    names = None
    if target is not None:
        assert cache is not None
        names = _put_target(store, target, runtime, system, cache, report, stage("lowering models"))
    elif levels == {system.settings.level}:
        # Any lowering: layers are assumed equal on hosts with other vector units and with other runtime releases.
        lowering = ""
    with bench(store, system, runtime, protocol=protocol) as open_bench:
        adaptation = load_adaptation(store, bases, open_bench.system, lowering=lowering, names=names)
        report.bases = adaptation.bases
        rounds = _Rounds(store, adaptation, open_bench, protocol, clock_s, budget_s, report)
        with suppress(KeyboardInterrupt):
            report.reason = "interrupted"
            report.reason = rounds.run(on_point, stage("measuring"))
    if not report.curve:  # interrupted before the first point: there is nothing to train on
        raise KeyboardInterrupt
    state = adaptation.learn(store.latencies_us(system.name))
    _train_champion(report, adaptation.adapted(state), bundles, tracking, seed, stage("training"))
    return report


def _put_target(
    store: Store, target: str, runtime: Runtime, system: System, cache: Path, report: AdaptReport, progress: Progress
) -> set[str]:
    """Lowers and cuts the models of a target, stores their layer sequences, and returns the names of the models."""
    from costmodel.training.corpus import corpus_models

    level = system.settings.level
    models = decompose_models(
        corpus_models(target), runtime, level, cache, refused=report.bench.failed, progress=progress
    )
    put_models(store, models, lowering_key(runtime, level))
    return {item.model.name for item in models}


def _train_champion(
    report: AdaptReport, dataset: "Dataset", bundles: Path, tracking: Path | None, seed: int, progress: Progress
) -> None:
    from costmodel.training.regressors.registry import LEARNERS
    from costmodel.training.train import train_on

    trained = train_on(
        dataset,
        bundles,
        tracking=tracking,
        seeds=(seed,),
        learners={_LEARNER: LEARNERS[_LEARNER]},
        baselines={},
        facts={"bases": list(report.bases), "measured": report.curve[-1].measured},
        progress=progress,
    )
    report.version, report.path, report.evaluation = trained.champion.version, trained.champion.path, trained.evaluation
    report.run_id, report.warnings = trained.run_id, trained.warnings


@dataclass
class _Rounds:
    """The loop of `adapt`, which in each round chooses sequences, measures them and learns their costs."""

    store: Store
    adaptation: "Adaptation"
    bench: BenchmarkSession
    protocol: Protocol
    clock_s: Callable[[], float]
    budget_s: float
    report: AdaptReport

    def run(self, on_point: Callable[[Point], None], progress: Progress) -> str:
        """Repeats rounds until there is a reason to stop; returns the reason as in `AdaptReport.reason`."""
        begin_s = self.clock_s()
        round_error: float | None = None
        while True:
            state = self.adaptation.learn(self.store.latencies_us(self.bench.system.name))
            point = self._point(self.clock_s() - begin_s, state, round_error)
            self.report.curve.append(point)
            on_point(point)
            left_s = self.budget_s - point.seconds
            if left_s <= 0:
                return "budget"
            round_s = min(left_s, max(_FIRST_ROUND_S, _SHARE_OF_PAST * point.seconds))
            batches = self._chosen(state, (1 - _SHARE_OF_CHECKS) * round_s)
            if not batches:
                return "complete"
            # Checks come first, so that they are measured even if the budget ends within the round.
            groups = [*self._checks(state, _SHARE_OF_CHECKS * round_s), *map(self._group, batches)]
            self.report.bench += self.bench.run(groups, budget_s=left_s, progress=progress)
            round_error = self._prediction_error(state, batches)

    def _point(self, seconds: float, state: "AdaptationState", round_error: float | None) -> Point:
        expected = self.adaptation.expected(state)
        shares = self.adaptation.shares(state)
        measured = state.measured & self.adaptation.open
        return Point(
            seconds=seconds,
            measured=int(measured.sum()),
            share=float(shares[measured].sum()),
            expected_error=_none_if_nan(expected.error),
            expected_within_10pct=_none_if_nan(expected.within_10pct),
            round_error=round_error,
        )

    def _chosen(self, state: "AdaptationState", seconds: float) -> "list[MeasurementBatch]":
        from costmodel.training.suggestion import choose, value_of_measuring

        left = self.adaptation.open & ~state.measured
        for row in map(self.adaptation.row_of.get, self.report.bench.failed):
            if row is not None:
                left[row] = False
        values = value_of_measuring(self.adaptation.shares(state), state.spread)
        return choose(self.adaptation.usages, left, values, self.adaptation.prices(state, self.protocol), seconds)

    def _checks(self, state: "AdaptationState", seconds: float) -> list[Group]:
        """Returns groups that check estimates by measuring randomly drawn whole models, at most `seconds` in total."""
        usages = {
            self.adaptation.dataset.signatures[row]: usage
            for row, usage in self.adaptation.to_check(state, self.protocol, seconds)
        }
        wholes = self.store.sequences(usages.keys() - self.report.bench.failed.keys())
        return [
            Group(label=usages[s].name, sequences=(), whole=whole, footprint_bytes=usages[s].footprint_bytes)
            for s, whole in wholes.items()
        ]

    def _group(self, batch: "MeasurementBatch") -> Group:
        signatures = [self.adaptation.dataset.signatures[row] for row in batch.usage.unique]
        wanted = {self.adaptation.dataset.signatures[row] for row in batch.rows}
        return Group(
            label=batch.usage.name,
            sequences=tuple(self.adaptation.sequences[signature] for signature in signatures),
            footprint_bytes=batch.usage.footprint_bytes,
            context_only=set(signatures) - wanted,
        )

    def _prediction_error(self, before: "AdaptationState", batches: "Iterable[MeasurementBatch]") -> float | None:
        """Returns the relative error, weighted by latency, of costs that were predicted before a round measured them.

        Args:
            before: Predicted costs, as they were before the round.
            batches: Sequences that the round was to measure.

        Returns:
            The error; None if none of the sequences was measured.
        """
        signatures = self.adaptation.dataset.signatures
        rows = {row for batch in batches for row in batch.rows.tolist()}
        known = self.store.latencies_us(self.bench.system.name, [signatures[row] for row in rows])
        pairs = [(before.costs_us[row], known[signatures[row]]) for row in rows if signatures[row] in known]
        if not pairs:
            return None
        return float(sum(abs(predicted - measured) for predicted, measured in pairs) / sum(us for _, us in pairs))


def _none_if_nan(value: float) -> float | None:
    return None if math.isnan(value) else value
