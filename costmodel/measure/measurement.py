"""Measurements with their raw times, and the latencies that are derived from them.

On a shared machine, times vary by 10% and more within a minute. The runs of a network are therefore spread over time, a
reference kernel is timed between them, and runs are added until their times agree. Every raw time is kept. See
docs/adr/0003 and 0005.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from statistics import median
from typing import Any, Literal

from costmodel.ir.fused import expand
from costmodel.ir.sequence import LayerSequence
from costmodel.measure.statistics import mean_interval_us, mean_us, median_interval_us, median_us

__all__ = [
    "MIN_LATENCY_US",
    "OBSERVED",
    "Kind",
    "Measurement",
    "Timing",
    "is_data_dependent",
    "kind_of",
    "now",
]

# What was timed: a whole model, or one layer or a sequence of several layers that occurs in models.
Kind = Literal["layer", "sequence", "model"]

# Smallest latency of a layer: no layer that a runtime executes takes less, and the clock could not resolve it.
MIN_LATENCY_US = 0.5

# With several threads, the probes' chain of tiny products passes work between the CPUs all the time, and takes twice as
# long where the hypervisor has moved them apart. Layers of 2 to 20 us then take 1.4 times as long in the median, those
# of 20 us and more 1.1 times and less: one number for all of them, whichever probe is slow (docs/adr/0016).
_MOST_SLOWDOWN_OF_THREADS = 1.2

# Value of "source" in the environment of a latency that was observed elsewhere and not timed under this protocol.
OBSERVED = "observed"

DATA_DEPENDENT = frozenset({"NonZero", "NonMaxSuppression", "TopK", "Loop", "If", "Scan", "Unique", "Compress"})


@dataclass(frozen=True, slots=True)
class Timing:
    """The latency of one sequence on one system, from one measurement of it or from several.

    If some of several measurements are stable, only these count; otherwise all of them do.

    Attributes:
        latency_us: Median of the latencies of the measurements that count, in microseconds.
        interval_us: 90% interval in microseconds: the medians of the lower and upper bounds of these measurements,
            widened to include the latency of each of them.
        call_us: Median, over these measurements, of the median time of a run, call overhead included, in microseconds.
        measured_at: Times at which the first and the last measurement ended, UTC in ISO 8601.
        stable: Whether the times agree and the machine was quiet, in one measurement at least.
    """

    latency_us: float
    interval_us: tuple[float, float]
    call_us: float
    measured_at: tuple[str, str]
    stable: bool = True

    @classmethod
    def combine(cls, timings: Sequence["Timing"]) -> "Timing":
        """Returns one timing for a sequence on a system from the timings of its measurements, at least one."""
        stable = [one for one in timings if one.stable]
        counted = stable or timings
        latencies_us = [one.latency_us for one in counted]
        lows, highs = zip(*(one.interval_us for one in counted), strict=True)
        firsts, lasts = zip(*(one.measured_at for one in timings), strict=True)
        return cls(
            latency_us=median(latencies_us),
            interval_us=(min(median(lows), *latencies_us), max(median(highs), *latencies_us)),
            call_us=median(one.call_us for one in counted),
            measured_at=(min(firsts), max(lasts)),
            stable=bool(stable),
        )


@dataclass(frozen=True)
class Measurement:
    """The times of one layer sequence or whole model on one system, with the environment in which they were taken.

    Attributes:
        signature: Signature of the timed sequence.
        kind: What was timed: "layer", "sequence" or "model". The latency of a whole model is the median time of its
            runs, including the call overhead, which its users experience as well; the latency of a layer or sequence is
            the mean time of its runs without interrupted ones, minus the call overhead. If the machine was not quiet
            while runs were kept, either is divided by the slowdown of the probes of the machine's state, with several
            threads by 1.2 at most.
        pass_times_us: Raw time of each run in microseconds, a tuple for each pass, in the order taken.
        reference_us: For each pass, the time, in microseconds, that the reference kernel took when it was last timed
            before the last run in that pass.
        stable: Whether the times agree well enough and the machine was quiet.
        overhead_us: Call overhead, in microseconds, that each raw time contains and that is subtracted for the latency;
            0 for a whole model, from which nothing is subtracted.
        data_dependent: Whether the time depends on the values of the inputs, which were synthetic.
        environment: State of host and runtime while measuring, including the load; JSON-serialisable.
        measured_at: Time at which the measurement ended, UTC in ISO 8601.
    """

    signature: str
    kind: Kind
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
        """Whether the latency was observed elsewhere, as one number, and not timed under the measurement protocol."""
        return self.environment.get("source") == OBSERVED

    @property
    def timing(self) -> Timing:
        """Latency, 90% interval and median time of a run, derived from the raw times."""
        times_us = self.times_us
        if self.kind == "model":
            latency_us, (low_us, high_us), least_us = median_us(times_us), median_interval_us(times_us), 0.0
        else:
            least_us = MIN_LATENCY_US
            low, high = mean_interval_us(times_us)
            latency_us = self._without_overhead(mean_us(times_us))
            low_us, high_us = self._without_overhead(low), self._without_overhead(high)
        # With one thread, layers and models take longer by as much as the probes do, on average. For a single one that
        # is uncertain, so the interval spans from times that are all divided to times that are not.
        slowdown = self._slowdown
        return Timing(
            max(least_us, latency_us / slowdown),
            (max(least_us, low_us / slowdown), high_us),
            median_us(times_us),
            (self.measured_at, self.measured_at),
            self.stable,
        )

    @property
    def latency_us(self) -> float:
        """Latency on the quiet machine in microseconds: for a model the median time of a run, call overhead included.

        For a layer or sequence it is the mean without interrupted runs, minus the call overhead. If the machine was not
        quiet while runs were kept, it is divided by the slowdown of the probes of the machine's state, with several
        threads by 1.2 at most.
        """
        return self.timing.latency_us

    @property
    def interval_us(self) -> tuple[float, float]:
        """Lower and upper bound of the 90% interval of `latency_us`, in microseconds.

        For a model they are order statistics of its run times, around the median. For a layer or sequence they follow
        from the standard error of the mean. If the machine was not quiet while runs were kept, the lower bound is
        divided by the slowdown of the probes of the machine's state, with several threads by 1.2 at most.
        """
        return self.timing.interval_us

    @property
    def _slowdown(self) -> float:
        """How much longer the runs took than on the quiet machine, as the probes of its state tell."""
        slowdown = float(self.environment.get("slowdown", 1.0))
        return min(slowdown, _MOST_SLOWDOWN_OF_THREADS) if self.environment.get("threads", 1) > 1 else slowdown

    def _without_overhead(self, time_us: float) -> float:
        return max(MIN_LATENCY_US, time_us - self.overhead_us)


def kind_of(sequence: LayerSequence, *, whole: bool) -> Kind:
    """Returns the kind of a measurement of `sequence`: "model" if `whole`, otherwise "layer" or "sequence".

    Args:
        sequence: Sequence that was timed.
        whole: Whether it was timed as a whole model.
    """
    if whole:
        return "model"
    return "layer" if len(sequence.layers) == 1 else "sequence"


def is_data_dependent(sequence: LayerSequence) -> bool:
    """Returns whether the time of a sequence depends on the values of its inputs."""
    return any(layer.op_type in DATA_DEPENDENT for layer in expand(sequence).layers)


def now() -> str:
    """Returns the current UTC time in ISO 8601, with milliseconds to distinguish two measurements of one layer."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")
