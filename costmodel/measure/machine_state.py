"""Watches the state of the machine with short probes, so that runs count only if the machine was quiet around them.

A shared machine has states: quiet; another tenant on the sibling thread, at the last cache or at the memory; vCPUs that
the hypervisor has moved apart. A state lasts from milliseconds to minutes, and slows each kind of layer by another
factor. Three probes tell them apart (docs/adr/0016): a chain of short matrix products through the runtime (computing
and, with several threads, passing work between them), a read of data in the last-level cache, and a read of memory.
"""

import math
import time
from bisect import insort
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, median
from typing import Any

import numpy as np

from costmodel.ir.sequence import LayerSequence
from costmodel.measure.groups import DEFAULT_L3_BYTES
from costmodel.measure.matrix_products import matrix_products
from costmodel.measure.protocol import Protocol
from costmodel.measure.stopwatch import timed_us
from costmodel.runtimes.base import Runner
from costmodel.systems.host import Host

__all__ = ["QUIET", "MachineStateMonitor", "StateProbe", "product_chain", "state_probes"]

# Name of the state in which no probe is slow.
QUIET = "quiet"
_REST_US = 50_000.0
_CALIBRATION_CHECKS, _MOST_CALIBRATION_CHECKS = 100, 1200
_WAITING_SHARE = 2.0
_SIDE, _LAYERS = 64, 24
_WINDOW_BYTES = 2 << 20
_FLOAT_BYTES = 8
_DEFAULT_L2_BYTES = 1 << 20
_LEAST_MEMORY_BYTES, _MOST_MEMORY_BYTES = 64 << 20, 256 << 20
# Ratios to its quiet time from which a probe counts as slow, unless its own scatter is larger, and how many standard
# deviations of that scatter then count as slow: docs/adr/0016 has the comparisons.
_SLOW_PRODUCTS, _SLOW_READ = 1.15, 1.4
_SLOW_DEVIATIONS = 2.5
# Number of times that a slow probe is repeated at once: a state of the machine lasts, and chance does not.
_REPEATS = 2
# The quiet time of a probe is this quantile of its times, because the quickest of many is a rare piece of luck.
_QUIET_QUANTILE = 0.1
_LEAST_TO_KNOW_SCATTER = 20
_SHORTEST_US = 1e-3  # what a coarse clock shows as 0
# Standard deviations of a normal variable in the median distance between two draws of it.
_DEVIATIONS_IN_MEDIAN_DISTANCE = 0.954


@dataclass(frozen=True)
class StateProbe:
    """A short piece of work whose time depends on one resource that tenants of a machine share.

    Attributes:
        name: Name of the resource; the machine is in the state of that name while the probe is slow.
        runner: Runner of the work.
        slow: Least ratio to the probe's quiet time from which the resource counts as disturbed.
        runs: Number of runs of which the median is taken.
        warm: Whether a run that is not timed comes first.
        plausible_us: Longest time in microseconds that a quiet machine is expected to take.
    """

    name: str
    runner: Runner
    slow: float
    runs: int = 3
    warm: bool = False
    plausible_us: float = math.inf

    def time_us(self, clock_ns: Callable[[], int]) -> float:
        """Returns the median time of the runs in microseconds."""
        if self.warm:
            self.runner.run()
        return median(timed_us(self.runner, clock_ns) for _ in range(self.runs))


