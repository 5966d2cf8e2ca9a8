"""Measures what an idle time costs a server: its next run takes longer, and its thread has to be woken.

Requests are handed to a thread of their own, as in a server. Before each of them the machine is idle for a time; what
the run then takes longer than the runs before it, and how long the thread takes to wake up, follow a saturating
exponential in the idle time (docs/adr/0021).
"""

import time
from collections.abc import Callable, Mapping, Sequence
from queue import SimpleQueue
from statistics import median
from threading import Thread

import numpy as np

from costmodel.ir.sequence import LayerSequence
from costmodel.measure.matrix_products import matrix_products
from costmodel.measure.stopwatch import timed_us
from costmodel.runtimes.base import Runner

__all__ = ["IDLE_EFFECT", "idle_sequence", "measure_idle_effects"]

# Prefix of the capabilities that say what an idle time costs.
IDLE_EFFECT = "idle_"
_IDLE_US = (1_000.0, 3_000.0, 10_000.0, 30_000.0, 90_000.0)
_ROUNDS = 15
# Runs before each idle time: those that warm the machine, and those that are compared with the run after it.
_WARMING, _WARM = 3, 3
_COOLING_US = np.geomspace(300.0, 100_000.0, 60)
# Products of [64, 256] and [256, 256]: with 4 MiB of weights and a millisecond or two, a small model.
_ROWS, _SIDE, _LAYERS = 64, 256, 16


def idle_sequence() -> LayerSequence:
    """Returns the network that is run: a chain of matrix products that takes as long as a small model."""
    return matrix_products(_ROWS, _SIDE, _LAYERS)


def measure_idle_effects(
    runner: Runner,
    clock_ns: Callable[[], int] = time.perf_counter_ns,
    sleep: Callable[[float], None] = time.sleep,
) -> dict[str, float]:
    """Measures what an idle time costs, in about three seconds.

    Args:
        runner: Runner of `idle_sequence()`, or of another network of a few milliseconds.
        clock_ns: Reads a monotonic clock, in nanoseconds.
        sleep: Sleeps for a number of seconds.

    Returns:
        "idle_extra_us": time by which the first run takes longer after a long idle time, in microseconds.
        "idle_cooling_us": idle time after which 63% of that is there, in microseconds.
        "idle_wake_up_us": time until the serving thread runs after a long idle time, in microseconds.

    Raises:
        MeasurementError: The network failed, or the clock did not move during a run.
    """
    extra_us, wake_up_us = ({idle_us: list[float]() for idle_us in _IDLE_US} for _ in range(2))
    with _Server(runner, clock_ns) as server:
        for _ in range(_ROUNDS):
            for idle_us in _IDLE_US:
                _, times_us = server.ask(_WARMING + _WARM)
                sleep(idle_us / 1e6)
                woken_us, (cold_us,) = server.ask(1)
                extra_us[idle_us].append(cold_us - median(times_us[_WARMING:]))
                wake_up_us[idle_us].append(woken_us)
    extra, cooling_us = _fitted(extra_us, _COOLING_US)
    wake_up, _ = _fitted(wake_up_us, np.array([cooling_us]))
    return {"idle_extra_us": extra, "idle_cooling_us": cooling_us, "idle_wake_up_us": wake_up}


class _Server:
    """A thread that waits for requests and runs the network for them."""

    def __init__(self, runner: Runner, clock_ns: Callable[[], int]) -> None:
        self._runner = runner
        self._clock_ns = clock_ns
        self._requests: SimpleQueue[int] = SimpleQueue()
        self._answers: SimpleQueue[tuple[int, list[float]] | BaseException] = SimpleQueue()
        self._thread = Thread(target=self._serve, daemon=True)

    def __enter__(self) -> "_Server":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._requests.put(0)
        self._thread.join()

    def ask(self, runs: int) -> tuple[float, list[float]]:
        """Returns the time until the thread woke, and the time of each of the runs, in microseconds."""
        asked_ns = self._clock_ns()
        self._requests.put(runs)
        answer = self._answers.get()
        if isinstance(answer, BaseException):
            raise answer
        woken_ns, times_us = answer
        return (woken_ns - asked_ns) / 1000, times_us

    def _serve(self) -> None:
        while runs := self._requests.get():
            woken_ns = self._clock_ns()
            try:
                self._answers.put((woken_ns, [timed_us(self._runner, self._clock_ns) for _ in range(runs)]))
            except BaseException as error:  # noqa: BLE001 - the thread that asked raises it
                self._answers.put(error)


def _fitted(of_idle_us: Mapping[float, Sequence[float]], cooling_us: np.ndarray) -> tuple[float, float]:
    """Returns the size, at least 0, and the time constant in microseconds of the closest saturating exponential.

    Args:
        of_idle_us: Times in microseconds that were seen after each idle time; their median counts.
        cooling_us: Time constants to choose from.
    """
    idle_us, seen_us = np.array(list(of_idle_us)), np.array([median(seen) for seen in of_idle_us.values()])
    shapes = 1 - np.exp(-idle_us / cooling_us[:, None])
    sizes = np.maximum(0.0, shapes @ seen_us / np.square(shapes).sum(axis=1))
    best = int(np.argmin(np.square(sizes[:, None] * shapes - seen_us).sum(axis=1)))
    return float(sizes[best]), float(cooling_us[best])
