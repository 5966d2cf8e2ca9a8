"""What is measured and what it says, in imagined time; who runs when is told in `test_roundrobin.py`."""

import os
from datetime import datetime, timedelta

import hypothesis.strategies as st
import pytest
from hypothesis import given

from costmodel.errors import MeasurementError
from costmodel.measurement import (
    LEAST_US,
    Measurement,
    Protocol,
    capability_latency_us,
    is_data_dependent,
    jitter,
    mean_latency_us,
    now,
    pinned,
    quiet_latency_us,
    reference_sequence,
    timed_us,
)
from tests.fakes import FakeClock, FakeRunner, elementwise, measured

positive_us = st.floats(LEAST_US, 1e9, allow_nan=False)
times_us = st.lists(positive_us, min_size=1, max_size=60)


def scripted(clock: FakeClock, *script_us: float) -> FakeRunner:
    """A runner whose runs take the times of a list, and the last of them from then on."""
    return FakeRunner(clock, 1.0, lambda run: script_us[min(run, len(script_us) - 1)])


class TestRuns:
    """What cannot be timed is an error, never a number."""

    def test_a_run_takes_what_the_clock_says(self) -> None:
        """From its beginning to its end, and nothing else."""
        clock = FakeClock()
        clock.pass_us(5.0)
        assert timed_us(FakeRunner(clock, 12.5), clock) == 12.5

    def test_a_clock_that_stands_still_is_an_error(self) -> None:
        """A run that takes no time has no latency."""
        clock = FakeClock()
        with pytest.raises(MeasurementError, match="clock did not move"):
            timed_us(FakeRunner(clock, 0.0), clock)

    def test_a_clock_that_stands_still_does_not_hold_up_what_a_system_can_do(self) -> None:
        """Measuring a capability ends, too."""
        clock = FakeClock()
        with pytest.raises(MeasurementError, match="clock did not move"):
            capability_latency_us(FakeRunner(clock, 0.0), clock)

    def test_a_network_that_fails_says_why(self) -> None:
        """The runtime's own words come through."""
        clock = FakeClock()
        runner = FakeRunner(clock, 100.0, error=MeasurementError("out of memory in Conv"))
        for timing in (timed_us, capability_latency_us):
            with pytest.raises(MeasurementError, match="out of memory in Conv"):
                timing(runner, clock)

    def test_the_defaults_can_be_met(self) -> None:
        """Passes and runs are no more than there can be."""
        protocol = Protocol()
        assert 1 <= protocol.fewest_passes <= protocol.passes <= protocol.most_passes
        assert protocol.most_runs >= 1