class _ProbeHistory:
    """The times of one probe at the checks of a session, from which its quiet time and its scatter are estimated.

    Attributes:
        quiet_us: Time of the probe on the quiet machine, in microseconds; infinite before the first check.
    """

    def __init__(self, known_us: float) -> None:
        """Begins with the quiet time known from earlier sessions in microseconds, infinite if there is none."""
        self.quiet_us = self._known_us = known_us
        self._times_us: list[float] = []
        self._distances: list[float] = []
        self._last_us = math.nan

    def add(self, took_us: float) -> None:
        """Adds the time of the probe at one more check, in microseconds."""
        took_us = max(took_us, _SHORTEST_US)
        if self._times_us:
            insort(self._distances, abs(math.log(took_us / self._last_us)))
        self._last_us = took_us
        insort(self._times_us, took_us)
        usual_us = self._times_us[int(_QUIET_QUANTILE * (len(self._times_us) - 1))]
        # Few checks can all be lucky. After that the quiet time only falls, however long a neighbour stays.
        before_us = self.quiet_us if len(self._times_us) > _CALIBRATION_CHECKS else self._known_us
        self.quiet_us = min(before_us, usual_us)

    @property
    def scatter(self) -> float:
        """Standard deviation of the logarithm of the probe's time, from distances between successive checks.

        States of the machine last for many checks, so changes of state hardly matter in it. 0 until it is known.
        """
        if len(self._distances) < _LEAST_TO_KNOW_SCATTER:
            return 0.0
        return self._distances[len(self._distances) // 2] / _DEVIATIONS_IN_MEDIAN_DISTANCE


class _Reading:
    """A `Runner` that reads the next window of its memory at each run, and begins anew at the end."""

    def __init__(self, nbytes: int, window_bytes: int) -> None:
        self._windows = np.ones((max(1, nbytes // window_bytes), window_bytes // _FLOAT_BYTES))
        self._next = 0

    def run(self) -> None:
        """Reads one window."""
        self._windows[self._next].sum()
        self._next = (self._next + 1) % len(self._windows)

    def feed(self) -> None:
        """Does nothing, because there are no inputs."""


def state_probes(
    open_sequence: Callable[[LayerSequence], Runner], host: Host | None, one_thread_us: float = math.inf
) -> tuple[StateProbe, ...]:
    """Returns the probes for a host: "products", "cache" (data beyond the second-level cache) and "memory".

    Args:
        open_sequence: Opens a layer sequence with the runtime and settings of the system.
        host: Host with the sizes of its caches.
        one_thread_us: Time of `product_chain` with one thread in microseconds, if the system has several: the machine
            is not expected to be slower with several.
    """
    l2_bytes = (host.l2_bytes if host else 0) or _DEFAULT_L2_BYTES
    l3_bytes = (host.l3_bytes if host else 0) or DEFAULT_L3_BYTES
    memory_bytes = min(max(4 * l3_bytes, _LEAST_MEMORY_BYTES), _MOST_MEMORY_BYTES)
    return (
        # In this order, because the last one leaves least behind in the caches.
        StateProbe("memory", _Reading(memory_bytes, _WINDOW_BYTES), slow=_SLOW_READ),
        StateProbe("cache", _Reading(2 * l2_bytes, 2 * l2_bytes), slow=_SLOW_READ, warm=True),
        StateProbe("products", open_sequence(product_chain()), slow=_SLOW_PRODUCTS, plausible_us=one_thread_us),
    )


def product_chain() -> LayerSequence:
    """Returns a chain of matrix products, each just large enough for two threads to share it."""
    return matrix_products(_SIDE, _SIDE, _LAYERS)


class MachineStateMonitor:
    """A periodic check of the state of the machine.

    Attributes:
        checks_us: Times of each probe at the checks since `restart`, in microseconds, by name; if a probe was repeated,
            the quickest of its times.
        kept_disturbed: Number of these checks after which runs were kept although the machine was not quiet.
        lost_us: Time since `restart` that was spent on waiting and on runs that were discarded, in microseconds.
        found: State that `stayed_quiet` found last, before it waited.
        states_us: Time since `restart` that the machine spent in each state, waits included, in microseconds, by name.
    """

    def __init__(
        self,
        probes: Sequence[StateProbe],
        protocol: Protocol,
        quiet_us: Mapping[str, float] | None = None,
        *,
        clock_ns: Callable[[], int] = time.perf_counter_ns,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Starts monitoring; first determines the quiet times of probes that have none, which takes five seconds.

        It takes up to a minute if a probe is slower than a quiet machine is expected to be, because such a machine may
        be busy now: nothing says so later, until it has been quiet once.

        Args:
            probes: Probes of the machine; with none, it always counts as quiet.
            protocol: Time between checks, and how long to wait for a quiet machine.
            quiet_us: Time of each probe on this system when it is quiet, in microseconds, by name.
            clock_ns: A monotonic clock, in nanoseconds.
            sleep: Sleeps for a number of seconds.
        """
        self._probes = tuple(probes)
        self._protocol = protocol
        self._clock_ns = clock_ns
        self._sleep = sleep
        self._patience_us = protocol.max_wait_us
        known = dict(quiet_us or {})
        self._histories = {probe.name: _ProbeHistory(known.get(probe.name, math.inf)) for probe in self._probes}
        self.restart()
        if any(math.isinf(us) for us in self.quiet_us.values()):
            for checks in range(_MOST_CALIBRATION_CHECKS):
                if checks >= _CALIBRATION_CHECKS and all(self.quiet_us[p.name] <= p.plausible_us for p in self._probes):
                    break
                self._check()
                self._rest()
            self.restart()  # the first checks did not know yet what is quiet

    def restart(self) -> None:
        """Clears the recorded checks and the time lost, at the start of a group."""
        self._checked_ns = self._clock_ns()
        self.checks_us: dict[str, list[float]] = {probe.name: [] for probe in self._probes}
        self.states_us: dict[str, float] = {}
        self.found = QUIET
        self.kept_disturbed = 0
        self.lost_us = 0.0
        self._slowdowns: list[float] = []

    def limit_patience(self, patience_us: float) -> None:
        """Lowers the time that is left for waiting to `patience_us` microseconds, if it is longer."""
        self._patience_us = min(self._patience_us, patience_us)

    @property
    def quiet_us(self) -> dict[str, float]:
        """Time of each probe on the quiet machine as it is known now, in microseconds, by name."""
        return {name: history.quiet_us for name, history in self._histories.items()}

    def metadata(self) -> dict[str, Any]:
        """Returns the entries on the machine's state for the environment of what was timed since `restart`."""
        if not self._probes:
            return {}
        return {
            "probes_us": {name: median(times_us) for name, times_us in self.checks_us.items() if times_us},
            "quiet_probes_us": self.quiet_us,
            "checks": max(map(len, self.checks_us.values())),
            "checks_disturbed": self.kept_disturbed,
            # How much slower than on the quiet machine the probes were while runs were kept, on average: at least 1.
            "slowdown": mean(self._slowdowns) if self._slowdowns else 1.0,
            "states_us": dict(self.states_us),
        }

    @property
    def due(self) -> bool:
        """Whether the next check is due."""
        return bool(self._probes) and self._clock_ns() - self._checked_ns >= self._protocol.state_check_every_us * 1000

    @property
    def state(self) -> str:
        """State at the last check: the name of the probe that is slowest compared with its limit, or "quiet"."""
        ratios = {
            probe.name: self.checks_us[probe.name][-1] / self._slow_us(probe)
            for probe in self._probes
            if self.checks_us[probe.name]
        }
        slowest = max(ratios, key=lambda name: ratios[name], default=QUIET)
        return slowest if slowest != QUIET and ratios[slowest] > 1 else QUIET

    def stayed_quiet(self, deadline_ns: float = math.inf) -> bool:
        """Checks the machine and returns whether the times taken since the last check are to be kept.

        If the machine is not quiet, waits until it is and returns False: the caller then repeats the runs. If it is
        still not quiet when the patience or the deadline ends, returns True and counts the check in `kept_disturbed`.

        Patience is the time left for waiting. It shrinks by the time that is waited and the time of discarded runs,
        and grows by twice the time of kept runs, up to `Protocol.max_wait_us`. The time lost is therefore at most about
        twice the time of the runs that are kept.

        Args:
            deadline_ns: Clock value at which all waiting ends, in nanoseconds.
        """
        timed_for_us = (self._clock_ns() - self._checked_ns) / 1000
        self.found = self._check()
        if self.found == QUIET:
            self._slowdowns.append(1.0)
            self._patience_us = min(self._protocol.max_wait_us, self._patience_us + _WAITING_SHARE * timed_for_us)
            return True
        begin_ns = self._clock_ns()
        self._patience_us -= timed_for_us
        while (self._clock_ns() - begin_ns) / 1000 < self._patience_us and self._clock_ns() < deadline_ns:
            self._rest()
            if self._check() == QUIET:
                waited_us = (self._clock_ns() - begin_ns) / 1000
                self._patience_us -= waited_us
                self.lost_us += timed_for_us + waited_us
                return False
        self.lost_us += (self._clock_ns() - begin_ns) / 1000
        self._patience_us = 0.0
        self.kept_disturbed += 1
        self._slowdowns.append(max(self.checks_us[name][-1] / quiet_us for name, quiet_us in self.quiet_us.items()))
        return True

    def _check(self) -> str:
        for probe in self._probes:
            took_us = probe.time_us(self._clock_ns)
            self._histories[probe.name].add(took_us)
            for _ in range(_REPEATS):
                if took_us > self._slow_us(probe):
                    took_us = min(took_us, probe.time_us(self._clock_ns))
            self.checks_us[probe.name].append(took_us)
        state, now_ns = self.state, self._clock_ns()
        self.states_us[state] = self.states_us.get(state, 0.0) + (now_ns - self._checked_ns) / 1000
        self._checked_ns = now_ns
        return state

    def _slow_us(self, probe: StateProbe) -> float:
        """Returns the time in microseconds above which a probe counts as slow."""
        history = self._histories[probe.name]
        return history.quiet_us * max(probe.slow, math.exp(_SLOW_DEVIATIONS * history.scatter))

    def _rest(self) -> None:
        # The hypervisor places an idle vCPU anew sooner than a busy one, which stays where it is.
        self._sleep(_REST_US / 1e6)
