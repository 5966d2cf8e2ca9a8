"""The measurement protocol, measurements with their raw times, and the latencies that are derived from them.

On a shared machine, times vary by 10% and more within a minute. The runs of a network are therefore spread over time, a
reference kernel is timed between them, and runs are added until they agree. Every raw time is kept. See docs/adr/0003
and 0005.
"""

import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from statistics import median
from typing import Any

import numpy as np

from costmodel.errors import MeasurementError
from costmodel.ir.graph import TensorType
from costmodel.ir.sequence import LayerSequence, SequenceLayer, Value
from costmodel.runtimes.base import Runner

__all__ = [
    "MIN_LATENCY_US",
    "OBSERVED",
    "QUIET_QUANTILE",
    "Measurement",
    "Protocol",
    "Timing",
    "capability_latency_us",
    "is_data_dependent",
    "jitter",
    "mean_latency_us",
    "median_latency_us",
    "now",
    "pinned",
    "reference_sequence",
    "timed_us",
]

# The latency of a whole model is this quantile of its runs. Every layer is late at times, and the median of a sum of
# many layers is the sum of their means (docs/adr/0005): the latency of a layer is therefore its mean run, without the
# runs during which another process had the processor.
QUIET_QUANTILE = 0.5
_INTERRUPTED = 2.0  # runs of more than this many medians count as interrupted

# Smallest latency of a layer: no layer that a runtime executes takes less, and the clock could not resolve it.
MIN_LATENCY_US = 0.5

# Value of "source" in the environment of a latency that was observed elsewhere and not timed under this protocol.
OBSERVED = "observed"

DATA_DEPENDENT = frozenset({"NonZero", "NonMaxSuppression", "TopK", "Loop", "If", "Scan", "Unique", "Compress"})


@dataclass(frozen=True, slots=True)
class Protocol:
    """The parameters of the measurement protocol: how often networks are timed, and when their times are known.

    Passes, turns and laps are defined in `costmodel.measure.round_robin`.

    Attributes:
        version: Version of the protocol; it changes when times are no longer comparable with those of older versions.
        passes: Number of passes over a group that are made before its times are checked for agreement.
        max_passes: Number of passes after which a group is done even if its times do not agree.
        min_passes: Number of passes that are made even if the group takes longer than `max_group_us`.
        max_group_us: Time after which a group is done even if its times do not agree, because slow networks have steady
            times.
        agreement: Largest standard error, relative to the median, at which the time of a network counts as known.
        reference_every_us: Time between two runs of the reference kernel.
        sync_check_every_us: Time between two checks of thread synchronisation.
        max_wait_us: Longest time to wait until the threads are in sync; a deadline may end the wait earlier.
        short_lap_us: Duration below which a lap is short: it runs once untimed at the beginning of each turn, and is
            then timed several times.
        turn_us: Time that the timed runs of a short lap should take in a turn.
        max_runs: Maximum number of timed runs of a lap in a turn; the minimum is one.
    """

    version: int = 5
    passes: int = 8
    max_passes: int = 24
    min_passes: int = 3
    max_group_us: float = 30_000_000.0
    agreement: float = 0.02
    reference_every_us: float = 100_000.0
    sync_check_every_us: float = 20_000.0
    max_wait_us: float = 60_000_000.0
    short_lap_us: float = 50_000.0
    turn_us: float = 10_000.0
    max_runs: int = 5


@dataclass(frozen=True)
class Measurement:
    """The times of one layer sequence or whole model on one system, with the environment in which they were taken.

    Attributes:
        signature: Signature of the timed sequence.
        pass_times_us: Raw time of each run in microseconds, a tuple for each pass, in the order taken.
        reference_us: For each pass, the latest time of the reference kernel before the last run in that pass.
        stable: Whether the times agree well enough and the threads were in sync.
        overhead_us: Call overhead that each raw time contains, in microseconds; 0 for a whole model, whose user pays
            for the call. It also selects the statistic of `latency_us`: the median run of a whole model, the mean run
            of a part of a model.
        data_dependent: Whether the time depends on the values of the inputs, which were synthetic.
        environment: State of host and runtime while measuring, including the load; JSON-able.
        measured_at: Time at which the measurement ended, UTC in ISO 8601.
    """

    signature: str
    pass_times_us: tuple[tuple[float, ...], ...]
    reference_us: tuple[float, ...]
    stable: bool
    overhead_us: float = 0.0
    data_dependent: bool = False
    environment: Mapping[str, Any] = field(default_factory=dict)
    measured_at: str = ""

    @property
    def times_us(self) -> tuple[float, ...]:
        """Every raw time in microseconds, in the order taken."""
        return tuple(t for times in self.pass_times_us for t in times)

    @property
    def observed(self) -> bool:
        """Whether the latency was observed elsewhere, as one number, and not timed under this protocol."""
        return self.environment.get("source") == OBSERVED

    @property
    def latency_us(self) -> float:
        """Latency in microseconds: median run of a model; for a layer, the trimmed mean run minus the call overhead."""
        if not self.overhead_us:
            return median_latency_us(self.times_us)
        return self._without_overhead(mean_latency_us(self.times_us))

    @property
    def interval_us(self) -> tuple[float, float]:
        """90% interval of `latency_us`: order statistics around the median, or the standard error around the mean."""
        times = sorted(self.times_us)
        if self.overhead_us:
            kept = _uninterrupted(times)
            mean, error = float(np.mean(kept)), 1.645 * float(np.std(kept)) / math.sqrt(len(kept))
            low, high = max(times[0], mean - error), min(times[-1], mean + error)
            return self._without_overhead(low), self._without_overhead(high)
        spread = 1.645 * math.sqrt(len(times) * QUIET_QUANTILE * (1 - QUIET_QUANTILE))
        centre = len(times) * QUIET_QUANTILE
        low = times[max(0, math.floor(centre - spread))]
        high = times[min(len(times) - 1, math.ceil(centre + spread))]
        return min(low, self.latency_us), max(high, self.latency_us)

    def _without_overhead(self, time_us: float) -> float:
        return max(MIN_LATENCY_US, time_us - self.overhead_us)


