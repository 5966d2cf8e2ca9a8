"""The monitor of the machine's state, in simulated time."""

import math
from collections.abc import Callable
from dataclasses import replace

import hypothesis.strategies as st
import pytest
from hypothesis import given

from costmodel.measure.machine_state import QUIET, MachineStateMonitor, StateProbe, product_chain, state_probes
from costmodel.measure.protocol import Protocol
from tests.fakes import HOST, FakeClock, FakeRunner

QUIET_US = {"memory": 100.0, "cache": 40.0, "products": 50.0}
SLOW = 1.3
# Time of a check, in microseconds: three runs of each probe, one more of the probe of the cache.
CHECK_US = 3 * sum(QUIET_US.values()) + QUIET_US["cache"]
PROTOCOL = Protocol(state_check_every_us=20_000.0, max_wait_us=1_000_000.0)


class Machine:
    """A simulated machine on which the probe of one resource takes twice its quiet time for a while."""

    def __init__(self, busy: Callable[[float], str]) -> None:
        """Creates a clock that advances with the runs.

        Args:
            busy: Returns the resource that is disturbed at a time in microseconds; "quiet" for none.
        """
        self.clock = FakeClock()
        self.slept: list[float] = []
        self._busy = busy

    @property
    def state(self) -> str:
        """State of the machine now."""
        return self._busy(self.clock.now_ns / 1000)

    def sleep(self, seconds: float) -> None:
        """Let time pass without runs."""
        self.slept.append(seconds)
        self.clock.pass_us(seconds * 1e6)

    def probe(self, name: str, plausible_us: float = math.inf) -> StateProbe:
        """Returns the probe of a resource."""
        runner = FakeRunner(self.clock, 1.0, lambda _: QUIET_US[name] * (2 if self.state == name else 1))
        return StateProbe(name, runner, SLOW, warm=name == "cache", plausible_us=plausible_us)

    def monitor(
        self, *, known: bool = True, protocol: Protocol = PROTOCOL, plausible_us: float = math.inf
    ) -> MachineStateMonitor:
        """Returns a monitor of this machine, which knows its quiet times or not."""
        probes = [self.probe(name, plausible_us if name == "products" else math.inf) for name in QUIET_US]
        quiet_us = QUIET_US if known else None
        return MachineStateMonitor(probes, protocol, quiet_us, clock_ns=self.clock, sleep=self.sleep)


def test_the_chain_is_one_of_products_that_wait_for_each_other(run_alone: Callable[..., None]) -> None:
    """Each product reads the previous one, and the runtime runs the chain."""
    sequence = product_chain()
    made = [layer.outputs[0] for layer in sequence.layers]
    assert [layer.inputs[0] for layer in sequence.layers] == [0, *made[:-1]]
    assert len({layer.inputs[1] for layer in sequence.layers}) == len(sequence.layers)
    assert sequence.outputs == (made[-1],)
    run_alone(sequence)


@pytest.mark.parametrize("host", [None, HOST])
def test_every_resource_has_a_probe_that_runs(host: object) -> None:
    """The probes of any host, also of one whose caches are unknown, run and take time."""
    runner = FakeRunner(FakeClock(), 1.0)
    probes = state_probes(lambda _: runner, host)  # type: ignore[arg-type]
    assert {probe.name for probe in probes} == set(QUIET_US)
    for probe in probes:
        probe.runner.feed()
        probe.runner.run()
    assert runner.runs == 1


class TestQuietTimes:
    """The quiet times of the probes of a system."""

    def test_they_are_found_within_seconds(self) -> None:
        """A machine that becomes quiet after two seconds is still known at its quietest."""
        assert Machine(lambda now_us: QUIET if now_us > 2e6 else "cache").monitor(known=False).quiet_us == QUIET_US

    def test_a_machine_that_is_slower_than_expected_is_given_time(self) -> None:
        """A machine whose CPUs are apart for its first ten seconds is known as it is afterwards."""
        machine = Machine(lambda now_us: QUIET if now_us > 10e6 else "products")
        assert machine.monitor(known=False, plausible_us=60.0).quiet_us == QUIET_US

    def test_it_is_not_waited_for_longer_than_a_minute(self) -> None:
        """A machine that stays slower than expected is taken as it is."""
        machine = Machine(lambda _: "products")
        found = machine.monitor(known=False, plausible_us=60.0).quiet_us
        assert found["products"] == 2 * QUIET_US["products"]
        assert 30 < sum(machine.slept) <= 60

    def test_known_times_are_not_measured_again(self) -> None:
        """With known quiet times nothing is waited for, even on a disturbed machine."""
        machine = Machine(lambda _: "memory")
        assert machine.monitor().quiet_us == QUIET_US
        assert machine.slept == []

    def test_a_neighbour_during_the_first_look_does_not_become_quiet(self) -> None:
        """Quicker times replace those that were found first, within a second."""
        machine = Machine(lambda now_us: QUIET if now_us > 60e6 else "products")
        monitor = machine.monitor(known=False)
        assert monitor.quiet_us == QUIET_US | {"products": 2 * QUIET_US["products"]}
        machine.clock.pass_us(60e6)
        for _ in range(50):
            machine.clock.pass_us(20_000)
            assert monitor.stayed_quiet()
        assert monitor.quiet_us == QUIET_US

    def test_a_neighbour_that_stays_does_not_become_quiet(self) -> None:
        """The quiet times do not rise, however long the machine is busy."""
        machine = Machine(lambda now_us: QUIET if now_us < 20e6 else "cache")
        monitor = machine.monitor(known=False, protocol=replace(PROTOCOL, max_wait_us=0.0))
        for _ in range(5_000):
            machine.clock.pass_us(20_000)
            monitor.stayed_quiet()
        assert monitor.quiet_us == QUIET_US
        assert monitor.state == "cache"

    def test_one_lucky_check_is_not_the_quiet_machine(self) -> None:
        """A single quick time among many does not make all others count as slow."""
        machine = Machine(lambda now_us: "lucky" if 2e6 < now_us < 2.06e6 else "products")
        monitor = machine.monitor(known=False)
        assert monitor.quiet_us == QUIET_US | {"products": 2 * QUIET_US["products"]}


