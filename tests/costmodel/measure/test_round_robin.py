"""Round-robin timing in simulated time."""

import gc
import math
import signal
import tracemalloc
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import hypothesis.strategies as st
import pytest
from hypothesis import example, given

from costmodel.errors import MeasurementError
from costmodel.interruption import signals_raised
from costmodel.measure.machine_state import MachineStateMonitor, StateProbe
from costmodel.measure.precision import is_precise, relative_error
from costmodel.measure.protocol import Protocol
from costmodel.measure.round_robin import CacheEvictor, TimedNetwork, take_turns, try_out
from tests.fakes import FakeClock, FakeRunner

# One run of each network per lap and nothing else, so that scripted run times are easily followed.
SINGLE = Protocol(passes=4, max_passes=8, min_passes=2, short_lap_us=0.0)

times_us = st.floats(0.1, 1e7, allow_nan=False)
pass_times_us = st.lists(st.lists(times_us, min_size=1, max_size=5), min_size=1, max_size=9)


@dataclass
class Table:
    """Networks on one simulated clock, and a record of their runs.

    Attributes:
        clock: Clock that the runs advance.
        ran: Names of the networks in the order in which they ran.
    """

    clock: FakeClock = field(default_factory=FakeClock)
    ran: list[str] = field(default_factory=list)

    def entry(
        self, name: str, cost_us: float = 100.0, noise: Callable[[int], float] = lambda _: 1.0, *, whole: bool = False
    ) -> TimedNetwork:
        """Returns a timed network."""
        return TimedNetwork(FakeRunner(self.clock, cost_us, noise, label=name, ran=self.ran), whole=whole)

    def entries(self, names: str, cost_us: float = 100.0) -> list[TimedNetwork]:
        """Returns a timed network for each letter."""
        return [self.entry(name, cost_us) for name in names]

    def scripted(self, name: str, *script_us: float) -> TimedNetwork:
        """Returns a network whose runs take the listed times, and the last of them from then on."""
        return self.entry(name, 1.0, lambda run: script_us[min(run, len(script_us) - 1)])

    def time(
        self,
        entries: Sequence[TimedNetwork],
        protocol: Protocol = SINGLE,
        *,
        probes: Sequence[TimedNetwork] = (),
        deadline_ns: float = math.inf,
    ) -> int:
        """Calls `take_turns` with cache eviction recorded as "." and the reference kernel as "r"."""
        reference, evictor = (self.entry(name, cost_us).runner for name, cost_us in (("r", 0.001), (".", 1.0)))
        return take_turns(entries, probes, reference, evictor, protocol, self.clock, deadline_ns)

    def order(self) -> str:
        """Returns the names in the order in which they ran, without the reference kernel."""
        return "".join(self.ran).replace("r", "")


