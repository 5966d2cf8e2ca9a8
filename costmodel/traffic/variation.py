"""How run times vary on a machine: from run to run, from one state of the machine to the next, and after idle times.

The first two have different effects on queues. What varies from run to run averages out over the requests that wait.
A state of a shared machine (another tenant on the sibling thread, at the cache, at the memory) lasts for thousands of
requests: while it lasts, a queue that is stable on average may grow all the time.
"""

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from costmodel.measure.machine_state import QUIET
from costmodel.measure.measurement import Measurement
from costmodel.measure.tenancy import quiet_factors, slowdowns, state_shares
from costmodel.traffic.idle import ALWAYS_WARM, IdleEffects

__all__ = ["SOJOURN_S", "STEADY", "MachineState", "Speed", "Variation", "observed_variation"]

# Mean time in seconds that a machine stays in one state. Measurements have the share of time in each state; the scatter
# of these shares over short groups says that a state lasts for half a second, or longer where probes err. Between 1 and
# 60 seconds the rate of one replica hardly depends on it (docs/adr/0021).
SOJOURN_S = 1.0
_US = 1e6
_FAR = 1e4  # spans after which the schedule of a machine ends


@dataclass(frozen=True, slots=True)
class MachineState:
    """One state of a machine.

    Attributes:
        name: Name of the state, such as "quiet" or "memory".
        share: Share of the time that the machine is in this state.
        slowdown: Factor by which runs take longer in this state than on the quiet machine.
    """

    name: str
    share: float
    slowdown: float


@dataclass(frozen=True, slots=True)
class Variation:
    """How run times vary on a machine around the latency on the quiet machine.

    Attributes:
        run_factors: Equally likely factors of run times on the quiet machine; each run draws one, independently of the
            others.
        states: States of the machine; empty if it is always quiet.
        sojourn_s: Mean time that the machine stays in one state, in seconds.
        idle: Cost of an idle time for the request after it. It matters in the scenario "server" only, because in the
            others a run follows another.
    """

    run_factors: tuple[float, ...] = (1.0,)
    states: tuple[MachineState, ...] = ()
    sojourn_s: float = SOJOURN_S
    idle: IdleEffects = ALWAYS_WARM

    @property
    def mean_run_factor(self) -> float:
        """Mean of the factors of run times on the quiet machine."""
        return float(np.mean(self.run_factors))

    @property
    def mean_speed(self) -> float:
        """Work that a machine does in a second over that which the quiet machine does, on average over the states."""
        return sum(state.share / state.slowdown for state in self.states) if self.states else 1.0

    def draw(self, random: np.random.Generator, number: int) -> np.ndarray:
        """Returns factors of the times of `number` runs in random order, each equally often, shape [number]."""
        return random.permutation(np.resize(self.run_factors, number))

    def speed(self, random: np.random.Generator, span_us: float) -> "Speed":
        """Returns the speed of one machine over a span of time, in which each state has exactly its share of the time.

        A state is visited as often as its share of the span contains `sojourn_s`, at least once, in random order; the
        lengths of its visits are exponentially distributed. A span that is shorter than a sojourn therefore has shorter
        visits, because the shares count for the percentiles and a longer span would be needed to wait for them.
        """
        lengths_us: list[float] = []
        speeds: list[float] = []
        for state in self.states:
            if state.share <= 0:
                continue
            state_us = state.share * span_us
            visits = random.exponential(size=max(1, round(state_us / (self.sojourn_s * _US))))
            lengths_us += (visits * (state_us / visits.sum())).tolist()
            speeds += [1 / state.slowdown] * len(visits)
        if len(set(speeds)) <= 1 and (not speeds or speeds[0] == 1.0):
            return Speed()
        order = random.permutation(len(speeds))
        return Speed.of(np.asarray(lengths_us)[order], np.asarray(speeds)[order], self.mean_speed)


STEADY = Variation()


