"""Measurements and their statistics in simulated time; `test_round_robin.py` tests the order of runs."""

import os
from dataclasses import replace
from datetime import datetime, timedelta

import hypothesis.strategies as st
import pytest
from hypothesis import given

from costmodel.errors import MeasurementError
from costmodel.measure.affinity import pinned
from costmodel.measure.capability import reference_sequence
from costmodel.measure.measurement import MIN_LATENCY_US, Measurement, is_data_dependent, now
from costmodel.measure.protocol import Protocol
from costmodel.measure.statistics import mean_us, median_us
from costmodel.measure.stopwatch import repeated_us, timed_us
from tests.fakes import FakeClock, FakeRunner, elementwise, measured

positive_us = st.floats(MIN_LATENCY_US, 1e9, allow_nan=False)
times_us = st.lists(positive_us, min_size=1, max_size=60)


def scripted(clock: FakeClock, *script_us: float) -> FakeRunner:
    """Returns a runner whose runs take the listed times, and the last of them from then on."""
    return FakeRunner(clock, 1.0, lambda run: script_us[min(run, len(script_us) - 1)])


class TestRuns:
    """Failures while timing are errors, never numbers."""

    def test_a_run_takes_what_the_clock_says(self) -> None:
        """A run's time is the clock's difference between its end and its beginning."""
        clock = FakeClock()
        clock.pass_us(5.0)
        assert timed_us(FakeRunner(clock, 12.5), clock) == 12.5

    def test_a_clock_that_stands_still_is_an_error(self) -> None:
        """A run of zero time is an error."""
        clock = FakeClock()
        with pytest.raises(MeasurementError, match="clock did not move"):
            timed_us(FakeRunner(clock, 0.0), clock)

    def test_a_clock_that_stands_still_does_not_hold_up_what_a_system_can_do(self) -> None:
        """Measuring a capability ends even if the clock stands still."""
        clock = FakeClock()
        with pytest.raises(MeasurementError, match="clock did not move"):
            repeated_us(FakeRunner(clock, 0.0), clock)

    def test_a_network_that_fails_says_why(self) -> None:
        """The runtime's error message is passed on."""
        clock = FakeClock()
        runner = FakeRunner(clock, 100.0, error=MeasurementError("out of memory in Conv"))
        for timing in (timed_us, repeated_us):
            with pytest.raises(MeasurementError, match="out of memory in Conv"):
                timing(runner, clock)

    def test_the_defaults_can_be_met(self) -> None:
        """The default numbers of laps and runs are consistent."""
        protocol = Protocol()
        assert 1 <= protocol.min_passes <= protocol.passes <= protocol.max_passes
        assert protocol.max_runs >= 1


