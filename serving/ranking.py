"""Ranks systems and models by a latency objective and by price."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from costmodel.estimate.estimate import Estimate

__all__ = ["QUANTILES", "Ranked", "cheapest", "rank"]

# Latencies that an objective may be about: as users see them, or on the quiet machine.
QUANTILES = ("p50", "p90", "p99", "quiet")
_SECONDS_AN_HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class Ranked:
    """One model on one system, as an entry of a ranking.

    Attributes:
        model: Name of the model.
        system: Name of the system.
        latency_us: Latency on the quiet machine, in microseconds.
        interval_us: Interval of `latency_us`.
        slo_latency_us: Latency at the quantile of the objective, in microseconds.
        slo_interval_us: Interval of `slo_latency_us`.
        meets: Whether `slo_latency_us` is within the objective; None without an objective.
        within_interval: Whether the whole interval meets the objective, if the latency does, or all of it fails, if the
            latency fails; None without an objective.
        exceeds_by_us: Microseconds by which the latency exceeds the objective; negative if it meets it; None without
            one.
        usd_per_million: Price of one million inferences, one after the other; None where no price is known.
        coverage: Share of the latency by source.
        version: Version of the regressor that answered.
    """

    model: str
    system: str
    latency_us: float
    interval_us: tuple[float, float]
    slo_latency_us: float
    slo_interval_us: tuple[float, float]
    meets: bool | None
    within_interval: bool | None
    exceeds_by_us: float | None
    usd_per_million: float | None
    coverage: Mapping[str, float]
    version: str

    def to_dict(self) -> dict[str, Any]:
        """Returns the entry as `costmodel rank --json` prints it."""
        return asdict(self)


def rank(
    estimates: Iterable[Estimate],
    *,
    slo_us: float | None = None,
    quantile: str = "p50",
    usd_per_hour: Mapping[str, float] | None = None,
) -> list[Ranked]:
    """Sorts estimates by preference: those that meet the objective first, of these the cheapest, then the fastest.

    Args:
        estimates: Estimates of models on systems.
        slo_us: Latency that must not be exceeded, in microseconds; None for no objective.
        quantile: Quantile that the objective refers to, one of `QUANTILES`.
        usd_per_hour: Price of each system per hour, by name.
    """
    ranked = [_ranked(estimate, slo_us, quantile, usd_per_hour or {}) for estimate in estimates]
    return sorted(ranked, key=_preference)


def cheapest(ranked: Sequence[Ranked]) -> Ranked | None:
    """Returns the first entry that meets the objective and has a price; without prices, the first that meets it."""
    meeting = [one for one in ranked if one.meets is not False]
    return next((one for one in meeting if one.usd_per_million is not None), meeting[0] if meeting else None)


def _ranked(estimate: Estimate, slo_us: float | None, quantile: str, prices: Mapping[str, float]) -> Ranked:
    # A system of which no noise is known has no other latency than the quiet one.
    factor = estimate.jitter.get(quantile, 1.0)
    latency_us = factor * estimate.latency_us
    low, high = (factor * end for end in estimate.interval_us)
    meets = None if slo_us is None else latency_us <= slo_us
    price = prices.get(estimate.system)
    return Ranked(
        model=estimate.model,
        system=estimate.system,
        latency_us=estimate.latency_us,
        interval_us=estimate.interval_us,
        slo_latency_us=latency_us,
        slo_interval_us=(low, high),
        meets=meets,
        within_interval=None if slo_us is None else (high <= slo_us if meets else low > slo_us),
        exceeds_by_us=None if slo_us is None else latency_us - slo_us,
        usd_per_million=None if price is None else price / _SECONDS_AN_HOUR * latency_us,
        coverage=estimate.coverage,
        version=estimate.predictor.version,
    )


def _preference(one: Ranked) -> tuple[bool, bool, float, float]:
    fails = one.meets is False
    unpriced = one.usd_per_million is None
    # What fails is ordered by how little it fails, whatever it costs.
    cost = 0.0 if fails or one.usd_per_million is None else one.usd_per_million
    return fails, unpriced and not fails, cost, one.slo_latency_us
