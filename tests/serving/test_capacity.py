"""Capacity: what traffic a model carries, from its estimates at several batch sizes."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from costmodel.errors import TrafficError
from costmodel.estimate.estimate import Estimate, PredictorId
from costmodel.serving.capacity import TrafficQuestion, plan_capacity, shapes_of_batch
from costmodel.traffic.idle import TYPICAL, IdleEffects
from costmodel.traffic.objective import BatchPolicy, LatencyObjective
from costmodel.traffic.scenarios import Scenario
from costmodel.traffic.variation import STEADY, MachineState, Variation

OBJECTIVE = LatencyObjective(99.0, 50_000.0)


def _estimate(latency_us: float) -> Estimate:
    return Estimate(
        model="mine",
        system="one",
        latency_us=latency_us,
        interval_us=(0.9 * latency_us, 1.1 * latency_us),
        interval_level=0.9,
        jitter={},
        composition="sequential",
        granularity=1,
        layers=(),
        predictor=PredictorId("lightgbm", "v1"),
    )


ESTIMATES: Mapping[int, Estimate] = {1: _estimate(10_000), 2: _estimate(14_000), 4: _estimate(22_000)}
ALONE = {1: ESTIMATES[1]}


def test_arrivals_need_replicas_that_cost() -> None:
    """The replicas carry the arrivals within the objective, and their price is divided among the requests."""
    found = plan_capacity(ALONE, STEADY, TrafficQuestion(objective=OBJECTIVE, arrivals_per_s=120.0), usd_per_hour=0.36)
    assert (found.model, found.system, found.objective, found.slo_us) == ("mine", "one", "p99", 50_000)
    assert 50 < found.highest_rate_per_s < 60
    low, high = found.highest_rate_interval_per_s
    assert low < 0.95 * found.highest_rate_per_s
    assert high > 1.05 * found.highest_rate_per_s
    assert found.replicas == found.result.replicas == 2
    assert found.result.meets
    assert found.result.utilisation == pytest.approx(0.6, rel=0.01)
    assert found.usd_per_hour == pytest.approx(0.72)
    assert found.usd_per_million == pytest.approx(0.72 / 3600 / 120 * 1e6)


def test_without_arrivals_the_highest_rate_is_the_answer() -> None:
    """Without arrivals the result is that of the highest rate, of as many replicas as are named."""
    found = plan_capacity(ALONE, STEADY, TrafficQuestion(objective=OBJECTIVE))
    assert (found.replicas, found.result.rate_per_s) == (1, found.highest_rate_per_s)
    assert (found.usd_per_hour, found.usd_per_million) == (None, None)
    two = plan_capacity(ALONE, STEADY, TrafficQuestion(objective=OBJECTIVE, replicas=2))
    assert two.highest_rate_per_s == found.highest_rate_per_s
    assert two.result.throughput_per_s > 2 * found.highest_rate_per_s


def test_batches_carry_more() -> None:
    """With batches one replica carries a higher rate, and the answer has the latency at each size."""
    policy = BatchPolicy(4, 2000.0)
    found = plan_capacity(ESTIMATES, STEADY, TrafficQuestion(objective=OBJECTIVE, policy=policy))
    assert [one.batch_size for one in found.latencies] == [1, 2, 4]
    assert found.highest_rate_per_s > 100
    assert found.result.mean_batch > 1.5
    assert found.batch_policy == "max=4,wait=2ms"


def test_what_no_replica_carries_has_no_price() -> None:
    """If a single request takes too long, no number of replicas is enough; the result shows its latency."""
    hard = LatencyObjective(99.0, 9000.0)
    found = plan_capacity(ALONE, STEADY, TrafficQuestion(objective=hard), usd_per_hour=1.0)
    assert (found.highest_rate_per_s, found.replicas, found.result.meets) == (0.0, None, False)
    assert found.result.p50_us == pytest.approx(10_000)
    assert (found.usd_per_hour, found.usd_per_million) == (None, None)
    few = TrafficQuestion(objective=OBJECTIVE, arrivals_per_s=120.0, replicas=1)
    found = plan_capacity(ALONE, STEADY, few, usd_per_hour=1.0)
    assert (found.replicas, found.result.p99_us, found.result.meets) == (1, None, False)
    assert (found.usd_per_hour, found.usd_per_million) == (1.0, None)


def test_other_scenarios_answer_with_their_throughput() -> None:
    """Offline, the arrivals are divided by the throughput; streams report what MLPerf reports."""
    offline = plan_capacity(ALONE, STEADY, TrafficQuestion("offline", arrivals_per_s=250.0), usd_per_hour=0.36)
    assert (offline.highest_rate_per_s, offline.replicas) == (pytest.approx(100), 3)
    assert offline.usd_per_million == pytest.approx(3 * 0.36 / 3600 / 250 * 1e6)
    one_too_few = TrafficQuestion("offline", arrivals_per_s=250.0, replicas=2)
    assert plan_capacity(ALONE, STEADY, one_too_few, usd_per_hour=0.36).usd_per_million is None
    stream = plan_capacity(ALONE, STEADY, TrafficQuestion("single-stream", LatencyObjective(90.0, 20_000.0)))
    assert (stream.result.mlperf_us, stream.result.meets) == (pytest.approx(10_000), True)


def test_the_states_of_the_machine_are_told() -> None:
    """A warning names the states that the simulation repeats, or that nothing is known of them."""
    shared = Variation(states=(MachineState("quiet", 0.9, 1.0), MachineState("memory", 0.1, 1.4)))
    quiet, noisy, unknown = (
        plan_capacity(ALONE, one, TrafficQuestion(objective=OBJECTIVE)) for one in (STEADY, shared, None)
    )
    assert noisy.highest_rate_per_s < quiet.highest_rate_per_s
    assert quiet.warnings == ()
    assert "memory 10% (x1.40)" in noisy.warnings[0]
    assert "was never measured" in unknown.warnings[0]


def test_what_an_idle_time_costs_is_told_where_it_is_assumed() -> None:
    """Requests after an idle time take longer; a warning says so if nobody has measured it on this system."""
    assumed, measured = (
        plan_capacity(ALONE, replace(STEADY, idle=idle), TrafficQuestion(objective=OBJECTIVE, arrivals_per_s=1.0))
        for idle in (TYPICAL, IdleEffects(300.0, 5000.0, 100.0))
    )
    assert (assumed.idle_delay_us, measured.idle_delay_us) == (TYPICAL.total_us, 400.0)
    assert measured.result.p50_us == pytest.approx(10_400, rel=1e-3)
    assert "--measure-idle" in assumed.warnings[0]
    assert measured.warnings == ()


@pytest.mark.parametrize(
    ("scenario", "objective", "arrivals_per_s", "replicas", "words"),
    [
        ("server", None, None, None, "needs a latency objective"),
        ("offline", OBJECTIVE, None, None, "has no latency objective"),
        ("multi-stream", OBJECTIVE, 5.0, None, "has no rate of arrivals"),
        ("server", OBJECTIVE, 5.0, 0, "0 replicas cannot be simulated"),
        ("server", OBJECTIVE, 5.0, 5000, "from 1 to 1000"),
    ],
)
def test_contradictions_are_refused(
    scenario: Scenario, objective: LatencyObjective | None, arrivals_per_s: float, replicas: int, words: str
) -> None:
    """Values that do not go together are one sentence."""
    with pytest.raises(TrafficError, match=words):
        TrafficQuestion(scenario, objective, arrivals_per_s=arrivals_per_s, replicas=replicas)


def test_a_model_without_costs_has_no_traffic() -> None:
    """A latency of 0 cannot be planned with."""
    with pytest.raises(TrafficError, match="no layer with a cost"):
        plan_capacity({1: _estimate(0.0)}, STEADY, TrafficQuestion(objective=OBJECTIVE))


def test_shapes_grow_with_the_batch() -> None:
    """The first axis of an input of rank 2 or more is the batch."""
    assert shapes_of_batch({"ids": (1, 128), "length": (1,)}, 4) == {"ids": (4, 128), "length": (1,)}
