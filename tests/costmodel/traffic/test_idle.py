"""What an idle time costs the requests after it."""

from dataclasses import replace

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from costmodel.traffic.capacity import highest_rate_per_s
from costmodel.traffic.idle import ALWAYS_WARM, TYPICAL, IdleEffects, measured_idle_effects
from costmodel.traffic.objective import NO_BATCHING, BatchPolicy, LatencyObjective
from costmodel.traffic.queueing import Served, poisson_arrivals_us, serve
from costmodel.traffic.scenarios import Serving, simulate
from costmodel.traffic.service_times import ServiceTimes
from costmodel.traffic.variation import MachineState, Variation

SERVICE_US = 2000.0
TIMES_US = np.array([0.0, SERVICE_US, 3000.0, 4000.0, 5000.0])
FACTORS = (0.95, 1.0, 1.0, 1.0, 1.3)
STATES = (MachineState("quiet", 0.7, 1.0), MachineState("memory", 0.3, 1.5))
EFFECTS = st.builds(IdleEffects, st.floats(0, 1500), st.floats(100, 50_000), st.floats(0, 1000))
KINDS = st.sampled_from([(1, NO_BATCHING), (3, NO_BATCHING), (1, BatchPolicy(4, 1000.0)), (2, BatchPolicy(4))])
VARIATIONS = st.sampled_from([Variation(), Variation(FACTORS), Variation(FACTORS, STATES, 0.5)])


def _served(
    load: float, variation: Variation, replicas: int = 1, policy: BatchPolicy = NO_BATCHING, requests: int = 2000
) -> Served:
    arrivals_us = poisson_arrivals_us(load * replicas * 1e6 / SERVICE_US, requests, 1)
    return serve(arrivals_us, TIMES_US, variation, replicas, policy, 1)


@given(EFFECTS, VARIATIONS, st.integers(1, 4), st.floats(0.01, 0.95))
@settings(max_examples=40)
def test_an_idle_time_makes_no_request_faster(
    idle: IdleEffects, variation: Variation, replicas: int, load: float
) -> None:
    """Each request takes at least as long as on machines that are always warm.

    Where machines are in different states, another order may send a request to a quicker one: then there is one only.
    """
    count = 1 if variation.states else replicas
    cold, warm = (_served(load, replace(variation, idle=one), count) for one in (idle, ALWAYS_WARM))
    assert np.all(cold.latencies_us >= warm.latencies_us - 1e-3)


@given(VARIATIONS, KINDS, st.floats(0.01, 0.95), st.floats(1, 1e6))
@settings(max_examples=20)
def test_effects_of_size_zero_change_nothing(
    variation: Variation, kind: tuple[int, BatchPolicy], load: float, cooling_us: float
) -> None:
    """With a size of zero the latencies are exactly the same; with a tiny size, to as many digits."""
    warm = _served(load, variation, *kind).latencies_us
    none = replace(variation, idle=IdleEffects(0.0, cooling_us, 0.0))
    assert np.array_equal(_served(load, none, *kind).latencies_us, warm)
    tiny = replace(variation, idle=IdleEffects(1e-9, cooling_us, 0.0))
    assert _served(load, tiny, *kind).latencies_us == pytest.approx(warm, abs=1e-3)


@given(EFFECTS, st.integers(0, 5))
@settings(max_examples=20)
def test_the_loop_over_requests_and_the_loop_over_batches_agree(idle: IdleEffects, seed: int) -> None:
    """Where no two requests meet, a policy with batches changes nothing."""
    gaps_us = np.random.default_rng(seed).uniform(2.6, 20, 300) * SERVICE_US
    variation = Variation(FACTORS, idle=idle)
    one, batches = (
        serve(np.cumsum(gaps_us), TIMES_US, variation, 1, policy, 1).latencies_us
        for policy in (NO_BATCHING, BatchPolicy(2))
    )
    assert batches == pytest.approx(one)