class TestTheProcess:
    """Changes to the measuring process are undone."""

    @pytest.mark.parametrize("threads", [1, 2, 1024])
    def test_a_process_is_pinned_to_as_many_cpus_as_there_are_threads(self, threads: int) -> None:
        """The process is pinned to its last CPUs and released afterwards, even after an error."""
        before = os.sched_getaffinity(0)
        with pinned(threads) as cpus:
            assert os.sched_getaffinity(0) == set(cpus)
            assert cpus == tuple(sorted(before)[-threads:])
        assert os.sched_getaffinity(0) == before
        with pytest.raises(KeyboardInterrupt), pinned(threads):
            raise KeyboardInterrupt
        assert os.sched_getaffinity(0) == before

    def test_a_system_that_cannot_pin_measures_all_the_same(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Without CPU affinity, as on macOS, measuring works and the record names no CPU."""
        monkeypatch.delattr(os, "sched_setaffinity")
        with pinned(1) as cpus:
            assert cpus == ()


class TestLatency:
    """The definition of latency."""

    @given(times_us, st.floats(1e-3, 1e3))
    def test_it_scales_with_the_times(self, times: list[float], factor: float) -> None:
        """The latency scales with the times."""
        scaled = median_us([time * factor for time in times])
        assert scaled == pytest.approx(median_us(times) * factor, rel=1e-9)

    @given(times_us)
    def test_it_is_that_of_the_typical_run(self, times: list[float]) -> None:
        """The latency of a whole model is the median run."""
        latency = median_us(times)
        assert sum(time <= latency * (1 + 1e-12) for time in times) * 2 >= len(times)
        assert sum(time >= latency * (1 - 1e-12) for time in times) * 2 >= len(times)

    @given(times_us, st.randoms(use_true_random=False), positive_us)
    def test_neither_the_order_nor_a_slow_run_more_lowers_it(
        self, times: list[float], random: object, extra: float
    ) -> None:
        """The latency depends on the multiset of times, and an additional slow run does not lower it."""
        shuffled = list(times)
        random.shuffle(shuffled)  # type: ignore[attr-defined]
        assert median_us(shuffled) == median_us(times)
        assert median_us([*times, max(times) + extra]) >= median_us(times) * (1 - 1e-12)

    @given(times_us, st.floats(0.0, 1e9))
    def test_what_a_call_costs_is_no_part_of_it(self, times: list[float], overhead_us: float) -> None:
        """The call overhead is subtracted from a layer's mean run; the rest stays positive, raw times unchanged."""
        measurement = measured(elementwise(2), times, overhead_us=overhead_us)
        typical = mean_us(times) if overhead_us else median_us(times)
        assert measurement.latency_us == (max(MIN_LATENCY_US, typical - overhead_us) if overhead_us else typical)
        assert measurement.times_us == tuple(times)

    @given(st.lists(st.tuples(st.floats(1.0, 1.9), st.floats(1.0, 1.9)), min_size=1, max_size=20), st.floats(0.1, 0.5))
    def test_layers_add_up(self, pairs: list[tuple[float, float]], overhead_us: float) -> None:
        """Latencies of layers are additive, because they are means."""
        parts = [measured(elementwise(2), list(times), overhead_us=overhead_us) for times in zip(*pairs, strict=True)]
        both = mean_us([a + b - 2 * overhead_us for a, b in pairs])
        assert sum(part.latency_us for part in parts) == pytest.approx(both) or min(map(min, pairs)) - overhead_us < 0.6

    def test_an_interrupted_run_is_none_of_the_layers(self) -> None:
        """Interrupted runs are excluded from the mean; slightly late ones are not."""
        assert mean_us([10.0, 10.0, 10.0, 4000.0]) == 10.0
        assert mean_us([10.0, 10.0, 10.0, 14.0]) == 11.0

    @given(st.lists(times_us, min_size=1, max_size=5), st.floats(0.0, 1e9))
    def test_its_interval_contains_it(self, rounds: list[list[float]], overhead_us: float) -> None:
        """The interval contains the latency and lies within the observed times of all rounds."""
        measurement = measured(elementwise(2), *rounds, overhead_us=overhead_us)
        low, high = measurement.interval_us
        assert low <= measurement.latency_us * (1 + 1e-12) <= high * (1 + 2e-12)
        assert (min(measurement.times_us) - overhead_us) * (1 - 1e-12) <= low
        assert high <= max(MIN_LATENCY_US, max(measurement.times_us) - overhead_us) * (1 + 1e-12)
        assert measurement.times_us == tuple(time for times in rounds for time in times)

    @given(st.lists(times_us, min_size=1, max_size=5), st.just(0.0) | st.floats(0.1, 1e9), st.floats(1.0, 1e3))
    def test_it_is_that_of_the_quiet_machine(
        self, rounds: list[list[float]], overhead_us: float, slowdown: float
    ) -> None:
        """A latency from a disturbed machine is divided by its slowdown, and the interval contains both."""
        disturbed = measured(elementwise(2), *rounds, overhead_us=overhead_us)
        quiet = replace(disturbed, environment={"slowdown": slowdown})
        least_us = MIN_LATENCY_US if overhead_us else 0.0
        assert quiet.latency_us == max(least_us, disturbed.latency_us / slowdown)
        low, high = quiet.interval_us
        assert low <= quiet.latency_us * (1 + 1e-12)
        assert disturbed.latency_us <= high * (1 + 2e-12)
        assert quiet.timing.call_us == disturbed.timing.call_us

    @given(st.floats(1.0, 10.0), st.integers(2, 64))
    def test_several_threads_are_slowed_by_less(self, slowdown: float, threads: int) -> None:
        """With several threads the probes exaggerate, so that the latency is divided by 1.2 at most."""
        disturbed = measured(elementwise(2), [100.0, 101.0], [99.0])
        quiet = replace(disturbed, environment={"slowdown": slowdown, "threads": threads})
        assert quiet.latency_us == disturbed.latency_us / min(slowdown, 1.2)
        assert quiet.interval_us[0] <= quiet.latency_us
        assert disturbed.latency_us <= quiet.interval_us[1]

    def test_more_runs_narrow_the_interval(self) -> None:
        """More runs of the same spread narrow the interval."""
        few = measured(elementwise(2), [float(n) for n in range(100, 200, 10)])
        many = measured(elementwise(2), [100 + n / 10 for n in range(1000)])
        assert many.interval_us[1] - many.interval_us[0] < few.interval_us[1] - few.interval_us[0]

    def test_a_capability_is_the_same_quantile(self) -> None:
        """Capabilities use the same statistic as layers, within their time limit."""
        clock = FakeClock()
        runner = scripted(clock, 1.0, *(float(time) for time in range(1, 101)), 1e6)
        assert repeated_us(runner, clock, budget_us=5050.0) == median_us(range(1, 101))


def test_what_depends_on_data_is_known_by_its_operators() -> None:
    """Data-dependent sequences are recognised by operators such as NonZero."""
    assert is_data_dependent(elementwise(8, op_type="NonZero"))
    assert not is_data_dependent(elementwise(8))


def test_the_reference_is_one_matrix_product() -> None:
    """The reference kernel is a square matrix product with one operand as a weight."""
    sequence = reference_sequence(64)
    assert sequence.kind == "MatMul"
    assert {value.type.shape for value in sequence.values} == {(64, 64)}
    assert [value.role for value in sequence.values] == ["input", "constant", "internal"]


def test_records_carry_the_time_in_utc() -> None:
    """The time of a record is ISO 8601 in UTC, fits its column, and differs between measurements."""
    assert datetime.fromisoformat(now()).utcoffset() == timedelta(0)
    assert len(now()) <= 32
    assert "." in now()


def test_the_environment_is_optional() -> None:
    """The environment of a measurement is optional."""
    assert Measurement("s", "model", ((1.0,),), (1.0,), True).latency_us == 1.0