@dataclass(frozen=True, slots=True)
class Timing:
    """The latency of one sequence on one system, from all of its measurements.

    A sequence has several measurements if it was repeated or occurs in several models.

    Attributes:
        latency_us: Median of the latencies of the measurements, in microseconds.
        interval_us: 90% interval in microseconds: the medians of the lower and upper bounds of the measurements,
            widened to include the latency of every measurement.
        call_us: Median over the measurements of their median run, call overhead included, in microseconds.
        measured_at: Times of the first and the last measurement, UTC in ISO 8601.
    """

    latency_us: float
    interval_us: tuple[float, float]
    call_us: float
    measured_at: tuple[str, str]

    @classmethod
    def of(cls, measurements: Sequence[Measurement]) -> "Timing":
        """Combines the measurements of one sequence, at least one."""
        latencies_us = [m.latency_us for m in measurements]
        lows, highs = zip(*(m.interval_us for m in measurements), strict=True)
        return cls(
            latency_us=median(latencies_us),
            interval_us=(min(median(lows), *latencies_us), max(median(highs), *latencies_us)),
            call_us=median(median_latency_us(m.times_us) for m in measurements),
            measured_at=(min(m.measured_at for m in measurements), max(m.measured_at for m in measurements)),
        )


def median_latency_us(times_us: Sequence[float]) -> float:
    """Returns the latency of a whole model from the times of its runs: their median."""
    return float(np.quantile(np.asarray(times_us), QUIET_QUANTILE))


def mean_latency_us(times_us: Sequence[float]) -> float:
    """Returns the mean of a layer's runs, without interrupted runs, which take more than twice the median."""
    return float(np.mean(_uninterrupted(times_us)))


def _uninterrupted(times_us: Sequence[float]) -> np.ndarray:
    times = np.asarray(times_us)
    return np.asarray(times[times <= _INTERRUPTED * np.median(times)])


def is_data_dependent(sequence: LayerSequence) -> bool:
    """Returns whether the time of a sequence depends on the values of its inputs."""
    return any(layer.op_type in DATA_DEPENDENT for layer in sequence.layers)


def reference_sequence(size: int = 256) -> LayerSequence:
    """Returns the reference kernel: a square float32 matrix product, 2 * size**3 floating-point operations."""
    square = TensorType("float32", (size, size))
    return LayerSequence(
        layers=(SequenceLayer("MatMul", "", 1, {}, (0, 1), (2,)),),
        values=(Value(square, "input"), Value(square, "constant"), Value(square, "internal")),
        outputs=(2,),
    )


@contextmanager
def pinned(cpus: int) -> Iterator[tuple[int, ...]]:
    """Pins this process to `cpus` CPUs; yields their numbers, or () where the platform does not support pinning.

    The CPUs with the highest numbers are chosen, because interrupts are served by the first ones.
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


def capability_latency_us(
    runner: Runner, clock_ns: Callable[[], int] = time.perf_counter_ns, *, budget_us: float = 300_000.0
) -> float:
    """Returns the median time of a network that is run back to back, in microseconds.

    It serves the capability probes, which run before there is a time of the reference kernel to compare with.

    Args:
        runner: Runner of the network, loaded and fed.
        clock_ns: A monotonic clock, in nanoseconds.
        budget_us: Time after which no run begins, except the first five.

    Raises:
        MeasurementError: The network failed, or the clock did not move during a run.
    """
    times: list[float] = []
    runner.run()
    begin = clock_ns()
    while len(times) < 5 or (clock_ns() - begin) / 1000 < budget_us:
        times.append(timed_us(runner, clock_ns))
    return median_latency_us(times)


def timed_us(runner: Runner, clock_ns: Callable[[], int]) -> float:
    """Runs a network once and returns the time in microseconds.

    Raises:
        MeasurementError: The network failed, or the clock did not move during the run.
    """
    start = clock_ns()
    runner.run()
    took_us = (clock_ns() - start) / 1000
    if took_us <= 0:
        raise MeasurementError("the clock did not move during a run: there is no usable time")
    return took_us


def jitter(measurements: Iterable[Measurement]) -> dict[str, float]:
    """Returns factors from the quiet latency to the p50, p90 and p99 of runs: medians over measurements, at least 1."""
    factors = []
    for measurement in measurements:
        if measurement.observed:  # a single latency does not show how runs differ
            continue
        times = np.asarray(measurement.times_us)
        factors.append(np.quantile(times, (0.5, 0.9, 0.99)) / np.quantile(times, QUIET_QUANTILE))
    typical = np.median(factors, axis=0) if factors else np.ones(3)
    return dict(zip(("p50", "p90", "p99"), (float(max(1.0, f)) for f in typical), strict=True))


def now() -> str:
    """Returns the current UTC time in ISO 8601, with milliseconds to distinguish two measurements of one layer."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")
