"""Ranking: by whether the objective is met, then by price, then by latency."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from costmodel.errors import TrafficError
from costmodel.estimate.estimate import Estimate, PredictorId
from costmodel.serving.ranking import Criteria, Ranked, cheapest, in_order


def _estimate(system: str, latency_us: float, jitter: Mapping[str, float] | None = None) -> Estimate:
    return Estimate(
        model="mine",
        system=system,
        latency_us=latency_us,
        interval_us=(0.9 * latency_us, 1.1 * latency_us),
        interval_level=0.9,
        jitter=jitter if jitter is not None else {"p50": 1.0, "p90": 1.2, "p99": 2.0},
        composition="sequential",
        granularity=1,
        layers=(),
        predictor=PredictorId("lightgbm", "v1"),
    )


def rank(estimates: Sequence[Estimate], **criteria: Any) -> list[Ranked]:
    """Returns the ranking of estimates by some criteria."""
    judge = Criteria(**criteria)
    return in_order(judge.judged(estimate) for estimate in estimates)


def test_the_cheapest_that_meets_the_objective_is_best() -> None:
    """The cheapest candidate that meets the objective is best; those that fail are last, however cheap."""
    found = rank(
        [_estimate("slow", 2000), _estimate("fast", 100), _estimate("enough", 800)],
        slo_us=1000,
        usd_per_hour={"slow": 0.001, "fast": 36.0, "enough": 0.36},
    )
    assert [one.system for one in found] == ["enough", "fast", "slow"]
    assert [one.meets for one in found] == [True, True, False]
    assert [one.exceeds_by_us for one in found] == pytest.approx([-200, -900, 1000])
    assert found[0].usd_per_million == pytest.approx(0.36 / 3600 * 800)
    best = cheapest(found)
    assert best is not None
    assert best.system == "enough"


def test_the_objective_is_about_a_quantile() -> None:
    """The objective applies to a quantile with the system's jitter, which scales the interval too."""
    (found,) = rank([_estimate("one", 900)], slo_us=1000, quantile="p90")
    assert (found.slo_latency_us, found.meets) == (pytest.approx(1080), False)
    assert found.slo_interval_us == pytest.approx((972, 1188))
    assert found.within_interval is False
    (quiet,) = rank([_estimate("one", 900)], slo_us=1000, quantile="quiet")
    assert (quiet.meets, quiet.within_interval) == (True, True)
    (unknown,) = rank([_estimate("one", 900, {})], slo_us=1000, quantile="p90")
    assert unknown.slo_latency_us == 900
    assert (found.quantile_known, quiet.quantile_known, unknown.quantile_known) == (True, True, False)


def test_traffic_needs_replicas_that_cost() -> None:
    """Under traffic the price is that of as many replicas as carry it: the quick system needs fewer than the slow."""
    estimates = [_estimate("slow", 40_000, {}), _estimate("quick", 10_000, {}), _estimate("hopeless", 60_000, {})]
    prices = {"slow": 0.1, "quick": 0.36, "hopeless": 0.01}
    found = rank(estimates, slo_us=50_000, quantile="p99", usd_per_hour=prices, arrivals_per_s=120.0)
    quick, slow, hopeless = found
    assert [one.system for one in found] == ["quick", "slow", "hopeless"]
    assert (quick.replicas, hopeless.replicas) == (2, None)
    assert slow.replicas is not None
    assert slow.replicas > 120 * 0.04
    assert quick.usd_per_million == pytest.approx(2 * 0.36 / 3600 / 120 * 1e6)
    assert slow.usd_per_million == pytest.approx(slow.replicas * 0.1 / 3600 / 120 * 1e6)
    assert [(one.meets, one.usd_per_million is None) for one in found] == [(True, False), (True, False), (False, True)]
    assert 10_000 < quick.slo_latency_us <= 50_000 < hopeless.slo_latency_us
    assert (quick.within_interval, hopeless.within_interval) == (True, True)


@pytest.mark.parametrize(("slo_us", "quantile"), [(None, "p99"), (50_000.0, "quiet")])
def test_traffic_needs_an_objective(slo_us: float | None, quantile: str) -> None:
    """A ranking by traffic without an objective of requests is refused."""
    with pytest.raises(TrafficError, match="needs a latency objective at p50, p90 or p99"):
        rank([_estimate("one", 900)], slo_us=slo_us, quantile=quantile, arrivals_per_s=1.0)


def test_what_fails_is_ordered_by_how_little() -> None:
    """Candidates that fail are ordered by how much they fail, regardless of price."""
    found = rank([_estimate("far", 3000), _estimate("near", 1100)], slo_us=1000, usd_per_hour={"far": 0.1})
    assert [one.system for one in found] == ["near", "far"]
    assert cheapest(found) is None


def test_without_an_objective_nothing_fails() -> None:
    """Without an objective, priced candidates come first, by price, then the others by latency."""
    found = rank([_estimate("b", 300), _estimate("a", 200), _estimate("priced", 900)], usd_per_hour={"priced": 1.0})
    assert [one.system for one in found] == ["priced", "a", "b"]
    assert {(one.meets, one.within_interval, one.exceeds_by_us) for one in found} == {(None, None, None)}


@given(st.lists(st.tuples(st.floats(1, 1e6), st.none() | st.floats(0, 100)), min_size=1, max_size=8), st.floats(1, 1e6))
def test_nothing_better_comes_after_the_best(systems: list[tuple[float, float | None]], slo_us: float) -> None:
    """No priced candidate that meets the objective is cheaper than the best."""
    prices = {f"s{place}": price for place, (_, price) in enumerate(systems) if price is not None}
    estimates = [_estimate(f"s{place}", us) for place, (us, _) in enumerate(systems)]
    found = rank(estimates, slo_us=slo_us, usd_per_hour=prices)
    assert sorted(one.system for one in found) == sorted(one.system for one in estimates)
    best = cheapest(found)
    meeting = [one for one in found if one.meets]
    assert (best is None) == (not meeting)
    if best is not None and best.usd_per_million is not None:
        assert best.usd_per_million == min(one.usd_per_million for one in meeting if one.usd_per_million is not None)


def _with_memory(system: str, peak_bytes: int | None) -> Estimate:
    bounds = None if peak_bytes is None else (peak_bytes - 100, peak_bytes + 100)
    return replace(_estimate(system, 100), peak_memory_bytes=peak_bytes, peak_memory_interval_bytes=bounds)


def test_what_does_not_fit_comes_last() -> None:
    """A model that needs more memory than there is comes last and is not the choice, however cheap it is."""
    found = rank(
        [_with_memory("large", 2000), _with_memory("close", 950), _with_memory("small", 500)],
        memory_bytes=1000,
        usd_per_hour={"large": 0.1, "close": 1.0, "small": 2.0},
    )
    assert [one.system for one in found] == ["close", "small", "large"]
    assert [one.fits for one in found] == [True, True, False]
    assert [one.fits_within_interval for one in found] == [False, True, True]
    best = cheapest(found)
    assert best is not None
    assert best.system == "close"
    assert cheapest(found[2:]) is None


def test_unknown_memory_excludes_nothing() -> None:
    """A model of unknown memory, and any model without a limit, is neither said to fit nor not to fit."""
    (unknown,) = rank([_with_memory("one", None)], memory_bytes=1000)
    (unlimited,) = rank([_with_memory("one", 2000)])
    for one in (unknown, unlimited):
        assert one.fits is None
        assert one.fits_within_interval is None
        assert cheapest([one]) == one
