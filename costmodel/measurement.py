"""The measurement protocol: what is timed, how often, and when it is believed.

A shared machine swings by 10% and more within a minute; a low quantile of many short runs is steady. So runs come
in rounds spread over time, a reference kernel is timed before each round, and rounds are added until enough of
them agree. Every raw time is kept. See docs/adr/0003.
"""

import gc
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import numpy as np

from costmodel.errors import MeasurementError
from costmodel.graph import TensorType
from costmodel.runtimes import Runner
from costmodel.sequence import LayerSequence, SequenceLayer, Value

__all__ = [
    "QUIET_QUANTILE",
    "Measurement",
    "Protocol",
    "agreeing_rounds",
    "capability_latency_us",
    "is_data_dependent",
    "jitter",
    "measure",
    "now",
    "pinned",
    "quiet_latency_us",
    "reference_sequence",
]

# The latency of the quiet machine: low enough to leave out what others did to us, high enough not to be decided
# by a single lucky run (docs/adr/0003).
QUIET_QUANTILE = 0.2

DATA_DEPENDENT = frozenset({"NonZero", "NonMaxSuppression", "TopK", "Loop", "If", "Scan", "Unique", "Compress"})


@dataclass(frozen=True, slots=True)
class Protocol:
    """What to measure.

    Attributes:
        version: Changes when times taken under it are no longer comparable with older ones.
        rounds: Rounds that are always taken.
        most_rounds: Rounds after which an unstable measurement is given up as it is.
        round_us: Time that one round should take.
        most_runs: Runs in a round, at most; there is always one.
        warm_up_us: Time of untimed runs before the first round; there is always one run.
        agreement: Rounds agree when their low quantiles differ by no more than this share.
        reference_drift: A round counts as quiet when the reference kernel took at most this share longer than on
            the quiet machine.
    """

    version: int = 1
    rounds: int = 5
    most_rounds: int = 15
    round_us: float = 10_000.0
    most_runs: int = 40
    warm_up_us: float = 5_000.0
    agreement: float = 0.03
    reference_drift: float = 0.10


@dataclass(frozen=True)
class Measurement:
    """What was measured.

    Attributes:
        signature: Of the sequence that was timed.
        rounds_us: Raw time of each run, a tuple for each round, in the order taken.
        reference_us: Time of the reference kernel before each round.
        stable: Whether enough rounds agreed.
        data_dependent: Whether the time depends on the values fed, which were synthetic.
        circumstances: Host, runtime and load at the time; JSON-able.
        measured_at: UTC, ISO 8601.
    """

    signature: str
    rounds_us: tuple[tuple[float, ...], ...]
    reference_us: tuple[float, ...]
    stable: bool
    data_dependent: bool = False
    circumstances: Mapping[str, Any] = field(default_factory=dict)
    measured_at: str = ""

    @property
    def times_us(self) -> tuple[float, ...]:
        """Every raw time, in the order taken."""
        return tuple(t for times in self.rounds_us for t in times)

    @property
    def latency_us(self) -> float:
        """Latency of back-to-back runs on the quiet machine."""
        return quiet_latency_us(self.times_us)

    @property
    def interval_us(self) -> tuple[float, float]:
        """Distribution-free 90% interval of `latency_us`: the order statistics around the quantile."""
        times = sorted(self.times_us)
        spread = 1.645 * math.sqrt(len(times) * QUIET_QUANTILE * (1 - QUIET_QUANTILE))
        centre = len(times) * QUIET_QUANTILE
        low = times[max(0, math.floor(centre - spread))]
        high = times[min(len(times) - 1, math.ceil(centre + spread))]
        return min(low, self.latency_us), max(high, self.latency_us)


