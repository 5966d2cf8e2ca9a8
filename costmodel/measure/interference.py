"""Measures how much networks slow each other when they run side by side, each on its own CPUs."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from costmodel.interruption import raise_if_interrupted
from costmodel.measure.neighbour import NEAR_NS, Neighbour
from costmodel.measure.stopwatch import timed_us
from costmodel.progress import Progress
from costmodel.runtimes.base import Runner

__all__ = ["INTERFERENCE", "Ring", "Slowdowns", "measure_slowdowns"]

# Prefix of the capabilities of a system that describe its interference.
INTERFERENCE = "interference_"
_LEAST_RUNS = 3
# A vCPU that rests for this long may be placed anew by the hypervisor; a busy one stays where it is.
_REST_S = 0.02


@dataclass(frozen=True)
class Slowdowns:
    """How many times as long networks take beside others.

    Attributes:
        alone_us: Time of a run of each network alone, in microseconds, shape [num_networks].
        ratios: Time beside another network / time alone, shape [num_networks, num_neighbours]; NaN where there is none.
        near: Whether the ratios are from times when the CPUs shared a last-level cache.
        near_share: Share of all checks at which the CPUs shared a last-level cache.
    """

    alone_us: np.ndarray
    ratios: np.ndarray
    near: bool
    near_share: float


class Ring:
    """A `Runner` that runs several networks one after the other, as a model runs equal layers with other weights."""

    def __init__(self, runners: Sequence[Runner]) -> None:
        """Takes the networks, which are loaded and have weights and inputs of their own."""
        self._runners = tuple(runners)

    def run(self) -> None:
        """Runs each network once.

        Raises:
            MeasurementError: A network fails to run.
        """
        for runner in self._runners:
            runner.run()

    def feed(self) -> None:
        """Rewrites the inputs of each network."""
        for runner in self._runners:
            runner.feed()


def measure_slowdowns(
    networks: Sequence[Runner],
    neighbour: Neighbour,
    pairs: Sequence[tuple[int, int]],
    *,
    rounds: int = 5,
    slice_us: float = 12_000.0,
    patience_s: float = 40.0,
    clock_ns: Callable[[], int] = time.perf_counter_ns,
    sleep: Callable[[float], None] = time.sleep,
    progress: Progress | None = None,
) -> Slowdowns:
    """Times networks alone and beside networks of a neighbour, in turn, and returns the ratios.

    The two times of a ratio are taken one right after the other, and the rounds are spread over the whole measurement:
    a change of the machine's state (another tenant, for example) spoils single ratios, of which the median is taken.

    A hypervisor may move the vCPUs of a machine apart, to cores that share no cache and hardly disturb each other.
    Times count only if the CPUs were near each other before and after them. While they are apart, both rest, because a
    vCPU that rests is placed anew. If they were never near each other when the patience ends, the times count as they
    are.

    Args:
        networks: Networks to time, loaded in this process.
        neighbour: Neighbour that runs its own networks on other CPUs.
        pairs: Positions, in `networks` and among the neighbour's networks, of those to run side by side.
        rounds: Number of ratios for each pair.
        slice_us: Time, in microseconds, for which a network is run for each of the two times; at least three runs.
        patience_s: Seconds to wait in total for CPUs that are near each other.
        clock_ns: Reads a monotonic clock, in nanoseconds.
        sleep: Sleeps for a number of seconds.
        progress: Progress callback, called with (ratios taken, ratios in total, "").

    Raises:
        MeasurementError: A network fails to run.
    """
    shape = len(networks), 1 + max(other for _, other in pairs)
    taken: dict[tuple[int, int], list[tuple[bool, float]]] = {pair: [] for pair in pairs}
    alone: list[list[float]] = [[] for _ in networks]
    checks: list[bool] = []

    def is_near() -> bool:
        checks.append(neighbour.round_trip_ns() <= NEAR_NS)
        return checks[-1]

    for number in range(rounds * len(pairs)):
        position, other = pair = pairs[number % len(pairs)]
        if progress is not None:
            progress(number, rounds * len(pairs), "")
        while True:
            raise_if_interrupted()
            near = is_near()
            while not near and patience_s > 0:
                sleep(_REST_S)
                patience_s -= _REST_S
                near = is_near()
            alone_us = _typical_us(networks[position], slice_us, clock_ns)
            neighbour.loop(other)
            ratio = _typical_us(networks[position], slice_us, clock_ns) / alone_us
            neighbour.rest()
            if near and is_near():
                break
            near = False
            if patience_s <= 0:
                break
            patience_s -= 2 * slice_us / 1e6
        taken[pair].append((near, ratio))
        alone[position].append(alone_us)
    if progress is not None:
        progress(rounds * len(pairs), rounds * len(pairs), "")
    ratios = np.full(shape, np.nan)
    ever_near = any(near for of_pair in taken.values() for near, _ in of_pair)
    for pair, of_pair in taken.items():
        counting = [ratio for near, ratio in of_pair if near or not ever_near]
        ratios[pair] = np.median(counting) if counting else np.nan
    alone_us_of = np.array([np.median(times_us) if times_us else np.nan for times_us in alone])
    return Slowdowns(alone_us_of, ratios, ever_near, float(np.mean(checks)))


def _typical_us(network: Runner, slice_us: float, clock_ns: Callable[[], int]) -> float:
    """Returns the median time of the runs in a slice of time, after a run that fills the caches, in microseconds."""
    network.run()
    begin_ns = clock_ns()
    times_us: list[float] = []
    while len(times_us) < _LEAST_RUNS or (clock_ns() - begin_ns) / 1000 < slice_us:
        times_us.append(timed_us(network, clock_ns))
    return float(np.median(times_us))