class TestTurns:
    """The order of runs."""

    def test_a_cpu_clock_that_stands_still_is_not_believed(self) -> None:
        """A run takes the time of the wall clock if no CPU time passed in it, as in a short run on some machines."""
        table = Table()
        (network,) = entries = table.entries("a", cost_us=500.0)
        reference, evictor = (table.entry(name, 1.0).runner for name in "r.")
        take_turns(entries, (), reference, evictor, SINGLE, table.clock, cpu_ns=lambda: 0)
        assert {time for times in network.pass_times_us for time in times} == {500.0}

    def test_ctrl_c_ends_them_even_if_a_run_discards_it(self) -> None:
        """The next lap does not begin after a signal whose exception a runtime discarded."""
        table = Table()

        class Discarding(FakeRunner):
            def run(self) -> None:
                super().run()
                with suppress(KeyboardInterrupt):
                    signal.raise_signal(signal.SIGINT)

        network = TimedNetwork(Discarding(table.clock, 100.0, label="a", ran=table.ran), whole=True)
        before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
        try:
            with pytest.raises(KeyboardInterrupt), signals_raised():
                table.time([network])
        finally:
            signal.signal(signal.SIGINT, before)
        assert table.order() == "a"

    def test_each_network_runs_once_in_a_pass_and_in_the_order_given(self) -> None:
        """In each lap all networks run once in order, followed by the cache eviction for other groups' layers."""
        table = Table()
        assert table.time(table.entries("abc")) == SINGLE.passes
        assert table.order() == ".abc" * (1 + SINGLE.passes)

    def test_quick_ones_go_around_several_times_and_first_once_untimed(self) -> None:
        """Short laps are repeated, after an untimed one that fills the caches again, until a turn is long enough."""
        table = Table()
        protocol = replace(SINGLE, short_lap_us=1e6, turn_us=700.0, max_runs=5)
        entries = table.entries("ab")
        table.time(entries, protocol)
        # One lap takes 201 microseconds.
        assert table.order() == ".ab" + ".ab" * (1 + 3) * SINGLE.passes
        assert [len(times) for times in entries[0].pass_times_us] == [3] * SINGLE.passes

    def test_a_turn_has_no_more_runs_than_the_protocol_says(self) -> None:
        """The protocol limits the runs of a turn, however fast the network."""
        table = Table()
        entries = table.entries("a", 0.5)
        table.time(entries, replace(SINGLE, short_lap_us=1e6, turn_us=1e6, max_runs=7, reference_every_us=1e9))
        assert {len(times) for times in entries[0].pass_times_us} == {7}

    @given(layers=st.integers(1, 40), probes=st.integers(0, 40))
    def test_probes_are_spread_evenly(self, layers: int, probes: int) -> None:
        """Probes run once per lap, evenly distributed among the layers."""
        table = Table()
        table.time(table.entries("l" * layers), probes=table.entries("p" * probes))
        pass_ = table.order().split(".")[-1]
        assert (pass_.count("l"), pass_.count("p")) == (layers, probes)
        for position, name in enumerate(pass_):
            if name == "l":
                before = pass_[:position]
                assert abs(before.count("p") - probes * before.count("l") / layers) < 1

    def test_a_whole_model_runs_back_to_back(self) -> None:
        """Whole models run several times in succession, as for a user, and not between layers."""
        table = Table()
        protocol = replace(SINGLE, short_lap_us=150.0, turn_us=450.0, reference_every_us=1e9)
        table.time([*table.entries("ab"), table.entry("W", whole=True)], protocol)
        # The model's lap is short, the layers' is not.
        assert table.order() == "W.ab" + ("W" + "WWWW" + ".ab") * SINGLE.passes

    def test_layers_are_fed_before_each_run_and_whole_models_are_not(self) -> None:
        """Inputs of layers are written before each run, those of whole models are not."""
        table = Table()
        layer, whole = table.entry("a"), table.entry("W", whole=True)
        table.time([layer, whole])
        runs = 1 + SINGLE.passes
        assert [(e.runner.runs, e.runner.feeds) for e in (layer, whole)] == [(runs, runs), (runs, 0)]

    def test_layers_of_a_tiny_model_run_untimed_first(self) -> None:
        """A warm layer runs once untimed before each run; its inputs are written just before the timed one."""
        table = Table()
        # The untimed run takes longer, as it finds the caches cold.
        layer = table.entry("a", 1.0, lambda run: 10.0 if run % 2 == 0 else 5.0)
        whole = table.entry("W", whole=True)
        reference = table.entry("r", 0.001).runner
        take_turns([layer, whole], [], reference, table.entry(".").runner, SINGLE, table.clock, warm=True)
        assert layer.times_us == [5.0] * SINGLE.passes
        assert layer.runner.feeds * 2 == layer.runner.runs
        assert whole.runner.runs == 1 + SINGLE.passes

    def test_the_reference_is_timed_now_and_then(self) -> None:
        """The reference kernel runs twice when due, and the second run counts until it is due again."""
        table = Table()
        references = iter((999.0, 201.0, 999.0, 202.0, 999.0, 203.0))
        reference = FakeRunner(table.clock, 1.0, lambda _: next(references))
        entries = table.entries("ab", 1_000.0)
        protocol = replace(SINGLE, passes=3, max_passes=3, reference_every_us=1_500.0)
        take_turns(entries, [], reference, CacheEvictor(0), protocol, table.clock)
        # A pass takes 2 milliseconds: the reference is due before each run of a.
        assert entries[0].reference_us == [201.0, 202.0, 203.0]
        assert entries[1].reference_us == [201.0, 202.0, 203.0]

    @pytest.mark.parametrize("short_lap_us", [0.0, 1e6], ids=["slow laps", "quick laps"])
    @given(moves_us=st.lists(st.integers(100, 9_000), max_size=12), first=st.booleans())
    @example(moves_us=[100, 1301, 500, 3127, 500], first=False)
    def test_what_was_timed_while_threads_were_apart_is_timed_again(
        self, short_lap_us: float, moves_us: list[int], first: bool
    ) -> None:
        """Runs timed on a disturbed machine are repeated, so that number and order of times are kept."""
        table = Table()

        def factor(_: int) -> float:
            passed_us, state = table.clock.now_ns / 1000, first
            for move_us in moves_us:
                passed_us -= move_us
                if passed_us < 0:
                    break
                state = not state
            return 1.0 if passed_us >= 0 or state else 2.0

        protocol = replace(
            SINGLE, short_lap_us=short_lap_us, turn_us=2_000.0, state_check_every_us=1.0, max_wait_us=1e9, max_runs=3
        )
        probe = StateProbe("products", FakeRunner(table.clock, 1.0, factor), 1.3)
        monitor = MachineStateMonitor(
            [probe], protocol, {"products": 1.0}, clock_ns=table.clock, sleep=lambda s: table.clock.pass_us(s * 1e6)
        )
        entries = [table.entry(name, cost_us, factor) for name, cost_us in (("a", 100.0), ("b", 300.0))]
        entries.append(table.entry("W", 500.0, factor, whole=True))
        reference = FakeRunner(table.clock, 0.001)
        passes = take_turns(entries, [], reference, CacheEvictor(0), protocol, table.clock, monitor=monitor)
        late = []
        for entry, cost_us in zip(entries, (100.0, 300.0, 500.0), strict=True):
            assert len(entry.pass_times_us) == len(entry.reference_us) == passes
            # A run that spans a change of state takes as long as the state at its beginning says.
            assert set(entry.times_us) <= {cost_us, 2 * cost_us}
            late.append(sum(time_us > cost_us for time_us in entry.times_us))
            assert late[-1] <= len(moves_us)
        # A disturbance that begins and ends between two checks is not seen; more passes are made if times disagree.
        assert passes >= SINGLE.passes
        assert any(late) or passes == SINGLE.passes
        assert monitor.kept_disturbed == 0

    def test_a_machine_that_stays_disturbed_is_timed_as_it_is(self) -> None:
        """If the machine stays disturbed, runs are timed anyway after one wait."""
        table = Table()
        slept: list[float] = []
        monitor = MachineStateMonitor(
            [StateProbe("products", FakeRunner(table.clock, 2.0), 1.3)],
            replace(SINGLE, max_wait_us=100_000.0),
            {"products": 1.0},
            clock_ns=table.clock,
            sleep=lambda s: (slept.append(s), table.clock.pass_us(s * 1e6))[1],
        )
        entries = table.entries("ab")
        take_turns(entries, [], FakeRunner(table.clock, 0.001), CacheEvictor(0), SINGLE, table.clock, monitor=monitor)
        assert [len(entry.pass_times_us) for entry in entries] == [SINGLE.passes] * 2
        assert monitor.kept_disturbed == SINGLE.passes
        assert sum(slept) == pytest.approx(0.1, abs=0.06)

    def test_every_time_of_a_pass_is_kept_in_order(self) -> None:
        """All times are kept in order except those of the first, untimed laps."""
        table = Table()
        entry = table.scripted("a", 50.0, 99.0, 1.0, 2.0, 99.0, 3.0, 4.0)
        protocol = Protocol(passes=2, max_passes=2, min_passes=1, short_lap_us=1e6, turn_us=0.0, max_runs=5)
        table.time([entry], replace(protocol, turn_us=120.0))
        # Of the first turn the runs are as many as the first lap's 51 microseconds fit into 120.
        assert entry.pass_times_us[0] == (1.0, 2.0)
        assert entry.times_us == [time for times in entry.pass_times_us for time in times]
        assert len(entry.reference_us) == len(entry.pass_times_us) == 2


