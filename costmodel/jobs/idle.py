"""Measures what an idle time costs on this host, and stores it with the system."""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from costmodel.measure.idle import idle_sequence, measure_idle_effects
from costmodel.measure.lock import measuring_lock
from costmodel.runtimes.base import Runtime
from costmodel.store.store import Store
from costmodel.systems.system import System, check_same_system

__all__ = ["measure_idle", "measured_idle"]


def measured_idle(
    runtime: Runtime, system: System, clock_ns: Callable[[], int], sleep: Callable[[float], None]
) -> dict[str, float]:
    """Returns what an idle time costs on this host, as capabilities of a system; it takes three seconds.

    Raises:
        MeasurementError: The network that is run failed, or the clock did not move during a run.
    """
    return measure_idle_effects(runtime.open_sequence(idle_sequence(), system.settings), clock_ns, sleep)


def measure_idle(
    store: Store,
    here: System,
    runtime: Runtime,
    *,
    lock: Callable[[], Any] = measuring_lock,
    clock_ns: Callable[[], int] = time.perf_counter_ns,
    sleep: Callable[[float], None] = time.sleep,
) -> System:
    """Measures what an idle time costs on a system that is measured already, and returns the system as it is stored.

    Args:
        store: Store with the system.
        here: This host, described as a system of that name.
        runtime: Runtime of the system.
        lock: Function that returns a context manager, inside which no other process measures.
        clock_ns: Reads a monotonic clock, in nanoseconds.
        sleep: Sleeps for a number of seconds.

    Raises:
        UnknownSystemError: The store has no system of that name.
        SystemMismatchError: The system is another machine, runtime or has other settings.
        HostBusyError: Another process is measuring.
        MeasurementError: The network that is run failed.
    """
    known = store.system(here.name)
    check_same_system(known, here)
    with lock():
        effects = measured_idle(runtime, here, clock_ns, sleep)
    found = replace(known, capabilities={**known.capabilities, **effects})
    store.put_system(found)
    return found