def quiet_latency_us(times_us: Sequence[float]) -> float:
    """The low quantile that stands for the quiet machine; the same one for layers, sequences and models."""
    return float(np.quantile(np.asarray(times_us), QUIET_QUANTILE))


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
def pinned(threads: int) -> Iterator[tuple[int, ...]]:
    """Keep this process on as many CPUs as a layer has threads; gives their numbers, () where it cannot be done.

    The last CPUs are taken, because interrupts are served by the first.
    """
    if not hasattr(os, "sched_setaffinity"):
        yield ()
        return
    before = os.sched_getaffinity(0)
    chosen = tuple(sorted(before)[-threads:])
    os.sched_setaffinity(0, chosen)
    try:
        yield chosen
    finally:
        os.sched_setaffinity(0, before)


def measure(
    runner: Runner,
    reference: Runner,
    quiet_reference_us: float,
    protocol: Protocol,
    clock_ns: Callable[[], int] = time.perf_counter_ns,
) -> tuple[tuple[tuple[float, ...], ...], tuple[float, ...], bool]:
    """Time a loaded network.

    Args:
        runner: What is timed.
        reference: The reference kernel, timed before each round.
        quiet_reference_us: What the reference kernel takes on the quiet machine.
        protocol: Rounds, runs and when to stop.
        clock_ns: A monotonic clock, in nanoseconds.

    Returns:
        Raw times of the runs by round, times of the reference kernel, and whether enough rounds agree.

    Raises:
        MeasurementError: The network failed, or the clock did not move during a run.
    """

    def timed_us(one: Runner) -> float:
        return _timed_us(one, clock_ns)

    collecting = gc.isenabled()
    gc.disable()
    try:
        spent = once = timed_us(runner)
        while spent < protocol.warm_up_us:
            took = timed_us(runner)
            spent += took
            once = min(once, took)  # a burst of noise must not decide how many runs a round has
        runs = max(1, min(protocol.most_runs, int(protocol.round_us / once)))
        rounds: list[tuple[float, ...]] = []
        references: list[float] = []
        while True:
            # The first run of the reference brings it back into the caches.
            timed_us(reference)
            references.append(timed_us(reference))
            timed_us(runner)  # and this one brings back ours: a run follows itself, as the definition says
            rounds.append(tuple(timed_us(runner) for _ in range(runs)))
            if len(rounds) < protocol.rounds:
                continue
            stable = agreeing_rounds(rounds, references, quiet_reference_us, protocol) * 2 > protocol.rounds
            if stable or len(rounds) >= protocol.most_rounds:
                return tuple(rounds), tuple(references), stable
    finally:
        if collecting:
            gc.enable()


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
        times.append(_timed_us(runner, clock_ns))
    return quiet_latency_us(times)


def _timed_us(runner: Runner, clock_ns: Callable[[], int]) -> float:
    start = clock_ns()
    runner.run()
    took_us = (clock_ns() - start) / 1000
    if took_us <= 0:
        raise MeasurementError("the clock did not move during a run: there is no usable time")
    return took_us


def agreeing_rounds(
    rounds_us: Sequence[Sequence[float]],
    reference_us: Sequence[float],
    quiet_reference_us: float,
    protocol: Protocol,
) -> int:
    """How many quiet rounds agree with the fastest one."""
    lows = [quiet_latency_us(times) for times in rounds_us]
    limit = min(lows) * (1 + protocol.agreement)
    quiet = quiet_reference_us * (1 + protocol.reference_drift)
    return sum(low <= limit and used <= quiet for low, used in zip(lows, reference_us, strict=True))


def jitter(measurements: Iterable[Measurement]) -> dict[str, float]:
    """What users of the noisy machine see, over the quiet latency: the typical factor for p50, p90 and p99."""
    factors = []
    for measurement in measurements:
        times = np.asarray(measurement.times_us)
        factors.append(np.quantile(times, (0.5, 0.9, 0.99)) / measurement.latency_us)
    typical = np.median(factors, axis=0) if factors else np.ones(3)
    return dict(zip(("p50", "p90", "p99"), (float(max(1.0, f)) for f in typical), strict=True))


def now() -> str:
    """The time that records carry, fine enough to tell two measurements of one layer apart."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")
