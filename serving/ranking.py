"""Ranks systems and models by a latency objective, alone or under traffic, and by price."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from typing_extensions import TypedDict

from costmodel.errors import TrafficError
from costmodel.estimate.estimate import Coverage, Estimate
from costmodel.serving.capacity import TrafficQuestion, plan_capacity
from costmodel.traffic.objective import LatencyObjective
from costmodel.traffic.variation import Variation
from costmodel.units import usd_per_million

__all__ = ["QUANTILES", "Criteria", "Quantile", "RankAnswer", "RankError", "Ranked", "cheapest", "in_order"]

# Latencies that an objective may be about: as users see them, or on the quiet machine.
Quantile = Literal["p50", "p90", "p99", "quiet"]
QUANTILES: tuple[str, ...] = get_args(Quantile)


@dataclass(frozen=True, slots=True)
class Ranked:
    """Entry of a ranking: one model on one system.

    Attributes:
        model: Name of the model.
        system: Name of the system.
        latency_us: Latency on the quiet machine, in microseconds.
        interval_us: Lower and upper bound of `latency_us`, in microseconds.
        slo_latency_us: Latency at the quantile of the objective, in microseconds; with arrivals, that of requests that
            wait for their turn on `replicas` replicas.
        slo_interval_us: Lower and upper bound of `slo_latency_us`, in microseconds.
        quantile_known: Whether it is known how latencies vary on the system. If not, `slo_latency_us` is that on the
            quiet machine, whatever the quantile of the objective.
        meets: Whether `slo_latency_us` is within the objective; None without an objective.
        within_interval: Whether `meets` is the same over the whole interval: both bounds of `slo_interval_us` are on
            the same side of the objective as `slo_latency_us`; with arrivals, whether the objective can be met, by any
            number of replicas, at both bounds of `latency_us` or at none; None without an objective.
        exceeds_by_us: Microseconds by which `slo_latency_us` exceeds the objective; negative if it is within the
            objective; None without an objective.
        usd_per_million: Price in US dollars of one million inferences, one after the other; with arrivals, of a million
            requests on `replicas` replicas. None if no price of the system is known, or if no number of replicas is
            enough.
        replicas: Number of replicas that carry the arrivals within the objective; None without any, or if no number
            is enough.
        peak_memory_bytes: Peak resident memory in bytes of a process that runs the model; None if it is not known.
        peak_memory_interval_bytes: Lower and upper bound of `peak_memory_bytes`; None if it is not known.
        fits: Whether `peak_memory_bytes` is within the memory that there is; None if one of the two is not known.
        fits_within_interval: Whether `fits` is the same over the whole interval: both bounds of
            `peak_memory_interval_bytes` are on the same side of the memory as `peak_memory_bytes`; None like `fits`.
        coverage: Shares of the latency by source of the costs.
        version: Version of the regressor that predicted costs; "none" if all of them are measured.
    """

    model: str
    system: str
    latency_us: float
    interval_us: tuple[float, float]
    slo_latency_us: float
    slo_interval_us: tuple[float, float]
    quantile_known: bool
    meets: bool | None
    within_interval: bool | None
    exceeds_by_us: float | None
    usd_per_million: float | None
    replicas: int | None
    peak_memory_bytes: int | None
    peak_memory_interval_bytes: tuple[int, int] | None
    fits: bool | None
    fits_within_interval: bool | None
    coverage: Coverage
    version: str


class RankError(TypedDict):
    """Entry for a model that has no estimate on a system, with the reason."""

    model: str
    system: str
    error: str


class RankAnswer(TypedDict):
    """A ranking of models on systems: entries that fit and meet the latency objective first, by price, then by latency.

    Attributes:
        slo_us: Latency objective in microseconds; None without one.
        quantile: Quantile that the objective refers to: "p50", "p90", "p99", or "quiet" for the quiet machine.
        memory_bytes: Memory in bytes that a process may take; None without a limit.
        arrivals_per_s: Rate of arrivals to carry, in requests a second; None without any.
        best: Cheapest entry that meets the objective and fits into the memory; None if there is none.
        ranking: All entries, the preferred one first.
        failed: Pairs of model and system for which there is no estimate.
    """

    slo_us: float | None
    quantile: str
    memory_bytes: int | None
    arrivals_per_s: float | None
    best: Ranked | None
    ranking: list[Ranked]
    failed: list[RankError]


@dataclass(frozen=True)
class Criteria:
    """What the entries of a ranking are judged by.

    Attributes:
        slo_us: Latency that must not be exceeded, in microseconds; None for no objective.
        quantile: Quantile that the objective refers to, one of `QUANTILES`.
        memory_bytes: Memory in bytes that a process may take; None for no limit.
        usd_per_hour: Price of each system in US dollars per hour, by the name of the system.
        arrivals_per_s: Rate of Poisson arrivals that each entry has to carry, on as many replicas as it takes, in
            requests a second; None to price single requests.

    Raises:
        TrafficError: Arrivals are given without an objective, or the objective is about the quiet machine.
    """

    slo_us: float | None = None
    quantile: str = "p50"
    memory_bytes: int | None = None
    usd_per_hour: Mapping[str, float] = field(default_factory=dict)
    arrivals_per_s: float | None = None

    def __post_init__(self) -> None:
        if self.arrivals_per_s is not None and (self.slo_us is None or self.quantile == "quiet"):
            raise TrafficError(
                "a ranking by traffic needs a latency objective at p50, p90 or p99: give one, such as 50 ms at p99"
            )

    def judged(self, estimate: Estimate, variation: Variation | None = None) -> Ranked:
        """Returns the entry of one estimate; with arrivals, this simulates the traffic.

        Args:
            estimate: Estimate of a model on a system.
            variation: How run times vary on the system; None if that is not known, or without arrivals.
        """
        entry = _ranked(estimate, self.slo_us, self.quantile, self.memory_bytes, self.usd_per_hour)
        if self.arrivals_per_s is None or self.slo_us is None:
            return entry
        objective = LatencyObjective(float(self.quantile.removeprefix("p")), self.slo_us)
        question = TrafficQuestion(objective=objective, arrivals_per_s=self.arrivals_per_s)
        return _under_traffic(entry, estimate, question, variation, self.usd_per_hour)


def in_order(entries: Iterable[Ranked]) -> list[Ranked]:
    """Returns the entries of a ranking, the preferred one first.

    Entries that meet the objective come first: those with a known price, in order of price and then of latency, then
    those without one, in order of latency. Entries that fail the objective follow, in order of latency. Models that
    do not fit into the memory come last, in the same order among themselves.
    """
    return sorted(entries, key=_preference)


def cheapest(ranked: Sequence[Ranked]) -> Ranked | None:
    """Returns the cheapest entry of a ranking that fits and meets the objective; without prices, the fastest.

    Args:
        ranked: Entries in the order of `in_order`.

    Returns:
        The entry; None if no entry meets the objective and fits into the memory. Without an objective, every entry
        meets it; without a limit of memory, or if its peak memory is not known, every entry fits.
    """
    meeting = [one for one in ranked if one.meets is not False and one.fits is not False]
    return next((one for one in meeting if one.usd_per_million is not None), meeting[0] if meeting else None)


def _ranked(
    estimate: Estimate, slo_us: float | None, quantile: str, memory_bytes: int | None, prices: Mapping[str, float]
) -> Ranked:
    known = quantile == "quiet" or quantile in estimate.jitter
    factor = estimate.jitter.get(quantile, 1.0)
    latency_us = factor * estimate.latency_us
    low, high = (factor * end for end in estimate.interval_us)
    meets = None if slo_us is None else latency_us <= slo_us
    price = prices.get(estimate.system)
    fits = None
    if estimate.peak_memory_bytes is not None and memory_bytes is not None:
        fits = estimate.peak_memory_bytes <= memory_bytes
    return Ranked(
        model=estimate.model,
        system=estimate.system,
        latency_us=estimate.latency_us,
        interval_us=estimate.interval_us,
        slo_latency_us=latency_us,
        slo_interval_us=(low, high),
        quantile_known=known,
        meets=meets,
        within_interval=None if slo_us is None else (high <= slo_us if meets else low > slo_us),
        exceeds_by_us=None if slo_us is None else latency_us - slo_us,
        usd_per_million=None if price is None else usd_per_million(price, 1e6 / latency_us),
        replicas=None,
        peak_memory_bytes=estimate.peak_memory_bytes,
        peak_memory_interval_bytes=estimate.peak_memory_interval_bytes,
        fits=fits,
        fits_within_interval=None if fits is None else _settled(estimate.peak_memory_interval_bytes, memory_bytes),
        coverage=estimate.coverage,
        version=estimate.predictor.version,
    )


def _under_traffic(
    one: Ranked,
    estimate: Estimate,
    question: TrafficQuestion,
    variation: Variation | None,
    prices: Mapping[str, float],
) -> Ranked:
    """Returns an entry with the latency, the replicas and the price that it has under traffic.

    Args:
        one: The entry for one request at a time.
        estimate: Estimate of the entry.
        question: The traffic and the latency objective.
        variation: How run times vary on the system; None if that is not known.
        prices: Price of each system in US dollars per hour, by the name of the system.
    """
    assert question.objective is not None
    slo_us = question.objective.latency_us
    capacity = plan_capacity({1: estimate}, variation, question, usd_per_hour=prices.get(estimate.system))
    meets = capacity.replicas is not None and capacity.result.meets is True
    slowest_per_s, fastest_per_s = capacity.highest_rate_interval_per_s
    # Where no number of replicas is enough, a request that does not wait takes too long already.
    latency_us = (capacity.result.objective_us if meets else None) or one.slo_latency_us
    low, high = (latency_us / one.slo_latency_us * end for end in one.slo_interval_us)
    return replace(
        one,
        slo_latency_us=latency_us,
        slo_interval_us=(low, high),
        meets=meets,
        within_interval=slowest_per_s > 0 if meets else fastest_per_s == 0,
        exceeds_by_us=latency_us - slo_us,
        usd_per_million=capacity.usd_per_million,
        replicas=capacity.replicas if meets else None,
    )


def _settled(interval_bytes: tuple[int, int] | None, memory_bytes: int | None) -> bool | None:
    """Returns whether both bounds of an interval are on the same side of the memory; None if one is not known."""
    if interval_bytes is None or memory_bytes is None:
        return None
    low, high = interval_bytes
    return high <= memory_bytes or low > memory_bytes


def _preference(one: Ranked) -> tuple[bool, bool, bool, float, float]:
    fails = one.meets is False
    unpriced = one.usd_per_million is None
    # Entries that fail the objective are ordered by latency, whatever their price.
    cost = 0.0 if fails or one.usd_per_million is None else one.usd_per_million
    return one.fits is False, fails, unpriced and not fails, cost, one.slo_latency_us