class TestPasses:
    """The number of passes."""

    def test_those_that_are_always_made_are_enough_where_all_agree(self) -> None:
        """If all times agree, only the `passes` of the protocol are made."""
        table = Table()
        entries = table.entries("abc")
        assert table.time(entries) == SINGLE.passes
        assert [entry.pass_times_us for entry in entries] == [[(100.0,)] * SINGLE.passes] * 3

    def test_one_that_does_not_agree_keeps_all_of_them_going(self) -> None:
        """A network whose times do not agree keeps all networks of the group running."""
        table = Table()
        noisy = table.scripted("b", 1.0, 100.0, 130.0, 100.0, 140.0, *[100.0] * 9)
        entries = [table.entry("a"), noisy]
        passes = table.time(entries)
        assert SINGLE.passes < passes < SINGLE.max_passes
        assert [len(entry.pass_times_us) for entry in entries] == [passes] * 2
        assert is_precise(noisy.pass_times_us, SINGLE)
        assert not is_precise(noisy.pass_times_us[:-1], SINGLE)

    def test_what_never_agrees_is_given_up(self) -> None:
        """After the maximum number of passes, times that do not agree are kept as they are."""
        table = Table()
        entry = table.entry("a", 100.0, lambda run: 1.1**run)
        assert table.time([entry]) == SINGLE.max_passes
        assert not is_precise(entry.pass_times_us, SINGLE)

    @pytest.mark.parametrize(("max_group_us", "passes"), [(1.0, 2), (250.0, 3), (500.0, 4), (1e9, 8)])
    def test_what_takes_long_is_done_sooner(self, max_group_us: float, passes: int) -> None:
        """Slow networks end after fewer passes, but not before `min_passes`."""
        table = Table()
        entry = table.entry("a", 100.0, lambda run: 1.1**run)  # passes take 110, 121, 133, 146, ...
        protocol = replace(SINGLE, max_group_us=max_group_us, reference_every_us=1e9)
        reference, evictor = FakeRunner(table.clock, 0.001), FakeRunner(table.clock, 0.001)
        assert take_turns([entry], [], reference, evictor, protocol, table.clock) == passes

    @pytest.mark.parametrize(("after_us", "passes"), [(-1.0, 1), (0.0, 1), (250.0, 3), (1e9, 4)])
    def test_no_pass_begins_after_the_deadline(self, after_us: float, passes: int) -> None:
        """No pass begins after the deadline, but at least one is made."""
        table = Table()
        entry = table.entry("a")
        begin_ns = 1_000.0 * (100.0 + 0.002)  # after the first lap of the entry and the cache eviction
        reference, evictor = FakeRunner(table.clock, 0.001), FakeRunner(table.clock, 0.002)
        deadline_ns = begin_ns + 1_000.0 * after_us
        assert take_turns([entry], [], reference, evictor, SINGLE, table.clock, deadline_ns) == passes
        assert len(entry.pass_times_us) == passes

    def test_nothing_but_failures_is_given_up(self) -> None:
        """If all networks fail, timing ends after the `passes` of the protocol."""
        table = Table()
        entry = table.entry("a")
        entry.runner.error = MeasurementError("failed")
        assert table.time([entry]) == SINGLE.passes
        assert entry.pass_times_us == []