@dataclass
class Speed:
    """The speed of one machine over time: the work that it has done at each time if it never idles.

    Work is counted in microseconds of the quiet machine. Beyond the schedule, the machine has its mean speed. A
    schedule without knots is that of a machine that is always quiet, so that time and work are the same.

    Attributes:
        times_us: Times at which the state changes, in microseconds, from 0 on.
        work_us: Work until each of these times.
    """

    times_us: np.ndarray = field(default_factory=lambda: np.zeros(0))
    work_us: np.ndarray = field(default_factory=lambda: np.zeros(0))

    def __post_init__(self) -> None:
        """Keeps the knots as lists too, in which single values are found faster."""
        self._times: list[float] = self.times_us.tolist()
        self._work: list[float] = self.work_us.tolist()

    @classmethod
    def of(cls, lengths_us: np.ndarray, speeds: np.ndarray, mean_speed: float) -> "Speed":
        """Returns the schedule of states with these lengths in microseconds and speeds, and `mean_speed` afterwards."""
        far_us = _FAR * lengths_us.sum()
        times_us = np.concatenate([[0.0], np.cumsum([*lengths_us, far_us])])
        work_us = np.concatenate([[0.0], np.cumsum([*(lengths_us * speeds), far_us * mean_speed])])
        return cls(times_us, work_us)

    @property
    def is_steady(self) -> bool:
        """Whether the machine is always quiet."""
        return not self._times

    def work_at(self, times_us: np.ndarray) -> np.ndarray:
        """Returns the work that is possible until each of the given times, in microseconds of the quiet machine."""
        return times_us if self.is_steady else np.interp(times_us, self.times_us, self.work_us)

    def time_at(self, work_us: np.ndarray) -> np.ndarray:
        """Returns the times in microseconds until which the given work is possible; the inverse of `work_at`."""
        return work_us if self.is_steady else np.interp(work_us, self.work_us, self.times_us)

    def slowness_at(self, times_us: np.ndarray) -> np.ndarray:
        """Returns the time in microseconds that a unit of work takes at each of the given times."""
        if self.is_steady:
            return np.ones(len(times_us))
        of_segments = np.diff(self.times_us) / np.diff(self.work_us)
        place = np.searchsorted(self.times_us, times_us, side="right").clip(1, len(of_segments))
        return np.asarray(of_segments[place - 1])

    def end_us(self, start_us: float, work_us: float) -> float:
        """Returns the time at which work that begins at `start_us` ends, in microseconds."""
        if self.is_steady:
            return start_us + work_us
        times, work = self._times, self._work
        place = min(bisect_right(times, start_us), len(times) - 1)
        slope = (work[place] - work[place - 1]) / (times[place] - times[place - 1])
        done = work[place - 1] + (start_us - times[place - 1]) * slope + work_us
        if done <= work[place]:
            return start_us + work_us / slope
        place = min(bisect_right(work, done, place), len(work) - 1)
        slope = (work[place] - work[place - 1]) / (times[place] - times[place - 1])
        return times[place - 1] + (done - work[place - 1]) / slope


def observed_variation(measurements: Iterable[Measurement], idle: IdleEffects = ALWAYS_WARM) -> Variation | None:
    """Returns how run times varied in measurements, as `costmodel.measure.tenancy.jitter` summarises it.

    States whose slowdown is unknown do not count, and the shares of the others then add up to 1.

    Args:
        measurements: Measurements of whole models, or of layers.
        idle: Cost of an idle time, which is a property of the system and not of its measurements.

    Returns:
        The variation; None if nothing was timed.
    """
    timed = [measurement for measurement in measurements if not measurement.observed]
    if not timed:
        return None
    shares = state_shares(timed)
    of_states = {QUIET: 1.0, **slowdowns(timed)}
    known = sum(shares.get(state, 0.0) for state in of_states)
    states = tuple(
        MachineState(state, shares[state] / known, max(1.0, slowdown))
        for state, slowdown in of_states.items()
        if known and shares.get(state)
    )
    return Variation(tuple(quiet_factors(timed).tolist()), states if len(states) > 1 else (), idle=idle)
