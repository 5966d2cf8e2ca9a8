"""Pins this process to CPUs while it measures."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from costmodel.errors import MeasurementError
from costmodel.systems.host import usable_cpus

__all__ = ["check_cpus", "cpus_beside", "pinned"]


def check_cpus(threads: int) -> None:
    """Raises an error if this process may not run on as many CPUs as it would have threads.

    Raises:
        MeasurementError: There are more threads than CPUs.
    """
    usable = usable_cpus()
    if threads > usable:
        raise MeasurementError(
            f"{threads} threads would share {usable} CPUs, all that this process may run on, and wait for each other: "
            "measure with fewer threads"
        )


@contextmanager
def pinned(cpus: int) -> Iterator[tuple[int, ...]]:
    """Pins this process to a number of its CPUs, given as `cpus`, while the context is open.

    Yields the numbers of these CPUs, or () where the platform does not support pinning. The CPUs with the highest
    numbers are chosen, because the first ones serve interrupts.
    """
    if not hasattr(os, "sched_setaffinity"):
        yield ()
        return
    before = os.sched_getaffinity(0)
    chosen = tuple(sorted(before)[-cpus:])
    os.sched_setaffinity(0, chosen)
    try:
        yield chosen
    finally:
        os.sched_setaffinity(0, before)


def cpus_beside(cpus: int) -> tuple[int, ...] | None:
    """Returns the numbers of as many CPUs as `pinned(cpus)` would choose, next below these.

    Returns:
        The numbers; () where the platform does not support pinning; None if this process may not use that many CPUs.
    """
    if not hasattr(os, "sched_setaffinity"):
        return () if (os.cpu_count() or 1) >= 2 * cpus else None
    usable = sorted(os.sched_getaffinity(0))
    return tuple(usable[-2 * cpus : -cpus]) if len(usable) >= 2 * cpus else None
