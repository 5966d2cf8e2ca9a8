"""What tenants of a shared machine observe: shares of its states, slowdowns and quantiles."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.measure.measurement import MIN_LATENCY_US, Measurement
from costmodel.measure.tenancy import jitter, slowdowns, state_shares
from tests.fakes import elementwise, measured

times_us = st.lists(st.floats(MIN_LATENCY_US, 1e9, allow_nan=False), min_size=1, max_size=60)


def _in_states(
    size: int, states_us: Mapping[str, float], disturbed_us: Mapping[str, list[float]], quiet_us: float = 10.0
) -> Measurement:
    """Returns a measurement of 9 equal times, with the states of the machine in its environment."""
    plain = measured(elementwise(size), [quiet_us] * 9)
    return replace(plain, environment={"states_us": dict(states_us), "disturbed_us": dict(disturbed_us)})


@given(st.lists(st.lists(times_us, min_size=1, max_size=3), min_size=1, max_size=4))
def test_jitter_is_no_gain_and_grows_with_the_quantile(of_each: list[list[list[float]]]) -> None:
    """Jitter is at least 1 and does not decrease with the quantile."""
    factors = jitter(measured(elementwise(2), *rounds) for rounds in of_each)
    assert 1.0 <= factors["p50"] <= factors["p90"] <= factors["p99"]


def test_a_machine_without_noise_has_no_jitter() -> None:
    """Equal run times give no jitter; without measurements it is unknown."""
    assert jitter([measured(elementwise(2), [5.0] * 9)]) == {"p50": 1.0, "p90": 1.0, "p99": 1.0}
    assert jitter([]) == {}


def test_networks_timed_in_turn_have_seen_the_same_time() -> None:
    """Two networks of one group count once, and those of another group count beside them."""
    one = _in_states(2, {"quiet": 300.0, "memory": 100.0}, {})
    other = _in_states(4, {"quiet": 300.0, "memory": 100.0}, {})
    later = _in_states(8, {"quiet": 100.0}, {})
    assert state_shares([one, other, later]) == {"quiet": pytest.approx(0.8), "memory": pytest.approx(0.2)}
    assert state_shares([measured(elementwise(2))]) == {}


def test_a_slowdown_is_relative_to_the_runs_that_count() -> None:
    """The slowdown in a state is the median over the measurements that met it."""
    met = [_in_states(n, {}, {"cache": [3, 10.0 * n]}) for n in (2, 3, 7)]
    assert slowdowns([*met, _in_states(9, {}, {})]) == {"cache": 3.0}


@pytest.mark.parametrize(
    ("share", "expected"),
    [(0.005, {"p50": 1.0, "p90": 1.0, "p99": 1.0}), (0.05, {"p50": 1.0, "p90": 1.0, "p99": 2.0}),
     (0.2, {"p50": 1.0, "p90": 2.0, "p99": 2.0}), (0.6, {"p50": 2.0, "p90": 2.0, "p99": 2.0})],
)  # fmt: skip
def test_a_state_reaches_the_quantiles_that_its_share_covers(share: float, expected: dict[str, float]) -> None:
    """With a machine that is twice as slow for a share of the time, users observe it at that share of the quantiles."""
    states = {"quiet": 1000 * (1 - share), "cache": 1000 * share}
    assert jitter([_in_states(2, states, {"cache": [4, 20.0]})]) == pytest.approx(expected)


def test_a_state_of_unknown_slowdown_does_not_count() -> None:
    """A state in which nothing was timed leaves the quantiles as they are."""
    assert jitter([_in_states(2, {"quiet": 1.0, "memory": 9.0}, {})])["p99"] == 1.0


@given(share=st.floats(0, 1), slowdown=st.floats(0.5, 10), spread=st.floats(0, 1))
def test_quantiles_lie_between_those_of_the_states(share: float, slowdown: float, spread: float) -> None:
    """No quantile is below that of the quiet machine, or above that of the slow one."""
    timed = measured(elementwise(2), [10 * (1 + spread * n / 20) for n in range(21)])
    states = {"quiet": 1 - share, "cache": share}
    quiet = jitter([timed])
    disturbed = {"cache": [1, timed.timing.call_us * slowdown]}
    observed = jitter([replace(timed, environment={"states_us": states, "disturbed_us": disturbed})])
    for quantile, factor in observed.items():
        low, high = sorted((quiet[quantile], max(1.0, quiet[quantile] * slowdown)))
        assert low * 0.995 <= factor <= high * 1.005
