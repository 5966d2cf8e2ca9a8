"""The four scenarios, the highest rate and the number of replicas."""

from dataclasses import replace

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from costmodel.measure.measurement import Measurement
from costmodel.measure.tenancy import jitter
from costmodel.traffic.capacity import best_at, highest_rate_per_s, replicas_for
from costmodel.traffic.objective import NO_BATCHING, BatchPolicy, LatencyObjective
from costmodel.traffic.scenarios import Serving, simulate
from costmodel.traffic.service_times import ServiceTimes
from costmodel.traffic.variation import STEADY, MachineState, Variation, observed_variation
from tests.synthetic import made_up_measurement

TIMES = ServiceTimes({1: 10_000.0, 8: 45_000.0})
ALONE = Serving(TIMES, STEADY, NO_BATCHING)
BATCHED = Serving(TIMES, STEADY, BatchPolicy(8, 5000.0))
OBJECTIVE = LatencyObjective(99.0, 50_000.0)
NOISY = Variation((0.9, 1.0, 1.0, 1.2), (MachineState("quiet", 0.8, 1.0), MachineState("cache", 0.2, 1.3)))


def test_service_times_are_interpolated() -> None:
    """Times are linear between sizes and beyond the largest one, and never fall with the size."""
    assert TIMES.up_to(10).tolist() == [0, *(10_000.0 + 5000 * more for more in range(10))]
    assert ServiceTimes({2: 100.0}).up_to(4).tolist() == [0, 50, 100, 150, 200]
    assert ServiceTimes({1: 100.0, 2: 90.0}).up_to(3).tolist() == [0, 100, 100, 100]
    for wrong in ({}, {0: 1.0}, {1: 0.0}, {1: float("nan")}):
        with pytest.raises(ValueError, match="batch"):
            ServiceTimes(wrong)


def test_single_stream_and_offline_follow_from_the_latency() -> None:
    """On the quiet machine, a stream has one latency; offline, batches follow each other."""
    single = simulate(ALONE, "single-stream", objective=LatencyObjective(90.0, 10_000.0))
    assert (single.p50_us, single.p99_us, single.mlperf_us) == pytest.approx((10_000,) * 3)
    assert (single.throughput_per_s, single.utilisation, single.meets) == (pytest.approx(100), 1.0, True)
    offline = simulate(replace(BATCHED, replicas=3), "offline")
    assert (offline.throughput_per_s, offline.p99_us) == (pytest.approx(3 * 8 / 0.045), None)


def test_multi_stream_sends_eight_samples() -> None:
    """A query has eight samples: eight runs without batches, one with."""
    assert simulate(ALONE, "multi-stream").p99_us == pytest.approx(80_000)
    batched = simulate(BATCHED, "multi-stream")
    assert (batched.p99_us, batched.mean_batch) == (pytest.approx(45_000), 8.0)
    assert batched.throughput_per_s == pytest.approx(8 / 0.045)


def test_the_highest_rate_meets_the_objective_and_a_higher_one_does_not() -> None:
    """The objective is met at the highest rate, and not at 2% more."""
    for serving in (ALONE, BATCHED, replace(ALONE, variation=NOISY), replace(BATCHED, replicas=3)):
        highest = highest_rate_per_s(serving, OBJECTIVE)
        assert 0 < highest < serving.saturation_per_s
        assert simulate(serving, "server", rate_per_s=highest, objective=OBJECTIVE).meets
        assert not simulate(serving, "server", rate_per_s=1.02 * highest, objective=OBJECTIVE).meets


def test_an_objective_below_the_latency_has_no_rate() -> None:
    """If a single request takes too long, the highest rate is 0 and no number of replicas is enough."""
    hard = LatencyObjective(99.0, 9000.0)
    assert highest_rate_per_s(ALONE, hard) == 0
    assert replicas_for(ALONE, 10.0, hard, 0.0) is None


