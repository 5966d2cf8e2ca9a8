"""Runs a network once, and tells how long the run took and for how long its thread was off the CPU."""

import time

from costmodel.runtimes.base import Runner

__all__ = ["timed_run"]


def timed_run(runner: Runner) -> tuple[float, float]:
    """Runs a network.

    Args:
        runner: The loaded network.

    Returns:
        How long the run took, and for how long this thread was not on a CPU meanwhile, both in microseconds.

    Raises:
        MeasurementError: The network fails to run.
    """
    begin_ns, on_cpu_ns = time.perf_counter_ns(), time.thread_time_ns()
    runner.run()
    on_cpu_ns, took_ns = time.thread_time_ns() - on_cpu_ns, time.perf_counter_ns() - begin_ns
    return took_ns / 1000, max(0, took_ns - on_cpu_ns) / 1000
