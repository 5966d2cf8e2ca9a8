"""Measures settings in rounds: each gets a short turn in every round, so that a noisy minute hits all alike.

Settings that are clearly worse leave after a few rounds, so that the time goes to those among which the choice is hard.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

import numpy as np

from costmodel.errors import CostModelError, TuningError
from costmodel.interruption import raise_if_interrupted
from costmodel.jobs.tuning.trial import OpenSession, Session, SessionSource
from costmodel.measure.statistics import median_interval_us
from costmodel.progress import Progress, no_progress
from costmodel.serving.tuning.answer import MeasuredPerformance
from costmodel.serving.tuning.question import TuneQuestion
from costmodel.serving.tuning.settings import Setting

__all__ = ["MOST_ROUNDS", "Rounds", "measure_in_rounds"]

# Duration of a setting's turn in seconds. It has at least two timed runs.
_TURN_S = 0.15
# After so many rounds, settings whose fastest round is more than this factor from that of the best one leave.
_LEAVING = ((2, 1.10), (3, 1.06), (5, 1.03))
# Rounds of the setting that is left at the end, and of settings among which the choice is hard.
_LEAST_ROUNDS, MOST_ROUNDS = 4, 15
# Settings whose worths are within this factor are equally good.
_EQUAL = 1.015
# Share of the time that may go into loading models, and the least number of settings that are loaded nevertheless.
_LOADING_SHARE, _LEAST_LOADED = 0.4, 3
# Least number of runs from which a percentile of theirs is taken.
_RUNS_FOR_PERCENTILE = 20


@dataclass(frozen=True)
class Rounds:
    """The result of measuring settings in rounds.

    Attributes:
        performances: What each setting did.
        failed: Reasons why settings could not be run.
        skipped: Settings for which there was no time.
    """

    performances: Mapping[Setting, MeasuredPerformance] = field(default_factory=dict)
    failed: Mapping[Setting, str] = field(default_factory=dict)
    skipped: Sequence[Setting] = ()


@dataclass
class _Trial:
    """The sessions of a setting, and the times of their runs.

    Attributes:
        sessions: The sessions, which run at the same time.
        rounds_us: For each round, the times of all runs in microseconds.
    """

    sessions: list[Session]
    rounds_us: list[list[float]] = field(default_factory=list)

    @property
    def latency_us(self) -> float:
        """Median over the rounds of the median run."""
        return median(median(times) for times in self.rounds_us)

    @property
    def fastest_us(self) -> float:
        """Median run of the fastest round, which a disturbance of some rounds does not change."""
        return min(median(times) for times in self.rounds_us)

    def take_turn(self) -> None:
        for session in self.sessions:
            session.start(_TURN_S)
        self.rounds_us.append([one for session in self.sessions for one in session.times_us()])

    def close(self) -> None:
        for session in self.sessions:
            session.close()


def measure_in_rounds(
    sources: Mapping[Setting, SessionSource],
    question: TuneQuestion,
    slo_factors: Mapping[Setting, float],
    *,
    budget_s: float,
    kept: Setting,
    open_session: OpenSession,
    at_once: int = 1,
    leaving: bool = True,
    most_rounds: int = MOST_ROUNDS,
    clock_s: Callable[[], float] = time.monotonic,
    progress: Progress | None = None,
) -> Rounds:
    """Measures settings.

    Args:
        sources: What the sessions of each setting are opened from, the most promising setting first.
        question: What the settings are chosen for.
        slo_factors: Ratio of the latency at the percentile of the latency objective to the latency, where it is known;
            it counts where the runs are too few to tell.
        budget_s: Time in seconds after which no turn begins.
        kept: Setting that is loaded in any case, and measured in at least two rounds: the one to compare with.
        open_session: Function that begins to load a session.
        at_once: Number of sessions that are loaded at the same time.
        leaving: Whether settings that are clearly worse leave early.
        most_rounds: Largest number of rounds.
        clock_s: Reads a monotonic clock, in seconds.
        progress: Called with (seconds passed, seconds in total, setting).

    Raises:
        TuningError: No setting could be run.
    """
    begin_s, report = clock_s(), progress or no_progress("")
    total = max(1, round(budget_s))

    def passed_s() -> float:
        return clock_s() - begin_s

    trials: dict[Setting, _Trial] = {}
    done: dict[Setting, _Trial] = {}
    failed: dict[Setting, str] = {}
    skipped: list[Setting] = []
    try:
        # What the others are compared with comes first.
        order = sorted(sources, key=lambda setting: setting != kept)
        while order:
            if len(trials) >= _LEAST_LOADED and passed_s() > _LOADING_SHARE * budget_s:
                skipped = order
                break
            report(min(total, round(passed_s())), total, f"loading {order[0]}")
            group = [order.pop(0)]
            while order and sum(setting.sessions for setting in (*group, order[0])) <= at_once:
                group.append(order.pop(0))
            _load(group, sources, open_session, trials, failed)
        for number in range(1, most_rounds + 1):
            for setting in list(trials):
                raise_if_interrupted()
                if number > 2 and passed_s() > budget_s:
                    break
                report(min(total, round(passed_s())), total, str(setting))
                try:
                    trials[setting].take_turn()
                except CostModelError as error:
                    failed[setting] = str(error)
                    trials.pop(setting).close()
            if passed_s() > budget_s and number >= 2:
                break
            for setting in _leaving(trials, number, question, slo_factors) if leaving else ():
                done[setting] = trials.pop(setting)
                done[setting].close()
            if leaving and number >= _LEAST_ROUNDS and _equal(trials, question):
                break
    finally:
        for trial in trials.values():
            trial.close()
    report(total, total, "")
    measured = {
        setting: _performance(setting, trial, question, slo_factors.get(setting, 1.0))
        for setting, trial in {**done, **trials}.items()
        if trial.rounds_us
    }
    if not measured:
        reasons = "; ".join(dict.fromkeys(failed.values()))
        raise TuningError(f"no setting of the model could be run: {reasons or 'the time was too short'}")
    return Rounds(measured, failed, skipped)


def _load(
    group: Sequence[Setting],
    sources: Mapping[Setting, SessionSource],
    open_session: OpenSession,
    trials: dict[Setting, _Trial],
    failed: dict[Setting, str],
) -> None:
    """Opens the sessions of settings at the same time, and adds them to `trials` or, with the reason, to `failed`."""
    opened: dict[Setting, _Trial] = {}
    for setting in group:
        opened[setting] = trials[setting] = _Trial([])
        try:
            for _ in range(setting.sessions):
                opened[setting].sessions.append(open_session(sources[setting]))
        except CostModelError as error:
            failed[setting] = str(error)
    for setting, trial in opened.items():
        try:
            for session in trial.sessions if setting not in failed else ():
                session.wait()
        except CostModelError as error:
            failed[setting] = str(error)
        if setting in failed:
            trials.pop(setting).close()


def _leaving(
    trials: Mapping[Setting, _Trial], number: int, question: TuneQuestion, slo_factors: Mapping[Setting, float]
) -> list[Setting]:
    """Returns the settings that are clearly worse than the best one after a number of rounds."""
    factor = next((factor for rounds, factor in reversed(_LEAVING) if number >= rounds), None)
    if factor is None or not trials:
        return []
    found = {
        setting: _performance(setting, trial, question, slo_factors.get(setting, 1.0))
        for setting, trial in trials.items()
    }
    meeting = [setting for setting, performance in found.items() if performance.meets is not False]

    def worth(setting: Setting) -> float:
        if not meeting:
            return found[setting].slo_latency_us or found[setting].latency_us
        return question.score(setting, trials[setting].fastest_us)

    best = min(map(worth, meeting or found))
    return [
        setting
        for setting in trials
        if worth(setting) > factor * best or (meeting and _fails(found[setting], question, factor))
    ]


def _equal(trials: Mapping[Setting, _Trial], question: TuneQuestion) -> bool:
    """Returns whether all settings that are left are equally good, so that more rounds would not help to choose."""
    worths = [question.score(setting, trial.latency_us) for setting, trial in trials.items()]
    return not worths or max(worths) <= _EQUAL * min(worths)


def _fails(performance: MeasuredPerformance, question: TuneQuestion, factor: float) -> bool:
    """Returns whether a setting misses the latency objective by more than a factor."""
    if question.slo is None or performance.slo_latency_us is None:
        return False
    return performance.slo_latency_us > factor * question.slo.latency_us


def _performance(setting: Setting, trial: _Trial, question: TuneQuestion, slo_factor: float) -> MeasuredPerformance:
    times_us = [one for times in trial.rounds_us for one in times]
    latency_us = trial.latency_us
    low_us, high_us = median_interval_us([median(times) for times in trial.rounds_us])
    if question.slo is not None and len(times_us) >= _RUNS_FOR_PERCENTILE:
        # The median over the rounds, because a disturbance of one round says nothing about the setting.
        seen_us = median(float(np.quantile(np.asarray(times), question.slo.share)) for times in trial.rounds_us)
        slo_factor = max(slo_factor, seen_us / latency_us)
    found = question.performance(setting, latency_us, (low_us, high_us), slo_factor)
    return MeasuredPerformance(
        latency_us=found.latency_us, interval_us=found.interval_us, slo_latency_us=found.slo_latency_us,
        meets=found.meets, throughput_per_s=found.throughput_per_s, usd_per_million=found.usd_per_million,
        runs=len(times_us), rounds=len(trial.rounds_us),
    )  # fmt: skip