def test_the_queue_of_too_many_requests_grows_without_end() -> None:
    """Above the saturation there are no percentiles, and the objective is not met."""
    found = simulate(ALONE, "server", rate_per_s=101.0, objective=OBJECTIVE)
    assert (found.p99_us, found.share_within, found.meets) == (None, 0.0, False)
    assert found.throughput_per_s == pytest.approx(100)


@given(st.floats(10, 2000), st.sampled_from([ALONE, BATCHED, replace(ALONE, variation=NOISY)]))
@settings(max_examples=8)
def test_the_replicas_are_the_least_that_are_enough(rate_per_s: float, serving: Serving) -> None:
    """The number carries the rate, one less does not; sharing a queue needs no more than queues of their own."""
    highest = highest_rate_per_s(serving, OBJECTIVE)
    number = replicas_for(serving, rate_per_s, OBJECTIVE, highest)
    assert number is not None
    assert number <= np.ceil(rate_per_s / highest)
    assert best_at(replace(serving, replicas=number), rate_per_s, OBJECTIVE).meets or number == 1
    if number > 1:
        assert not best_at(replace(serving, replicas=number - 1), rate_per_s, OBJECTIVE).meets


def test_thousands_of_replicas_are_not_simulated_one_by_one() -> None:
    """Beyond a thousand replicas each is taken to have a queue of its own."""
    number = replicas_for(ALONE, 200_000.0, OBJECTIVE, highest_rate_per_s(ALONE, OBJECTIVE))
    assert number is not None
    assert number > 3000
    found = best_at(replace(ALONE, replicas=number), 200_000.0, OBJECTIVE)
    assert (found.meets, found.shared_queue) == (True, False)
    assert found.throughput_per_s == pytest.approx(200_000, rel=0.01)


def test_batches_of_separate_queues_are_smaller() -> None:
    """Where one queue fills every batch, so that runs take too long, replicas have queues of their own."""
    serving = replace(BATCHED, policy=BatchPolicy(12, 5000.0))
    highest = highest_rate_per_s(serving, OBJECTIVE)
    number = replicas_for(serving, 60 * highest, OBJECTIVE, highest)
    assert number is not None
    found = best_at(replace(serving, replicas=number), 60 * highest, OBJECTIVE)
    assert (found.meets, found.shared_queue, found.replicas) == (True, False, number)
    assert found.mean_batch < 8
    assert not simulate(replace(serving, replicas=number), "server", rate_per_s=60 * highest, objective=OBJECTIVE).meets


def _measured(states_us: dict[str, float], disturbed_us: dict[str, tuple[int, float]]) -> Measurement:
    one = made_up_measurement("0" * 32, 1000.0, "model")
    return replace(one, environment={"states_us": states_us, "disturbed_us": disturbed_us})


def test_variation_is_what_jitter_summarises() -> None:
    """Run times and states come from measurements; mixed, they have the quantiles of the jitter."""
    measured = _measured({"quiet": 8e6, "memory": 2e6, "cache": 1e6}, {"memory": (5, 1300.0)})
    found = observed_variation([measured])
    assert found is not None
    assert [state.name for state in found.states] == ["quiet", "memory"]
    assert [state.share for state in found.states] == pytest.approx([0.8, 0.2])
    assert [state.slowdown for state in found.states] == pytest.approx([1.0, 1.3])
    mixed = np.concatenate([np.asarray(found.run_factors) * state.slowdown for state in found.states])
    weights = np.repeat([state.share for state in found.states], len(found.run_factors))
    p99 = np.quantile(mixed, 0.99, weights=weights, method="inverted_cdf")
    assert p99 == pytest.approx(jitter([measured])["p99"])
    assert found.mean_speed == pytest.approx(0.8 + 0.2 / 1.3)


def test_variation_without_states_or_measurements() -> None:
    """A machine that was always quiet has no states; without measurements nothing is known."""
    found = observed_variation([_measured({"quiet": 1e6}, {})])
    assert found is not None
    assert found.states == ()
    assert observed_variation([]) is None
