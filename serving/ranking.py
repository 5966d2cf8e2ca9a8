"""Ranking: which system, or which model, meets a latency objective, and what that costs."""

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
    """One model on one system.

    Attributes:
        model: Its name.
        system: Its name.
        latency_us: On the quiet machine.
        interval_us: Of that.
        slo_latency_us: The latency that the objective is about.
        slo_interval_us: Of that.
        meets: Whether it is within the objective; None without one.
        within_interval: Whether all of the interval is, if it meets it, or none of it, if it fails; None without an
            objective.
        exceeds_by_us: By how much it fails; negative is what is left; None without an objective.
        usd_per_million: One million inferences, one after the other; None where no price is known.
        coverage: Share of the latency by source.
        version: Of the regressor that answered.
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
        """An entry of `costmodel rank --json`."""
        return asdict(self)


def rank(
    estimates: Iterable[Estimate],
    *,
    slo_us: float | None = None,
    quantile: str = "p50",
    usd_per_hour: Mapping[str, float] | None = None,
) -> list[Ranked]:
    """Estimates in the order of preference: what meets the objective first, the cheapest of that, then the fastest.

    Args:
        estimates: Of models on systems.
        slo_us: The latency that is not to be exceeded; None for no objective.
        quantile: Which latency that is, one of `QUANTILES`.
        usd_per_hour: Prices of systems by name.
    """
    ranked = [_ranked(estimate, slo_us, quantile, usd_per_hour or {}) for estimate in estimates]
    return sorted(ranked, key=_preference)


def cheapest(ranked: Sequence[Ranked]) -> Ranked | None:
    """The first that meets the objective and has a price; the first that meets it where none has."""
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