class TestFailures:
    """A failing network does not stop the others."""

    @pytest.mark.parametrize("at", [0, 1, 3, 6])
    def test_one_that_fails_keeps_its_error_and_takes_no_more_turns(self, at: int) -> None:
        """A network that fails, in an untimed lap or within a turn, keeps its error and runs no more."""
        table = Table()

        def failing(run: int) -> float:
            if run == at:
                raise MeasurementError("out of memory in Conv")
            return 1.0

        protocol = replace(SINGLE, short_lap_us=1e6, turn_us=450.0, reference_every_us=1e9)
        fine, bad = table.entry("a"), table.entry("b", 100.0, failing)
        table.time([fine, bad], protocol)
        assert str(bad.error) == "out of memory in Conv"
        assert bad.runner.runs == at
        assert fine.error is None
        assert len(fine.pass_times_us) == SINGLE.passes
        assert len(bad.pass_times_us) == len(bad.reference_us) == max(0, (at - 2) // 3)

    def test_a_clock_that_stands_still_is_an_error(self) -> None:
        """A run of zero time is an error, so that no time is zero."""
        table = Table()
        entry = table.entry("a", 0.0)
        table.time([entry, table.entry("b")])
        assert "clock did not move" in str(entry.error)
        assert entry.times_us == []

    def test_a_reference_that_fails_ends_it(self) -> None:
        """A failing reference kernel ends the timing."""
        table = Table()
        reference = FakeRunner(table.clock, 1.0, error=MeasurementError("out of memory in MatMul"))
        with pytest.raises(MeasurementError, match="out of memory in MatMul"):
            take_turns(table.entries("a"), [], reference, CacheEvictor(0), SINGLE, table.clock)


def test_what_fails_when_it_is_tried_out_says_why() -> None:
    """A network that fails its trial run keeps the error and is not timed."""
    table = Table()
    sound, broken = table.entry("a", 1.0), table.entry("b", 1.0)
    broken.runner.error = MeasurementError("out of memory")
    for entry in (sound, broken):
        try_out(entry)
    assert sound.error is None
    assert broken.error is broken.runner.error


@pytest.mark.parametrize("collecting", [True, False])
@pytest.mark.parametrize("failing", [True, False])
def test_garbage_is_not_collected_meanwhile_and_as_before_afterwards(collecting: bool, failing: bool) -> None:
    """Garbage collection is off while timing and restored afterwards, also after an error."""
    table = Table()
    states = set()

    def noise(run: int) -> float:
        states.add(gc.isenabled())
        if failing and run > 3:
            raise KeyboardInterrupt
        return 1.0

    (gc.enable if collecting else gc.disable)()
    try:
        if failing:
            with pytest.raises(KeyboardInterrupt):
                table.time([table.entry("a", 9.0, noise)])
        else:
            table.time([table.entry("a", 9.0, noise)])
        assert gc.isenabled() is collecting
    finally:
        gc.enable()
    assert states == {False}


class TestAgreement:
    """The agreement of the times of a network."""

    @given(pass_times_us, st.floats(0.01, 100.0))
    def test_the_error_is_a_share_of_the_time(self, rounds: list[list[float]], factor: float) -> None:
        """The error is relative to the time."""
        scaled = relative_error([[time * factor for time in times] for times in rounds])
        assert scaled == pytest.approx(relative_error(rounds), rel=1e-6, abs=1e-9)

    @given(pass_times_us)
    def test_four_times_as_many_rounds_are_known_twice_as_well(self, rounds: list[list[float]]) -> None:
        """The error falls with the square root of the number of rounds."""
        assert relative_error(rounds * 4) == pytest.approx(relative_error(rounds) / 2, rel=1e-6, abs=1e-12)

    @given(pass_times_us, st.integers(5, 20), times_us)
    def test_one_round_in_trouble_does_not_count(self, rounds: list[list[float]], quiet: int, time: float) -> None:
        """One outlying round does not change the error."""
        assert relative_error([[time]] * quiet + rounds[:1]) == 0.0

    @pytest.mark.parametrize(
        ("rounds", "known"),
        [
            ([100.0, 101.0, 102.0, 103.0], True),
            ([100.0, 110.0, 120.0, 130.0], False),
            # Less than the resolution of the clock.
            ([1.0, 1.1, 1.2, 1.3], True),
            ([1.0, 2.0, 3.0, 4.0], False),
        ],
    )
    def test_a_time_is_known_to_a_share_or_to_what_the_clock_shows(self, rounds: list[float], known: bool) -> None:
        """Times agree to two percent or to a quarter of a microsecond."""
        assert is_precise([[time] for time in rounds], Protocol(agreement=0.02)) is known


@pytest.mark.parametrize("nbytes", [0, 1, 3 << 20, (5 << 20) + 1])
def test_an_evictor_reads_the_requested_number_of_bytes(nbytes: int) -> None:
    """Cache eviction reads the requested memory, rounded up to a megabyte, and nothing for zero."""
    evictor = CacheEvictor(nbytes)
    evictor.run()
    evictor.feed()
    assert nbytes <= evictor.nbytes < nbytes + (1 << 20)


def test_evictors_share_their_memory() -> None:
    """An evictor allocates only what it reads beyond all evictors before it."""
    CacheEvictor(5 << 20)
    tracemalloc.start()
    try:
        evictors = [CacheEvictor(nbytes << 20) for nbytes in (5, 3)]
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert [evictor.nbytes for evictor in evictors] == [5 << 20, 3 << 20]
    assert held < 1 << 16
