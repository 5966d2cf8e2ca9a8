"""The question that a tuner answers, and the worth of a setting by it."""

from dataclasses import dataclass
from typing import Literal, get_args

from costmodel.errors import TuningError
from costmodel.serving.tuning.settings import Setting
from costmodel.traffic.objective import MAX_BATCH, LatencyObjective
from costmodel.units import usd_per_million

__all__ = ["OBJECTIVES", "Objective", "Performance", "TuneQuestion"]

Objective = Literal["latency", "throughput", "cost"]
OBJECTIVES: tuple[str, ...] = get_args(Objective)


@dataclass(frozen=True, slots=True)
class Performance:
    """The performance of a model under a setting, predicted or measured.

    Attributes:
        latency_us: Latency of a run on the quiet machine, in microseconds, beside the other sessions of the setting.
        interval_us: Lower and upper bound of `latency_us`, in microseconds.
        slo_latency_us: Latency at the percentile of the latency objective, in microseconds; None without an objective.
        meets: Whether `slo_latency_us` is within the objective; None without one.
        throughput_per_s: Samples a second of back-to-back runs in all sessions together.
        usd_per_million: Price in US dollars of a million samples at that throughput; None if no price is known.
    """

    latency_us: float
    interval_us: tuple[float, float]
    slo_latency_us: float | None
    meets: bool | None
    throughput_per_s: float
    usd_per_million: float | None


@dataclass(frozen=True, slots=True)
class TuneQuestion:
    """The aim for which the settings are chosen.

    Attributes:
        objective: What is to be best: "latency" of a run with one sample, "throughput", or "cost" of a million samples.
        slo: Latency that a percentile of the runs must not exceed; None for no limit.
        usd_per_hour: Price of the machine in US dollars per hour; None if it is not known.
        max_batch: Largest batch size; batches are formed for throughput and cost only.

    Raises:
        TuningError: The cost is asked about without a price, or the batch is out of range.
    """

    objective: Objective = "latency"
    slo: LatencyObjective | None = None
    usd_per_hour: float | None = None
    max_batch: int = 32

    def __post_init__(self) -> None:
        """Checks that the values go together."""
        if self.objective not in OBJECTIVES:
            raise TuningError(f"{self.objective!r} is no objective: choose one of {', '.join(OBJECTIVES)}")
        if self.objective == "cost" and self.usd_per_hour is None:
            raise TuningError(
                "the cost depends on the price of the machine, which is not in the catalogue: give it, in dollars "
                "an hour (--price, or usd_per_hour over HTTP)"
            )
        if not 1 <= self.max_batch <= MAX_BATCH:
            raise TuningError(f"batches of {self.max_batch} are not considered: give a size from 1 to {MAX_BATCH}")

    @property
    def batches(self) -> tuple[int, ...]:
        """Batch sizes to consider: the powers of two up to the largest one."""
        return (1,) if self.objective == "latency" else tuple(2**power for power in range(self.max_batch.bit_length()))

    @property
    def side_by_side(self) -> bool:
        """Whether several sessions beside each other can serve the objective."""
        return self.objective != "latency"

    def performance(
        self, setting: Setting, latency_us: float, interval_us: tuple[float, float], slo_factor: float = 1.0
    ) -> Performance:
        """Returns what a latency means for the objective.

        Args:
            setting: Setting that has the latency.
            latency_us: Latency of a run in microseconds.
            interval_us: Lower and upper bound of the latency in microseconds.
            slo_factor: Ratio of the latency at the percentile of the latency objective to `latency_us`.
        """
        throughput_per_s = setting.samples / latency_us * 1e6
        price = self.usd_per_hour
        slo_latency_us = None if self.slo is None else slo_factor * latency_us
        return Performance(
            latency_us=latency_us,
            interval_us=interval_us,
            slo_latency_us=slo_latency_us,
            meets=None if self.slo is None or slo_latency_us is None else slo_latency_us <= self.slo.latency_us,
            throughput_per_s=throughput_per_s,
            usd_per_million=None if price is None else usd_per_million(price, throughput_per_s),
        )

    def score(self, setting: Setting, latency_us: float) -> float:
        """Returns the number by which settings are compared, lower is better: microseconds a run, or a sample.

        The price of the machine is the same for each of its settings, so that the cheapest one has the highest
        throughput.
        """
        return latency_us if self.objective == "latency" else latency_us / setting.samples