class TestTheProcess:
    """What measuring does to the process that measures, it undoes."""

    @pytest.mark.parametrize("threads", [1, 2, 1024])
    def test_a_process_is_pinned_to_as_many_cpus_as_there_are_threads(self, threads: int) -> None:
        """They are the last ones that it may use; afterwards it may use all again, even after an error."""
        before = os.sched_getaffinity(0)
        with pinned(threads) as cpus:
            assert os.sched_getaffinity(0) == set(cpus)
            assert cpus == tuple(sorted(before)[-threads:])
        assert os.sched_getaffinity(0) == before
        with pytest.raises(KeyboardInterrupt), pinned(threads):
            raise KeyboardInterrupt
        assert os.sched_getaffinity(0) == before

    def test_a_system_that_cannot_pin_measures_all_the_same(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """On macOS a process has no affinity: the record then names no CPU."""
        monkeypatch.delattr(os, "sched_setaffinity")
        with pinned(1) as cpus:
            assert cpus == ()


class TestLatency:
    """The one meaning of latency."""

    @given(times_us, st.floats(1e-3, 1e3))
    def test_it_scales_with_the_times(self, times: list[float], factor: float) -> None:
        """Milliseconds in, milliseconds out."""
        scaled = quiet_latency_us([time * factor for time in times])
        assert scaled == pytest.approx(quiet_latency_us(times) * factor, rel=1e-9)

    @given(times_us)
    def test_it_is_that_of_the_typical_run(self, times: list[float]) -> None:
        """Half of the runs take as long or less, half as long or longer: neither luck nor a busy machine decides."""
        latency = quiet_latency_us(times)
        assert sum(time <= latency * (1 + 1e-12) for time in times) * 2 >= len(times)
        assert sum(time >= latency * (1 - 1e-12) for time in times) * 2 >= len(times)

    @given(times_us, st.randoms(use_true_random=False), positive_us)
    def test_neither_the_order_nor_a_slow_run_more_lowers_it(
        self, times: list[float], random: object, extra: float
    ) -> None:
        """It depends on the multiset of times, and what others do to us never makes us look faster."""
        shuffled = list(times)
        random.shuffle(shuffled)  # type: ignore[attr-defined]
        assert quiet_latency_us(shuffled) == quiet_latency_us(times)
        assert quiet_latency_us([*times, max(times) + extra]) >= quiet_latency_us(times) * (1 - 1e-12)

    @given(times_us, st.floats(0.0, 1e9))
    def test_what_a_call_costs_is_no_part_of_it(self, times: list[float], overhead_us: float) -> None:
        """It is taken from the mean run, and what is left is never nothing; raw times stay as they were."""
        measurement = measured(elementwise(2), times, overhead_us=overhead_us)
        typical = mean_latency_us(times) if overhead_us else quiet_latency_us(times)
        assert measurement.latency_us == (max(LEAST_US, typical - overhead_us) if overhead_us else typical)
        assert measurement.times_us == tuple(times)

    @given(st.lists(st.tuples(st.floats(1.0, 1.9), st.floats(1.0, 1.9)), min_size=1, max_size=20), st.floats(0.1, 0.5))
    def test_layers_add_up(self, pairs: list[tuple[float, float]], overhead_us: float) -> None:
        """The mean of a sum is the sum of the means, which no quantile can say of itself."""
        parts = [measured(elementwise(2), list(times), overhead_us=overhead_us) for times in zip(*pairs, strict=True)]
        both = mean_latency_us([a + b - 2 * overhead_us for a, b in pairs])
        assert sum(part.latency_us for part in parts) == pytest.approx(both) or min(map(min, pairs)) - overhead_us < 0.6

    def test_an_interrupted_run_is_none_of_the_layers(self) -> None:
        """Something else had the processor for a while; being a little late now and then is part of what it costs."""
        assert mean_latency_us([10.0, 10.0, 10.0, 4000.0]) == 10.0
        assert mean_latency_us([10.0, 10.0, 10.0, 14.0]) == 11.0

    @given(st.lists(times_us, min_size=1, max_size=5), st.floats(0.0, 1e9))
    def test_its_interval_contains_it(self, rounds: list[list[float]], overhead_us: float) -> None:
        """The interval lies around the latency and within what was seen, and the times are those of all rounds."""
        measurement = measured(elementwise(2), *rounds, overhead_us=overhead_us)
        low, high = measurement.interval_us
        assert low <= measurement.latency_us * (1 + 1e-12) <= high * (1 + 2e-12)
        assert (min(measurement.times_us) - overhead_us) * (1 - 1e-12) <= low
        assert high <= max(LEAST_US, max(measurement.times_us) - overhead_us) * (1 + 1e-12)
        assert measurement.times_us == tuple(time for times in rounds for time in times)

    def test_more_runs_narrow_the_interval(self) -> None:
        """The same spread, seen more often, is known better."""
        few = measured(elementwise(2), [float(n) for n in range(100, 200, 10)])
        many = measured(elementwise(2), [100 + n / 10 for n in range(1000)])
        assert many.interval_us[1] - many.interval_us[0] < few.interval_us[1] - few.interval_us[0]

    def test_a_capability_is_the_same_quantile(self) -> None:
        """What a system can do is told in the same terms as what a layer takes, and takes the time it is given."""
        clock = FakeClock()
        runner = scripted(clock, 1.0, *(float(time) for time in range(1, 101)), 1e6)
        assert capability_latency_us(runner, clock, budget_us=5050.0) == quiet_latency_us(range(1, 101))

    @given(st.lists(st.lists(times_us, min_size=1, max_size=3), max_size=4))
    def test_jitter_is_no_gain_and_grows_with_the_quantile(self, of_each: list[list[list[float]]]) -> None:
        """A noisy machine is never faster than the quiet one, and rarely seen times are slower than common ones."""
        factors = jitter(measured(elementwise(2), *rounds) for rounds in of_each)
        assert 1.0 <= factors["p50"] <= factors["p90"] <= factors["p99"]

    def test_a_machine_without_noise_has_no_jitter(self) -> None:
        """Where every run takes the same, so does every quantile; nothing measured is no noise either."""
        assert jitter([measured(elementwise(2), [5.0] * 9)]) == jitter([]) == {"p50": 1.0, "p90": 1.0, "p99": 1.0}


def test_what_depends_on_data_is_known_by_its_operators() -> None:
    """How long NonZero takes depends on the zeros, how long Relu takes does not."""
    assert is_data_dependent(elementwise(8, op_type="NonZero"))
    assert not is_data_dependent(elementwise(8))


def test_the_reference_is_one_matrix_product() -> None:
    """A square of the given size, one operand of which is a weight."""
    sequence = reference_sequence(64)
    assert sequence.kind == "MatMul"
    assert {value.type.shape for value in sequence.values} == {(64, 64)}
    assert [value.role for value in sequence.values] == ["input", "constant", "internal"]


def test_records_carry_the_time_in_utc() -> None:
    """It is ISO 8601, says its zone, fits its column and tells two measurements of a layer apart."""
    assert datetime.fromisoformat(now()).utcoffset() == timedelta(0)
    assert len(now()) <= 32
    assert "." in now()


def test_a_measurement_without_circumstances_is_one() -> None:
    """Only what was timed is needed."""
    assert Measurement("s", ((1.0,),), (1.0,), True).latency_us == 1.0
