"""Detects when the hypervisor has moved the vCPUs of a system apart, and waits until its threads are in sync again.

Threads are in sync while the hypervisor keeps their vCPUs close together, so that one thread can pass work to another
at once. Out of sync, passing work takes microseconds: a layer whose threads share ten microseconds of work then takes
as long as on one thread, and a memory-bound layer is faster, because there are two last-level caches. The reference
kernel does not show the difference, because a long matrix product takes the same time in both states. A chain of short
matrix products shows it (docs/adr/0005).
"""

import math
import time
from collections.abc import Callable
from statistics import median

from costmodel.ir.graph import TensorType
from costmodel.ir.sequence import LayerSequence, SequenceLayer, Value
from costmodel.measure.measurement import Protocol, timed_us
from costmodel.runtimes.base import Runner

__all__ = ["OUT_OF_SYNC", "ThreadSyncMonitor", "thread_sync_sequence"]

# Threads count as out of sync when the chain takes this many times its fastest time. Out of sync it takes about twice
# as long as in sync; times in sync differ by a tenth.
OUT_OF_SYNC = 1.3
_RUNS = 5
_REST_US = 50_000.0
_CALIBRATION_CHECKS = 100
_WAITING_SHARE = 2.0
_SIDE, _LAYERS = 64, 24


def thread_sync_sequence() -> LayerSequence:
    """Returns a chain of matrix products, each just large enough for two threads to share it."""
    square = TensorType("float32", (_SIDE, _SIDE))
    first = 1 + _LAYERS
    return LayerSequence(
        layers=tuple(
            SequenceLayer("MatMul", "", 1, {}, (first + i - 1 if i else 0, 1 + i), (first + i,)) for i in range(_LAYERS)
        ),
        values=(
            Value(square, "input"),
            *(Value(square, "constant") for _ in range(_LAYERS)),
            *(Value(square, "internal") for _ in range(_LAYERS)),
        ),
        outputs=(first + _LAYERS - 1,),
    )


class ThreadSyncMonitor:
    """A periodic check of whether the threads of a system are in sync.

    Attributes:
        in_sync_us: Fastest time of `thread_sync_sequence` known for the system, in microseconds.
        checks_us: Time of `thread_sync_sequence` at each check since `restart`, in microseconds.
        checks_out_of_sync: Number of these checks after which timing continued although the threads were out of sync.
        lost_us: Time since `restart` that was spent on waiting and on runs that were discarded, in microseconds.
    """

    def __init__(
        self,
        runner: Runner | None,
        protocol: Protocol,
        in_sync_us: float | None = None,
        *,
        clock_ns: Callable[[], int] = time.perf_counter_ns,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Starts monitoring; without `in_sync_us`, first determines how fast the threads can be.

        Args:
            runner: Runner of `thread_sync_sequence`, loaded and fed; None if there is one thread, which is always in
                sync.
            protocol: Time between checks, and how long to wait for the threads to be in sync.
            in_sync_us: Fastest time known for this system; None to determine it, which takes five seconds.
            clock_ns: A monotonic clock, in nanoseconds.
            sleep: Sleeps for a number of seconds.
        """
        self._runner = runner
        self._protocol = protocol
        self._clock_ns = clock_ns
        self._sleep = sleep
        self._patience_us = protocol.max_wait_us
        self.in_sync_us = math.inf if in_sync_us is None else in_sync_us
        self.restart()
        if in_sync_us is None and runner is not None:
            for _ in range(_CALIBRATION_CHECKS):
                self._check(runner)
                self._rest()
            self.restart()

    def restart(self) -> None:
        """Clears the recorded checks and the time lost to waiting and discarded runs, at the start of a group."""
        self._checked_ns = self._clock_ns()
        self.checks_us: list[float] = []
        self.checks_out_of_sync = 0
        self.lost_us = 0.0

    def metadata(self) -> dict[str, float]:
        """Returns the entries on thread synchronisation for the environment of what was timed since `restart`."""
        if self._runner is None:
            return {}
        chain = {"handover_us": median(self.checks_us)} if self.checks_us else {}
        return {
            **chain,
            "handover_near_us": self.in_sync_us,
            "looks": len(self.checks_us),
            "looks_apart": self.checks_out_of_sync,
        }

    @property
    def due(self) -> bool:
        """Whether the next check is due."""
        return (
            self._runner is not None
            and self._clock_ns() - self._checked_ns >= self._protocol.sync_check_every_us * 1000
        )

    def stayed_in_sync(self, deadline_ns: float = math.inf) -> bool:
        """Checks the threads and returns whether the times taken since the last check are to be kept.

        If the threads are out of sync, waits until they are in sync and returns False: the caller then repeats the
        runs. If they are still out of sync when the patience or the deadline ends, returns True and counts the check
        in `checks_out_of_sync`.

        Patience is the time left for waiting. It shrinks by the time that is waited and the time of discarded runs,
        and grows by twice the time of kept runs, up to `Protocol.max_wait_us`. The time lost is therefore at most about
        twice the time of the runs that are kept.

        Args:
            deadline_ns: Clock value at which all waiting ends, in nanoseconds.
        """
        timed_for_us = (self._clock_ns() - self._checked_ns) / 1000
        if self._in_sync():
            self._patience_us = min(self._protocol.max_wait_us, self._patience_us + _WAITING_SHARE * timed_for_us)
            return True
        begin_ns = self._clock_ns()
        self._patience_us -= timed_for_us
        while (self._clock_ns() - begin_ns) / 1000 < self._patience_us and self._clock_ns() < deadline_ns:
            self._rest()
            if self._in_sync():
                waited_us = (self._clock_ns() - begin_ns) / 1000
                self._patience_us -= waited_us
                self.lost_us += timed_for_us + waited_us
                return False
        self.lost_us += (self._clock_ns() - begin_ns) / 1000
        self._patience_us = 0.0
        self.checks_out_of_sync += 1
        return True

    def _in_sync(self) -> bool:
        return self._runner is None or self._check(self._runner) <= OUT_OF_SYNC * self.in_sync_us

    def _check(self, runner: Runner) -> float:
        took_us = median(timed_us(runner, self._clock_ns) for _ in range(_RUNS))
        self.in_sync_us = min(self.in_sync_us, took_us)
        self._checked_ns = self._clock_ns()
        self.checks_us.append(took_us)
        return took_us

    def _rest(self) -> None:
        # The hypervisor places an idle vCPU anew sooner than a busy one, which stays where it is.
        self._sleep(_REST_US / 1e6)