def test_the_first_request_pays_for_the_idle_time_before_it() -> None:
    """The delay is that of the saturating exponential; a request that waited for another has none."""
    idle = IdleEffects(300.0, 5000.0, 100.0)
    arrivals_us = np.array([0.0, 100_000.0, 100_001.0, 107_000.0])
    found = serve(arrivals_us, TIMES_US, Variation(idle=idle), 1, NO_BATCHING, 1).latencies_us
    gap_us = 7000.0 - 2 * SERVICE_US - 400.0
    after_us = SERVICE_US + 400 * (1 - np.exp(-gap_us / 5000))
    assert found.tolist() == pytest.approx([SERVICE_US, SERVICE_US + 400, 2 * SERVICE_US + 399, after_us])
    assert idle.delay_us(5000.0) == pytest.approx(400 * (1 - np.exp(-1)))


def test_a_slow_state_slows_the_effects_too() -> None:
    """On a machine that is always in a slow state, all latencies are that many times as long, idle effects included."""
    idle = IdleEffects(300.0, 5000.0, 100.0)
    arrivals_us = np.arange(1, 200) * 1e6
    slow = Variation(states=(MachineState("memory", 1.0, 1.5),), idle=idle)
    found = serve(arrivals_us, TIMES_US, slow, 1, NO_BATCHING, 1).latencies_us
    assert found[1:] == pytest.approx(1.5 * (SERVICE_US + 400))


@given(st.floats(0.05, 0.8), st.floats(1.05, 2.0))
@settings(max_examples=15)
def test_requests_are_colder_at_lower_rates(load: float, factor: float) -> None:
    """The higher the rate, the less does a request lose to idle times, and the more of its time a machine is busy."""
    variation = Variation(FACTORS, idle=TYPICAL)
    low, high = (_served(one, variation, requests=20_000) for one in (load, min(0.95, load * factor)))
    assert high.busy_us / len(high.latencies_us) <= low.busy_us / len(low.latencies_us) * 1.001
    assert high.busy_us / high.span_us > low.busy_us / low.span_us


@pytest.mark.parametrize("states", [(), STATES], ids=["quiet", "shared"])
@pytest.mark.parametrize("factor", [3.0, 4.0])
def test_the_highest_rate_falls_with_the_effects(states: tuple[MachineState, ...], factor: float) -> None:
    """Larger effects carry less traffic; at the rate that is found the objective is met, and at 5% more it is not."""
    objective = LatencyObjective(99.0, factor * SERVICE_US)
    rates = []
    for idle in (ALWAYS_WARM, TYPICAL, IdleEffects(600.0, 5000.0, 200.0)):
        serving = Serving(ServiceTimes({1: SERVICE_US}), Variation(states=states, idle=idle), NO_BATCHING)
        rates.append(highest_rate_per_s(serving, objective))
        if rates[-1]:
            assert simulate(serving, "server", rate_per_s=rates[-1], objective=objective).meets
            assert not simulate(serving, "server", rate_per_s=1.05 * rates[-1], objective=objective).meets
    assert rates == sorted(rates, reverse=True)
    assert rates[-1] < 0.97 * rates[0]


def test_closed_scenarios_know_no_idle_time() -> None:
    """Where a query follows another at once, or all samples are there, nothing changes."""
    for policy in (NO_BATCHING, BatchPolicy(4)):
        warm = Serving(ServiceTimes({1: SERVICE_US}), Variation(FACTORS), policy)
        cold = replace(warm, variation=replace(warm.variation, idle=TYPICAL))
        for scenario in ("single-stream", "multi-stream", "offline"):
            assert simulate(warm, scenario) == simulate(cold, scenario)  # type: ignore[arg-type]


def test_effects_are_read_from_the_capabilities_of_a_system() -> None:
    """Effects that were measured are among the capabilities."""
    measured = {"gemm_gflops": 1.0, "idle_extra_us": 1.0, "idle_cooling_us": 2.0, "idle_wake_up_us": 3.0}
    assert measured_idle_effects(measured) == IdleEffects(1.0, 2.0, 3.0)
    assert measured_idle_effects({"gemm_gflops": 1.0}) is None
