"""The job behind `costmodel adapt`: a new system in minutes, starting from another one."""

import math
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from costmodel.bench import Bench, BenchReport, Progress
from costmodel.groups import Group
from costmodel.jobs import decompose_models, put_models
from costmodel.measurement import Protocol
from costmodel.runtimes import Runtime, lowering_key
from costmodel.store import Store
from costmodel.systems import System

if TYPE_CHECKING:
    from costmodel.training.adaptation import Adaptation, Learnt
    from costmodel.training.dataset import Dataset
    from costmodel.training.suggestion import Portion

__all__ = ["AdaptReport", "Point", "adapt"]

# The regressor that is trained at the end: in seconds, from rows of single layers.
_LEARNER = "lightgbm"

# Seconds of the first round; later ones take a share of the time before them, since the curve bends less and less.
_FIRST_ROUND_S = 10.0
_SHARE_OF_PAST = 0.25
# Of each round, for whole models, which say how far off estimates are.
_SHARE_OF_CHECKS = 0.15
# The curve is flat when as many rounds brought less than this share of the error.
_FLAT_ROUNDS = 5
_FLAT_SHARE = 0.02


@dataclass(frozen=True)
class Point:
    """One point of the curve of expected error.

    Attributes:
        seconds: Since measuring began.
        measured: Sequences that are measured on the new system.
        share: Of the latency of the models, on average, that is in these.
        expected_error: Mean relative error to expect of estimates of the models; None while nothing says it.
        expected_within_10pct: Share of the models to expect within 10%; None while nothing says it.
        round_error: How far off what had been told of the last round was: the error of the sum, by time; None before
            the first.
    """

    seconds: float
    measured: int
    share: float
    expected_error: float | None
    expected_within_10pct: float | None
    round_error: float | None


