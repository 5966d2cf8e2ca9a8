"""The measurement protocol: how often is timed, what a measurement holds, and what it says.

A shared machine swings by 10% and more within a minute. So runs are spread over time, a reference kernel is timed
between them, and more are made until they agree. Every raw time is kept. See docs/adr/0003 and 0005.
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
from costmodel.graph import TensorType
from costmodel.runtimes import Runner
from costmodel.sequence import LayerSequence, SequenceLayer, Value

__all__ = [
    "LEAST_US",
    "OBSERVED",
    "QUIET_QUANTILE",
    "Measurement",
    "Protocol",
    "Timing",
    "capability_latency_us",
    "is_data_dependent",
    "jitter",
    "mean_latency_us",
    "now",
    "pinned",
    "quiet_latency_us",
    "reference_sequence",
    "timed_us",
]

# The typical run of a model. That of a sum of many layers, each of which is late at times, is the sum of their means
# (docs/adr/0005): a layer's cost is its mean run, without those in which something else had the processor.
QUIET_QUANTILE = 0.5
_INTERRUPTED = 2.0  # times the median

# Nothing that a runtime executes takes less, and the clock would not see it.
LEAST_US = 0.5

# The source, among the circumstances, of what was seen elsewhere and not timed under our protocol.
OBSERVED = "observed"

DATA_DEPENDENT = frozenset({"NonZero", "NonMaxSuppression", "TopK", "Loop", "If", "Scan", "Unique", "Compress"})


@dataclass(frozen=True, slots=True)
class Protocol:
    """How often to time.

    Attributes:
        version: Changes when times taken under it are no longer comparable with older ones.
        passes: Passes over a group that are always made.
        most_passes: Passes after which a group is given up as it is.
        fewest_passes: Passes that are made although they take longer than `enough_us`.
        enough_us: A group that has taken as long is done, whatever its times say: what is slow is steady.
        agreement: A time is known when its standard error is at most this share of it.
        reference_every_us: Time between two runs of the reference kernel.
        handover_every_us: Time between two looks at whether the threads are near each other.
        patience_us: Longest wait for them to be, if nothing ends it before.
        cold_start_us: What takes less to go around goes around once untimed at each of its turns.
        turn_us: Time of a turn of that, which goes around several times.
        most_runs: Runs in a turn, at most; there is always one.
    """

    version: int = 5
    passes: int = 8
    most_passes: int = 24
    fewest_passes: int = 3
    enough_us: float = 30_000_000.0
    agreement: float = 0.02
    reference_every_us: float = 100_000.0
    handover_every_us: float = 20_000.0
    patience_us: float = 60_000_000.0
    cold_start_us: float = 50_000.0
    turn_us: float = 10_000.0
    most_runs: int = 5


@dataclass(frozen=True)
class Measurement:
    """What was measured.

    Attributes:
        signature: Of the sequence that was timed.
        rounds_us: Raw time of each run, a tuple for each pass, in the order taken.
        reference_us: Latest time of the reference kernel before each of these.
        stable: Whether they agree.
        overhead_us: What of each time is the call and not the layers; 0 for a whole model, whose user pays for it.
            Decides what is typical: the median run of a whole model, the mean run of what is a part of one.
        data_dependent: Whether the time depends on the values fed, which were synthetic.
        circumstances: Host, runtime and load at the time; JSON-able.
        measured_at: UTC, ISO 8601.
    """

    signature: str
    rounds_us: tuple[tuple[float, ...], ...]
    reference_us: tuple[float, ...]
    stable: bool
    overhead_us: float = 0.0
    data_dependent: bool = False
    circumstances: Mapping[str, Any] = field(default_factory=dict)
    measured_at: str = ""

    @property
    def times_us(self) -> tuple[float, ...]:
        """Every raw time, in the order taken."""
        return tuple(t for times in self.rounds_us for t in times)

    @property
    def observed(self) -> bool:
        """Whether it was seen elsewhere, as one latency, and not timed under our protocol."""
        return self.circumstances.get("source") == OBSERVED

    @property
    def latency_us(self) -> float:
        """What a typical run takes of a whole model, and what layers add to that of theirs."""
        if not self.overhead_us:
            return quiet_latency_us(self.times_us)
        return self._of_layers(mean_latency_us(self.times_us))

    @property
    def interval_us(self) -> tuple[float, float]:
        """90% interval of `latency_us`: the order statistics around a median, the standard error of a mean."""
        times = sorted(self.times_us)
        if self.overhead_us:
            kept = _uninterrupted(times)
            mean, error = float(np.mean(kept)), 1.645 * float(np.std(kept)) / math.sqrt(len(kept))
            return self._of_layers(max(times[0], mean - error)), self._of_layers(min(times[-1], mean + error))
        spread = 1.645 * math.sqrt(len(times) * QUIET_QUANTILE * (1 - QUIET_QUANTILE))
        centre = len(times) * QUIET_QUANTILE
        low = times[max(0, math.floor(centre - spread))]
        high = times[min(len(times) - 1, math.ceil(centre + spread))]
        return min(low, self.latency_us), max(high, self.latency_us)

    def _of_layers(self, time_us: float) -> float:
        return max(LEAST_US, time_us - self.overhead_us)


@dataclass(frozen=True, slots=True)
class Timing:
    """What all measurements of one sequence on one system say together: a layer of two models is timed in both.

    Attributes:
        latency_us: The median of theirs.
        interval_us: 90%, and as wide as they differ.
        call_us: The same median of a call by itself, with what it costs beside its layers.
        measured_at: When the first and the last was made; UTC, ISO 8601.
    """

    latency_us: float
    interval_us: tuple[float, float]
    call_us: float
    measured_at: tuple[str, str]

    @classmethod
    def of(cls, measurements: Sequence[Measurement]) -> "Timing":
        """Of at least one measurement of one sequence."""
        latencies_us = [m.latency_us for m in measurements]
        lows, highs = zip(*(m.interval_us for m in measurements), strict=True)
        return cls(
            latency_us=median(latencies_us),
            interval_us=(min(median(lows), *latencies_us), max(median(highs), *latencies_us)),
            call_us=median(quiet_latency_us(m.times_us) for m in measurements),
            measured_at=(min(m.measured_at for m in measurements), max(m.measured_at for m in measurements)),
        )


def quiet_latency_us(times_us: Sequence[float]) -> float:
    """The quantile that stands for all runs of a model."""
    return float(np.quantile(np.asarray(times_us), QUIET_QUANTILE))


def mean_latency_us(times_us: Sequence[float]) -> float:
    """The mean of all runs of a layer but those that were interrupted."""
    return float(np.mean(_uninterrupted(times_us)))


def _uninterrupted(times_us: Sequence[float]) -> np.ndarray:
    times = np.asarray(times_us)
    return np.asarray(times[times <= _INTERRUPTED * np.median(times)])


def is_data_dependent(sequence: LayerSequence) -> bool:
    """Whether a sequence's time depends on the values that it is fed."""
    return any(layer.op_type in DATA_DEPENDENT for layer in sequence.layers)


