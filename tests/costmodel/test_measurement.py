"""The measurement protocol, in imagined time."""

import gc
import os
from datetime import datetime, timedelta

import hypothesis.strategies as st
import pytest
from hypothesis import given

from costmodel.errors import MeasurementError
from costmodel.measurement import (
    Measurement,
    Protocol,
    agreeing_rounds,
    capability_latency_us,
    is_data_dependent,
    jitter,
    measure,
    now,
    pinned,
    quiet_latency_us,
    reference_sequence,
)
from tests.fakes import FakeClock, FakeRunner, elementwise, measured

QUIET_US = 200.0
# One run in each round, and one before it that is not kept: what a script of run times says is easily followed.
SINGLE = Protocol(rounds=5, most_rounds=9, round_us=1_000.0, most_runs=1, warm_up_us=0.0)

positive_us = st.floats(1e-3, 1e9, allow_nan=False)
times_us = st.lists(positive_us, min_size=1, max_size=60)


class Scripted:
    """A runner whose runs take the times of a list, and the last of them from then on."""

    def __init__(self, clock: FakeClock, *script_us: float) -> None:
        self.clock = clock
        self.script_us = script_us
        self.taken_us: list[float] = []

    def run(self) -> None:
        """Let the next time pass."""
        self.taken_us.append(self.script_us[min(len(self.taken_us), len(self.script_us) - 1)])
        self.clock.pass_us(self.taken_us[-1])


def doubled(*rounds_us: float) -> tuple[float, ...]:
    """A script for `SINGLE` in which the run before each round takes what the round takes."""
    return tuple(time for one in rounds_us for time in (one, one))


