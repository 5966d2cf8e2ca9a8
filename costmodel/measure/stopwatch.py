"""Times the runs of a network."""

import time
from collections.abc import Callable

from costmodel.errors import MeasurementError
from costmodel.measure.statistics import median_us
from costmodel.runtimes.base import Runner

__all__ = ["repeated_us", "timed_us"]


def timed_us(runner: Runner, clock_ns: Callable[[], int]) -> float:
    """Runs a network once and returns the time that it took, in microseconds.

    Raises:
        MeasurementError: The network failed, or the clock did not move during the run.
    """
    start = clock_ns()
    runner.run()
    took_us = (clock_ns() - start) / 1000
    if took_us <= 0:
        raise MeasurementError("the clock did not move during a run: there is no usable time")
    return took_us


def repeated_us(
    runner: Runner, clock_ns: Callable[[], int] = time.perf_counter_ns, *, budget_us: float = 300_000.0
) -> float:
    """Runs a network back to back and returns the median time of a run, in microseconds.

    The capabilities of a host are measured like this, before there is a time of the reference kernel to compare with.

    Args:
        runner: Runner of the network, which is loaded and has its inputs.
        clock_ns: Reads a monotonic clock, in nanoseconds.
        budget_us: Time, in microseconds, after which no run begins, except the first five.

    Raises:
        MeasurementError: The network failed, or the clock did not move during a run.
    """
    times: list[float] = []
    runner.run()
    begin = clock_ns()
    while len(times) < 5 or (clock_ns() - begin) / 1000 < budget_us:
        times.append(timed_us(runner, clock_ns))
    return median_us(times)
