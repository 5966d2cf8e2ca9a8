"""The simulation of queues against the laws of queueing theory, and against a simulation that is written plainly."""

from itertools import pairwise

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from costmodel.traffic.objective import NO_BATCHING, BatchPolicy
from costmodel.traffic.queueing import Served, poisson_arrivals_us, serve, serve_in_turn
from costmodel.traffic.variation import STEADY, MachineState, Variation

REQUESTS = 200_000
SERVICE_US = 10_000.0
ALONE_US = np.array([0.0, SERVICE_US])
# Quantiles of the exponential distribution, divided by their mean.
_QUANTILES = -np.log1p(-(np.arange(2000) + 0.5) / 2000)
EXPONENTIAL = Variation(tuple((_QUANTILES / _QUANTILES.mean()).tolist()))
SHARED = Variation(states=(MachineState("quiet", 0.7, 1.0), MachineState("memory", 0.3, 1.5)), sojourn_s=5.0)


def _served(
    load: float, variation: Variation = STEADY, *, replicas: int = 1, requests: int = REQUESTS, seed: int = 1
) -> Served:
    arrivals_us = poisson_arrivals_us(load * 1e6 / SERVICE_US, requests, seed)
    return serve(arrivals_us, ALONE_US, variation, replicas, NO_BATCHING, seed)


@pytest.mark.parametrize("load", [0.2, 0.5, 0.8])
@pytest.mark.parametrize("variation", [STEADY, EXPONENTIAL], ids=["M/D/1", "M/M/1"])
def test_mean_waiting_times_are_those_of_pollaczek_and_khinchine(load: float, variation: Variation) -> None:
    """The mean waiting time is load / (1 - load) * (1 + variance / mean squared) / 2 service times."""
    waited_us = _served(load, variation).latencies_us.mean() - SERVICE_US
    squared = np.square(variation.run_factors).mean()
    assert waited_us / SERVICE_US == pytest.approx(load / (1 - load) * squared / 2, rel=0.05)


def test_waiting_times_of_several_replicas_are_those_of_erlang() -> None:
    """With exponential service times, the share that waits and the mean wait follow Erlang's C formula (M/M/c)."""
    replicas, load = 4, 3.0
    terms = [load**k / np.prod(np.arange(1, k + 1), initial=1.0) for k in range(replicas + 1)]
    last = terms[-1] * replicas / (replicas - load)
    waiting = last / (sum(terms[:-1]) + last)
    found = _served(load, EXPONENTIAL, replicas=replicas)
    assert found.latencies_us.mean() / SERVICE_US - 1 == pytest.approx(waiting / (replicas - load), rel=0.05)


@given(st.integers(1, 5), st.floats(0.1, 0.9), st.sampled_from([STEADY, EXPONENTIAL]))
@settings(max_examples=15)
def test_littles_law(replicas: int, load: float, variation: Variation) -> None:
    """The number of requests in the system, looked at regularly, is their rate times their mean latency."""
    number = 20_000
    arrivals_us = poisson_arrivals_us(replicas * load * 1e6 / SERVICE_US, number, 3)
    found = serve(arrivals_us, ALONE_US, variation, replicas, NO_BATCHING, 3)
    ends_us = np.sort(arrivals_us + found.latencies_us)
    looks_us = np.linspace(0, found.span_us, 50_001)
    inside = np.searchsorted(arrivals_us, looks_us) - np.searchsorted(ends_us, looks_us)
    expected = number / found.span_us * found.latencies_us.mean()
    assert inside.mean() == pytest.approx(expected, rel=0.05)
    assert found.busy_us / found.span_us == pytest.approx(replicas * load, rel=0.05)


@given(st.integers(1, 6), st.floats(0.2, 3.0), st.integers(0, 5))
@settings(max_examples=20)
def test_work_is_conserved(replicas: int, load: float, seed: int) -> None:
    """Replicas are busy for the sum of the service times, however many there are and however long requests wait."""
    found = _served(load, EXPONENTIAL, replicas=replicas, requests=2000, seed=seed)
    assert found.busy_us == pytest.approx(2000 * SERVICE_US, rel=1e-6)
    assert found.batches == 2000


@given(st.floats(0.2, 0.9), st.floats(1.01, 1.5), st.integers(0, 5))
@settings(max_examples=20)
def test_latencies_grow_with_the_rate(load: float, factor: float, seed: int) -> None:
    """With the same traffic, more closely spaced, every request takes at least as long."""
    slow, fast = (_served(one, EXPONENTIAL, requests=2000, seed=seed) for one in (load, load * factor))
    assert np.all(fast.latencies_us >= slow.latencies_us - 1e-3)