class TestStates:
    """The states of a machine."""

    @pytest.mark.parametrize("state", [QUIET, *QUIET_US])
    def test_each_state_is_told_by_its_probe(self, state: str) -> None:
        """The state has the name of the resource that is disturbed."""
        monitor = Machine(lambda _: state).monitor(protocol=replace(PROTOCOL, max_wait_us=0.0))
        assert monitor.state == QUIET
        monitor.stayed_quiet()
        assert monitor.state == state

    def test_chance_is_not_a_state(self) -> None:
        """A probe that is slow once, and quick when it is repeated at once, leaves the machine quiet."""
        machine = Machine(lambda _: QUIET)
        # Three runs are one time of the probe, so that every other time of the probe is slow.
        runner = FakeRunner(machine.clock, 1.0, lambda runs: 50.0 * (2 if runs // 3 % 2 else 1))
        probe = StateProbe("products", runner, SLOW)
        monitor = MachineStateMonitor(
            [probe], PROTOCOL, {"products": 50.0}, clock_ns=machine.clock, sleep=machine.sleep
        )
        assert all(monitor.stayed_quiet() for _ in range(20))
        assert monitor.metadata()["states_us"].keys() == {QUIET}

    def test_a_probe_that_scatters_is_given_more_room(self) -> None:
        """Times that scatter by half from check to check are no state; twice the usual time for long is one."""
        machine = Machine(lambda now_us: "products" if now_us > 10e6 else QUIET)
        factors = [0.9, 1.0, 1.3, 1.1, 1.4, 1.0, 1.2]
        runner = FakeRunner(
            machine.clock, 1.0, lambda runs: 50.0 * factors[runs % 7] * (4 if machine.state == "products" else 1)
        )
        probe = StateProbe("products", runner, 1.05, runs=1)
        monitor = MachineStateMonitor(
            [probe], replace(PROTOCOL, max_wait_us=0.0), clock_ns=machine.clock, sleep=machine.sleep
        )
        while machine.state == QUIET:
            machine.clock.pass_us(20_000)
            monitor.stayed_quiet()
        assert monitor.metadata()["checks_disturbed"] <= 1
        machine.clock.pass_us(20_000)
        monitor.stayed_quiet()
        assert monitor.state == "products"

    def test_the_time_in_each_state_adds_up(self) -> None:
        """The time since the previous check counts for the state that a check finds."""
        machine = Machine(lambda now_us: "cache" if now_us > 500_000 else QUIET)
        monitor = machine.monitor(protocol=replace(PROTOCOL, max_wait_us=0.0))
        for _ in range(50):
            machine.clock.pass_us(20_000)
            monitor.stayed_quiet()
        assert sum(monitor.states_us.values()) == pytest.approx(machine.clock.now_ns / 1000)
        assert monitor.states_us["cache"] == pytest.approx(monitor.states_us[QUIET], rel=0.15)

    def test_without_probes_every_machine_is_quiet(self) -> None:
        """A monitor without probes never asks for a check and keeps everything."""
        machine = Machine(lambda _: "memory")
        monitor = MachineStateMonitor((), PROTOCOL, clock_ns=machine.clock, sleep=machine.sleep)
        machine.clock.pass_us(1e6)
        assert not monitor.due
        assert monitor.stayed_quiet()
        assert (monitor.metadata(), machine.slept) == ({}, [])


class TestWaiting:
    """Waiting for a quiet machine."""

    def test_nothing_is_lost_on_a_quiet_machine(self) -> None:
        """On a quiet machine a check takes only the time of its probes."""
        machine = Machine(lambda _: QUIET)
        monitor = machine.monitor()
        machine.clock.pass_us(20_000)
        assert monitor.due
        assert monitor.stayed_quiet()
        assert not monitor.due
        assert (machine.slept, monitor.lost_us, monitor.kept_disturbed) == ([], 0.0, 0)
        assert monitor.metadata() == {
            "probes_us": QUIET_US, "quiet_probes_us": QUIET_US, "checks": 1, "checks_disturbed": 0,
            "slowdown": 1.0,
            "states_us": {QUIET: pytest.approx(machine.clock.now_ns / 1000)},
        }  # fmt: skip

    @pytest.mark.parametrize("state", list(QUIET_US))
    def test_disturbed_times_are_to_be_taken_again(self, state: str) -> None:
        """Times on a disturbed machine are discarded after waiting, and the time lost is counted."""
        machine = Machine(lambda now_us: QUIET if now_us > 500_000 else state)
        monitor = machine.monitor()
        machine.clock.pass_us(20_000)
        began_us = machine.clock.now_ns / 1000
        assert not monitor.stayed_quiet()
        assert machine.state == QUIET
        assert monitor.lost_us == pytest.approx(machine.clock.now_ns / 1000 - began_us + 20_000, abs=4 * CHECK_US)
        assert monitor.kept_disturbed == 0

    def test_patience_ends(self) -> None:
        """Waiting ends after a second, is reported, and starts again only after the machine was quiet for a while."""
        machine = Machine(lambda _: "memory")
        monitor = machine.monitor()
        assert monitor.stayed_quiet()
        assert sum(machine.slept) == pytest.approx(1.0, abs=0.06)
        slept = len(machine.slept)
        machine.clock.pass_us(20_000)
        assert monitor.stayed_quiet()
        assert len(machine.slept) == slept
        assert monitor.metadata()["checks_disturbed"] == 2
        assert monitor.metadata()["slowdown"] == pytest.approx(2.0)

    def test_patience_can_be_limited(self) -> None:
        """With less patience, waiting ends sooner; more patience than there is changes nothing."""
        machine = Machine(lambda _: "memory")
        monitor = machine.monitor()
        monitor.limit_patience(200_000.0)
        monitor.limit_patience(1e9)
        assert monitor.stayed_quiet()
        assert sum(machine.slept) == pytest.approx(0.2, abs=0.06)

    def test_a_deadline_ends_waiting(self) -> None:
        """The deadline of a budget ends waiting."""
        machine = Machine(lambda _: "memory")
        monitor = machine.monitor()
        machine.clock.pass_us(20_000)
        assert monitor.stayed_quiet(machine.clock.now_ns + 200_000_000)
        assert sum(machine.slept) == pytest.approx(0.2, abs=0.06)

    def test_a_group_begins_without_the_checks_of_the_last_one(self) -> None:
        """Checks and times in each state start anew for each group; the quiet times stay."""
        monitor = Machine(lambda _: "memory").monitor()
        monitor.stayed_quiet()
        monitor.restart()
        assert monitor.metadata() == {
            "probes_us": {}, "quiet_probes_us": QUIET_US, "checks": 0, "checks_disturbed": 0, "slowdown": 1.0,
            "states_us": {},
        }  # fmt: skip

    @given(
        moves_us=st.lists(st.floats(1_000.0, 3e6, allow_nan=False), min_size=1, max_size=30),
        stretch_us=st.floats(100.0, 200_000.0, allow_nan=False),
        states=st.tuples(st.sampled_from([QUIET, *QUIET_US]), st.sampled_from([QUIET, *QUIET_US])),
    )
    def test_it_loses_no_more_than_twice_what_it_keeps(
        self, moves_us: list[float], stretch_us: float, states: tuple[str, str]
    ) -> None:
        """The lost time is at most twice the kept time plus the waiting limit, one stretch and one rest."""

        def busy(now_us: float) -> str:
            until_us = 0.0
            for number, move_us in enumerate(moves_us):
                until_us += move_us
                if now_us < until_us:
                    return states[number % 2]
            return states[len(moves_us) % 2]

        machine = Machine(busy)
        monitor = machine.monitor()
        kept_us = 0.0
        for _ in range(100):
            machine.clock.pass_us(stretch_us)
            if monitor.stayed_quiet():
                kept_us += stretch_us
        slack_us = 100 * (len(monitor.checks_us["cache"]) + 1) * 2 * CHECK_US
        assert monitor.lost_us <= PROTOCOL.max_wait_us + 2 * kept_us + stretch_us + 60_000 + slack_us


def test_protocols_check_as_often_as_they_say() -> None:
    """With an interval of 0, a check is always due."""
    assert Machine(lambda _: QUIET).monitor(protocol=replace(PROTOCOL, state_check_every_us=0.0)).due