class TestRounds:
    """How many rounds and runs there are, and when they are believed."""

    def test_a_quiet_machine_is_measured_in_the_rounds_that_are_always_taken(self) -> None:
        """Nothing is added where all rounds agree."""
        clock = FakeClock()
        rounds, references, stable = measure(
            FakeRunner(clock, 1_000.0), FakeRunner(clock, QUIET_US), QUIET_US, Protocol(), clock
        )
        assert rounds == ((1_000.0,) * 10,) * 5
        assert references == (QUIET_US,) * 5
        assert stable

    @pytest.mark.parametrize(
        ("cost_us", "runs"), [(1.0, 40), (250.0, 40), (1_000.0, 10), (3_000.0, 3), (10_000.0, 1), (1e6, 1)]
    )
    def test_a_round_takes_its_time_but_has_a_run_at_least(self, cost_us: float, runs: int) -> None:
        """Cheap networks run often, dear ones once, and none more often than the protocol says."""
        clock = FakeClock()
        rounds, _, _ = measure(FakeRunner(clock, cost_us), FakeRunner(clock, QUIET_US), QUIET_US, Protocol(), clock)
        assert {len(times) for times in rounds} == {runs}

    def test_a_burst_while_warming_up_does_not_shorten_the_rounds(self) -> None:
        """The fastest run that was seen says how many runs fill a round."""
        clock = FakeClock()
        runner = FakeRunner(clock, 1_000.0, lambda run: 100.0 if run == 4 else 1.0)
        rounds, _, _ = measure(runner, FakeRunner(clock, QUIET_US), QUIET_US, Protocol(), clock)
        assert {len(times) for times in rounds} == {10}

    def test_every_raw_time_is_kept_in_order(self) -> None:
        """Only warm-up runs and the one that fills the caches are missing."""
        clock = FakeClock()
        protocol = Protocol(rounds=2, most_rounds=2, round_us=30.0, most_runs=3, warm_up_us=20.0)
        runner = Scripted(clock, 10.0, 10.0, 99.0, 1.0, 2.0, 3.0, 99.0, 4.0, 5.0, 6.0)
        rounds, _, _ = measure(runner, FakeRunner(clock, QUIET_US), QUIET_US, protocol, clock)
        assert rounds == ((1.0, 2.0, 3.0), (4.0, 5.0, 6.0))

    def test_the_reference_is_timed_once_before_each_round(self) -> None:
        """Its first run brings it into the caches, the second one counts."""
        clock = FakeClock()
        reference = Scripted(clock, *(time for kept in (201.0, 202.0, 203.0, 204.0, 205.0) for time in (999.0, kept)))
        _, references, _ = measure(FakeRunner(clock, 1_000.0), reference, QUIET_US, SINGLE, clock)
        assert references == (201.0, 202.0, 203.0, 204.0, 205.0)

    def test_rounds_are_added_while_rounds_disagree(self) -> None:
        """Measuring goes on until three rounds are near the fastest one, and no longer."""
        clock = FakeClock()
        runner = Scripted(clock, 1.0, *doubled(130.0, 120.0, 110.0, 150.0, 101.0, 140.0, 100.0, 102.0, 100.0))
        rounds, _, stable = measure(runner, FakeRunner(clock, QUIET_US), QUIET_US, SINGLE, clock)
        assert [times[0] for times in rounds] == [130.0, 120.0, 110.0, 150.0, 101.0, 140.0, 100.0, 102.0]
        assert stable

    def test_rounds_are_added_while_the_reference_says_that_the_machine_is_busy(self) -> None:
        """A round next to a slow reference does not count, however well it agrees."""
        clock = FakeClock()
        reference = Scripted(clock, *doubled(*[QUIET_US * 1.2] * 4, *[QUIET_US * 1.05] * 5))
        rounds, references, stable = measure(FakeRunner(clock, 100.0), reference, QUIET_US, SINGLE, clock)
        assert len(rounds) == len(references) == 7
        assert stable

    def test_what_never_agrees_is_given_up_and_marked(self) -> None:
        """After the most rounds there are, the times are kept as they are and called unstable."""
        clock = FakeClock()
        runner = Scripted(clock, 1.0, *doubled(*(100.0 * 1.1**n for n in range(20))))
        rounds, references, stable = measure(runner, FakeRunner(clock, QUIET_US), QUIET_US, SINGLE, clock)
        assert len(rounds) == len(references) == SINGLE.most_rounds
        assert not stable

    @given(st.lists(st.floats(1.0, 3.0), min_size=1, max_size=80), st.floats(1.0, 1.3))
    def test_whatever_the_noise_the_protocol_is_kept(self, noise: list[float], busy: float) -> None:
        """Rounds stay within their bounds, stable means that most of the needed rounds agree, and no time is lost."""
        clock = FakeClock()
        protocol = Protocol(rounds=3, most_rounds=6, round_us=300.0, most_runs=5, warm_up_us=0.0)
        runner = Scripted(clock, *(round(100.0 * factor, 3) for factor in noise))
        rounds, references, stable = measure(runner, FakeRunner(clock, QUIET_US * busy), QUIET_US, protocol, clock)
        assert protocol.rounds <= len(rounds) <= protocol.most_rounds
        assert len(references) == len(rounds)
        assert stable == (agreeing_rounds(rounds, references, QUIET_US, protocol) * 2 > protocol.rounds)
        assert stable or len(rounds) == protocol.most_rounds
        runs = len(rounds[0])
        each = [runner.taken_us[2 + n * (runs + 1) : 1 + (n + 1) * (runs + 1)] for n in range(len(rounds))]
        assert rounds == tuple(tuple(times) for times in each)

    def test_the_defaults_can_be_met(self) -> None:
        """A majority of the rounds that are always taken is never more than there can be."""
        protocol = Protocol()
        assert protocol.rounds <= protocol.most_rounds
        assert protocol.most_runs >= 1


class TestFailures:
    """What cannot be timed is an error, never a number."""

    def test_a_clock_that_stands_still_is_an_error(self) -> None:
        """A run that takes no time has no latency."""
        clock = FakeClock()
        with pytest.raises(MeasurementError, match="clock did not move"):
            measure(FakeRunner(clock, 0.0), FakeRunner(clock, QUIET_US), QUIET_US, Protocol(), clock)

    def test_a_clock_that_stops_half_way_is_an_error(self) -> None:
        """No zero gets among the times that are kept."""
        clock = FakeClock()
        with pytest.raises(MeasurementError, match="clock did not move"):
            measure(Scripted(clock, *[100.0] * 6, 0.0), FakeRunner(clock, QUIET_US), QUIET_US, SINGLE, clock)

    def test_a_clock_that_stands_still_does_not_hold_up_what_a_system_can_do(self) -> None:
        """Measuring a capability ends, too."""
        clock = FakeClock()
        with pytest.raises(MeasurementError, match="clock did not move"):
            capability_latency_us(FakeRunner(clock, 0.0), clock)

    @pytest.mark.parametrize("broken", ["runner", "reference"])
    def test_a_network_that_fails_ends_the_measurement(self, broken: str) -> None:
        """The runtime's own words come through, be it the network or the reference that fails."""
        clock = FakeClock()
        runners = {"runner": FakeRunner(clock, 100.0), "reference": FakeRunner(clock, QUIET_US)}
        runners[broken].error = MeasurementError("out of memory in Conv")
        with pytest.raises(MeasurementError, match="out of memory in Conv"):
            measure(runners["runner"], runners["reference"], QUIET_US, SINGLE, clock)