def reference_sequence(size: int = 256) -> LayerSequence:
    """The reference kernel: a square float32 matrix product, 2 * size**3 floating-point operations."""
    square = TensorType("float32", (size, size))
    return LayerSequence(
        layers=(SequenceLayer("MatMul", "", 1, {}, (0, 1), (2,)),),
        values=(Value(square, "input"), Value(square, "constant"), Value(square, "internal")),
        outputs=(2,),
    )


@contextmanager
def pinned(cpus: int) -> Iterator[tuple[int, ...]]:
    """Keep this process on as many CPUs as can be busy at a time; gives their numbers, () where it cannot be done.

    The last CPUs are taken, because interrupts are served by the first.
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
    """Quiet latency of a network timed alone: for what a system can do, before there is a reference to compare with.

    Raises:
        MeasurementError: The network failed, or the clock did not move during a run.
    """
    times: list[float] = []
    runner.run()
    begin = clock_ns()
    while len(times) < 5 or (clock_ns() - begin) / 1000 < budget_us:
        times.append(timed_us(runner, clock_ns))
    return quiet_latency_us(times)


def timed_us(runner: Runner, clock_ns: Callable[[], int]) -> float:
    """Time of one run.

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
    """What users of the noisy machine see, over the quiet latency: the typical factor for p50, p90 and p99."""
    factors = []
    for measurement in measurements:
        if measurement.observed:  # one number says nothing of how runs differ
            continue
        times = np.asarray(measurement.times_us)
        factors.append(np.quantile(times, (0.5, 0.9, 0.99)) / np.quantile(times, QUIET_QUANTILE))
    typical = np.median(factors, axis=0) if factors else np.ones(3)
    return dict(zip(("p50", "p90", "p99"), (float(max(1.0, f)) for f in typical), strict=True))


def now() -> str:
    """The time that records carry, fine enough to tell two measurements of one layer apart."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")