@given(st.floats(0.2, 2.0), st.integers(0, 5))
@settings(max_examples=20)
def test_latencies_fall_with_the_replicas(load: float, seed: int) -> None:
    """With one replica more, no request takes longer."""
    found = [_served(load, EXPONENTIAL, replicas=one, requests=1000, seed=seed).latencies_us for one in (1, 2, 3, 4)]
    assert all(np.all(more <= fewer + 1e-3) for fewer, more in pairwise(found))


@given(
    st.lists(st.integers(0, 3000), min_size=1, max_size=30), st.integers(1, 3), st.integers(1, 5),
    st.sampled_from([0.0, 300.0, 2000.0]),
)  # fmt: skip
def test_batches_are_formed_as_the_policy_says(gaps: list[int], replicas: int, size: int, wait_us: float) -> None:
    """Latencies are those of a plain simulation, which looks for the next event again and again."""
    arrivals_us = np.cumsum(np.asarray(gaps, dtype=float))
    service_us = np.array([0.0, *(500.0 + 250.0 * one for one in range(1, size + 1))])
    found = serve(arrivals_us, service_us, STEADY, replicas, BatchPolicy(size, wait_us), 0)
    assert found.latencies_us == pytest.approx(_plainly(arrivals_us.tolist(), service_us, replicas, size, wait_us))


def _plainly(arrivals_us: list[float], service_us: np.ndarray, replicas: int, size: int, wait_us: float) -> list[float]:
    """Returns latencies by a simulation that moves a clock to the next time at which something can happen."""
    waiting = list(arrivals_us)
    free_us, found, now_us = [0.0] * replicas, [], 0.0
    while waiting:
        here = [time_us for time_us in waiting if time_us <= now_us][:size]
        idle = min(free_us)
        if here and idle <= now_us and (len(here) == size or now_us >= here[0] + wait_us):
            free_us[free_us.index(idle)] = now_us + service_us[len(here)]
            found += [now_us + service_us[len(here)] - time_us for time_us in here]
            waiting = waiting[len(here) :]
            continue
        events_us = [*waiting, *free_us, *(time_us + wait_us for time_us in waiting)]
        now_us = min(time_us for time_us in events_us if time_us > now_us)
    return found


def test_a_state_that_lasts_is_worse_than_noise() -> None:
    """If slow runs come one after the other, the queue grows: the 99th percentile is far above that of mixed runs."""
    mixed = Variation((1.0,) * 7 + (1.5,) * 3)
    load = 0.8
    lasting_us, mixed_us = (np.percentile(_served(load, one).latencies_us, 99) for one in (SHARED, mixed))
    assert lasting_us > 2 * mixed_us


@given(st.floats(1, 1e3), st.integers(0, 10))
@settings(max_examples=20)
def test_states_have_their_share_of_the_time(span_s: float, seed: int) -> None:
    """Over its span a machine does exactly its mean work, and times and work are each other's inverse."""
    speed = SHARED.speed(np.random.default_rng(seed), span_s * 1e6)
    times_us = np.linspace(0, span_s * 1e6, 100)
    work_us = speed.work_at(times_us)
    assert work_us[-1] == pytest.approx(times_us[-1] * SHARED.mean_speed)
    assert speed.time_at(work_us) == pytest.approx(times_us)
    ends_us = [speed.end_us(start, 1e5) for start in times_us.tolist()]
    assert ends_us == pytest.approx(speed.time_at(work_us + 1e5).tolist())


@pytest.mark.parametrize("variation", [STEADY, SHARED], ids=["quiet", "shared"])
def test_queries_follow_each_other(variation: Variation) -> None:
    """Without arrivals, throughput is the inverse of the mean latency, and replicas share the samples of a query."""
    service_us = np.array([0.0, 1000.0, 1500.0, 2000.0, 2500.0])
    one, two = (serve_in_turn(4000, 8, service_us, variation, count, BatchPolicy(4), 0) for count in (1, 2))
    assert one.latencies_us.sum() == pytest.approx(one.span_us)
    assert (one.batches, two.batches) == (8000, 8000)
    assert one.busy_us == pytest.approx(one.span_us)
    if variation is STEADY:
        assert set(one.latencies_us.round(3)) == {5000.0}
        assert set(two.latencies_us.round(3)) == {2500.0}
    else:
        assert one.span_us * variation.mean_speed == pytest.approx(4000 * 5000.0)
        assert two.latencies_us.mean() < one.latencies_us.mean()