class TestTheProcess:
    """What measuring does to the process that measures, it undoes."""

    @pytest.mark.parametrize("collecting", [True, False])
    @pytest.mark.parametrize("failing", [True, False])
    def test_garbage_is_not_collected_meanwhile_and_as_before_afterwards(self, collecting: bool, failing: bool) -> None:
        """The collector is off while runs are timed, and in its old state however that ends."""
        clock = FakeClock()
        seen = set()

        def noise(run: int) -> float:
            seen.add(gc.isenabled())
            if failing and run > 5:
                raise MeasurementError("failed")
            return 1.0

        (gc.enable if collecting else gc.disable)()
        try:
            if failing:
                with pytest.raises(MeasurementError):
                    measure(FakeRunner(clock, 9.0, noise), FakeRunner(clock, QUIET_US), QUIET_US, SINGLE, clock)
            else:
                measure(FakeRunner(clock, 9.0, noise), FakeRunner(clock, QUIET_US), QUIET_US, SINGLE, clock)
            assert gc.isenabled() is collecting
        finally:
            gc.enable()
        assert seen == {False}

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
    def test_it_lies_between_the_fastest_run_and_the_median(self, times: list[float]) -> None:
        """It is neither the luckiest run nor what a busy machine shows."""
        ordered = sorted(times)
        median = (ordered[(len(times) - 1) // 2] + ordered[len(times) // 2]) / 2
        assert ordered[0] <= quiet_latency_us(times) * (1 + 1e-12)
        assert quiet_latency_us(times) <= median * (1 + 1e-12)

    @given(times_us, st.randoms(use_true_random=False), positive_us)
    def test_neither_the_order_nor_a_slow_run_more_lowers_it(
        self, times: list[float], random: object, extra: float
    ) -> None:
        """It depends on the multiset of times, and what others do to us never makes us look faster."""
        shuffled = list(times)
        random.shuffle(shuffled)  # type: ignore[attr-defined]
        assert quiet_latency_us(shuffled) == quiet_latency_us(times)
        assert quiet_latency_us([*times, max(times) + extra]) >= quiet_latency_us(times) * (1 - 1e-12)

    @given(st.lists(times_us, min_size=1, max_size=5))
    def test_its_interval_contains_it(self, rounds: list[list[float]]) -> None:
        """The interval lies around the latency and within what was seen, and the times are those of all rounds."""
        measurement = measured(elementwise(2), *rounds)
        low, high = measurement.interval_us
        assert low <= measurement.latency_us <= high
        assert min(measurement.times_us) * (1 - 1e-12) <= low
        assert high <= max(measurement.times_us) * (1 + 1e-12)
        assert measurement.times_us == tuple(time for times in rounds for time in times)

    def test_more_runs_narrow_the_interval(self) -> None:
        """The same spread, seen more often, is known better."""
        few = measured(elementwise(2), [float(n) for n in range(100, 200, 10)])
        many = measured(elementwise(2), [100 + n / 10 for n in range(1000)])
        assert many.interval_us[1] - many.interval_us[0] < few.interval_us[1] - few.interval_us[0]

    def test_a_capability_is_the_same_quantile(self) -> None:
        """What a system can do is told in the same terms as what a layer takes, and takes the time it is given."""
        clock = FakeClock()
        runner = Scripted(clock, 1.0, *(float(time) for time in range(1, 101)), 1e6)
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