@dataclass
class AdaptReport:
    """What adapting did.

    Attributes:
        system: The new system.
        base: The one that it was learnt from.
        curve: Expected error by time.
        reason: Why measuring ended: "budget", "flat", "complete" or "interrupted".
        bench: What was measured.
        version: Of the bundle that answers now.
        path: Where that is.
        evaluation: Its accuracy on families left out, where that was measured.
        run_id: In MLflow; None if it was not recorded.
        warnings: What the reader should know, sentences.
    """

    system: str
    base: str
    curve: list[Point] = field(default_factory=list)
    reason: str = ""
    bench: BenchReport = field(default_factory=BenchReport)
    version: str = ""
    path: Path = Path()
    evaluation: dict[str, Any] = field(default_factory=dict)
    run_id: str | None = None
    warnings: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The document that `costmodel adapt --json` prints."""
        return {
            "system": self.system,
            "base": self.base,
            "curve": [asdict(point) for point in self.curve],
            "ended": self.reason,
            "measured": self.bench.measured,
            "failed": self.bench.failed,
            "predictor": {"name": _LEARNER, "version": self.version},
            "path": str(self.path),
            "evaluation": self.evaluation,
            "run_id": self.run_id,
            "warnings": list(self.warnings),
        }


def adapt(
    store: Store,
    system: System,
    runtime: Runtime,
    base: str,
    bundles: Path,
    *,
    budget_s: float,
    tracking: Path | None = None,
    target: str | None = None,
    cache: Path | None = None,
    protocol: Protocol | None = None,
    seed: int = 0,
    told: Callable[[Point], None] = lambda point: None,
    progress: Callable[[str], Progress] | None = None,
    clock_s: Callable[[], float] = time.monotonic,
    bench: Callable[..., Bench] = Bench,
) -> AdaptReport:
    """Measure what helps most, learn after every round, and put a regressor in charge at the end.

    Args:
        store: What is known of the base and the models, and where results go.
        system: This host, under its name.
        runtime: What runs the networks.
        base: Name of the system to start from.
        bundles: Folder of trained regressors.
        budget_s: Seconds for choosing and measuring; the regressor is trained after that.
        tracking: Folder of MLflow's default store; None for no tracking.
        target: Name of a corpus, or a path, of the models that count; by default those that the base measured.
        cache: Folder of lowered graphs; needed with a target.
        protocol: How often is timed; by default as in any bench (half as often is half as long, and errors grow).
        seed: Of the regressor.
        told: Called with each point of the curve as soon as it is known.
        progress: Gives what to tell about the stage of that name.
        clock_s: A monotonic clock, in seconds.
        bench: Makes what measures.

    Raises:
        UnknownSystemError: Nothing is known of the base.
        TrainingError: There is too little to learn from.
        ModelError: The target is none, or none of its models can be used.
        HostBusyError: Another process is measuring.
        SystemMismatchError: The name belongs to another machine, runtime or setting.
    """
    from costmodel.training.adaptation import load_adaptation

    tell = progress or (lambda _: lambda done, total, what: None)
    report = AdaptReport(system.name, base)
    of_base = store.system(base)
    protocol = protocol or Protocol()
    lowering = lowering_key(runtime, system.settings.level)
    names = None
    if target is not None:
        assert cache is not None
        names = _put_target(store, target, runtime, system, cache, report, tell("lowering models"))
    elif of_base.settings.level == system.settings.level:
        lowering = ""  # another host's vectors, or another release: the layers are the same until one knows better
    with bench(store, system, runtime, protocol=protocol) as open_bench:
        adaptation = load_adaptation(store, base, open_bench.system, lowering=lowering, names=names)
        rounds = _Rounds(store, adaptation, open_bench, protocol, clock_s, budget_s, report)
        with suppress(KeyboardInterrupt):
            report.reason = "interrupted"
            report.reason = rounds.run(told, tell("measuring"))
    if not report.curve:  # stopped before there was anything to go on with
        raise KeyboardInterrupt
    learnt = adaptation.learn(store.latencies_us(system.name))
    _put_in_charge(report, adaptation.adapted(learnt), bundles, tracking, seed, tell("training"))
    return report


def _put_target(
    store: Store, target: str, runtime: Runtime, system: System, cache: Path, report: AdaptReport, progress: Progress
) -> set[str]:
    """Store what the models of a target are made of; gives their names."""
    from costmodel.training.corpus import corpus_models

    level = system.settings.level
    models = decompose_models(
        corpus_models(target), runtime, level, cache, refused=report.bench.failed, progress=progress
    )
    put_models(store, models, lowering_key(runtime, level))
    return {item.model.name for item in models}


def _put_in_charge(
    report: AdaptReport, dataset: "Dataset", bundles: Path, tracking: Path | None, seed: int, progress: Progress
) -> None:
    from costmodel.training.regressors import LEARNERS
    from costmodel.training.train import train_on

    trained = train_on(
        dataset,
        bundles,
        tracking=tracking,
        seeds=(seed,),
        learners={_LEARNER: LEARNERS[_LEARNER]},
        baselines={},
        facts={"base": report.base, "measured": report.curve[-1].measured},
        progress=progress,
    )
    report.version, report.path, report.evaluation = trained.champion.version, trained.champion.path, trained.evaluation
    report.run_id, report.warnings = trained.run_id, trained.warnings


@dataclass
class _Rounds:
    """Rounds of choosing, measuring and learning, until the budget is spent or the curve is flat."""

    store: Store
    adaptation: "Adaptation"
    bench: Bench
    protocol: Protocol
    clock_s: Callable[[], float]
    budget_s: float
    report: AdaptReport

    def run(self, told: Callable[[Point], None], progress: Progress) -> str:
        """Go on until there is a reason to stop; gives it."""
        begin_s = self.clock_s()
        off: float | None = None
        while True:
            learnt = self.adaptation.learn(self.store.latencies_us(self.bench.system.name))
            point = self._point(self.clock_s() - begin_s, learnt, off)
            self.report.curve.append(point)
            told(point)
            left_s = self.budget_s - point.seconds
            if left_s <= 0:
                return "budget"
            if _is_flat(self.report.curve):
                return "flat"
            round_s = min(left_s, max(_FIRST_ROUND_S, _SHARE_OF_PAST * point.seconds))
            portions = self._chosen(learnt, (1 - _SHARE_OF_CHECKS) * round_s)
            if not portions:
                return "complete"
            # The checks first: they are a part of the round that must not fall victim to its end.
            groups = [*self._checks(learnt, _SHARE_OF_CHECKS * round_s), *map(self._group, portions)]
            self.report.bench += self.bench.run(groups, budget_s=left_s, progress=progress)
            off = self._off(learnt, portions)

    def _point(self, seconds: float, learnt: "Learnt", off: float | None) -> Point:
        expected = self.adaptation.expected(learnt)
        shares = self.adaptation.shares(learnt)
        measured = learnt.measured & self.adaptation.open
        return Point(
            seconds=seconds,
            measured=int(measured.sum()),
            share=float(shares[measured].sum()),
            expected_error=_number(expected.error),
            expected_within_10pct=_number(expected.within_10pct),
            round_error=off,
        )

    def _chosen(self, learnt: "Learnt", seconds: float) -> "list[Portion]":
        from costmodel.training.suggestion import choose, worth

        left = self.adaptation.open & ~learnt.measured
        for row in map(self.adaptation.row_of.get, self.report.bench.failed):
            if row is not None:
                left[row] = False
        values = worth(self.adaptation.shares(learnt), learnt.spread)
        return choose(self.adaptation.usages, left, values, self.adaptation.prices(learnt, self.protocol), seconds)

    def _checks(self, learnt: "Learnt", seconds: float) -> list[Group]:
        """Some models from end to end, as the sequences that they are."""
        usages = {
            self.adaptation.dataset.signatures[row]: usage
            for row, usage in self.adaptation.to_check(learnt, self.protocol, seconds)
        }
        wholes = self.store.sequences(usages.keys() - self.report.bench.failed.keys())
        return [
            Group(label=usages[s].name, sequences=(), whole=whole, footprint_bytes=usages[s].footprint_bytes)
            for s, whole in wholes.items()
        ]

    def _group(self, portion: "Portion") -> Group:
        signatures = [self.adaptation.dataset.signatures[row] for row in portion.usage.unique]
        wanted = {self.adaptation.dataset.signatures[row] for row in portion.rows}
        return Group(
            label=portion.usage.name,
            sequences=tuple(self.adaptation.sequences[signature] for signature in signatures),
            footprint_bytes=portion.usage.footprint_bytes,
            company=set(signatures) - wanted,
        )

    def _off(self, before: "Learnt", portions: "Iterable[Portion]") -> float | None:
        """How far off sums over the portions were that were told before these were measured; weighted by time."""
        signatures = self.adaptation.dataset.signatures
        rows = {row for portion in portions for row in portion.rows.tolist()}
        known = self.store.latencies_us(self.bench.system.name, [signatures[row] for row in rows])
        pairs = [(before.costs_us[row], known[signatures[row]]) for row in rows if signatures[row] in known]
        if not pairs:
            return None
        return float(sum(abs(one - other) for one, other in pairs) / sum(other for _, other in pairs))


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value


def _is_flat(curve: "list[Point]") -> bool:
    """Whether the last rounds brought next to nothing."""
    errors = [point.expected_error for point in curve if point.expected_error is not None]
    if len(errors) <= _FLAT_ROUNDS:
        return False
    return min(errors[-_FLAT_ROUNDS:]) > (1 - _FLAT_SHARE) * min(errors[:-_FLAT_ROUNDS])
