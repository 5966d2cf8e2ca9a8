"""Detection of threads out of sync, in simulated time."""

from collections.abc import Callable
from dataclasses import replace

import hypothesis.strategies as st
import pytest
from hypothesis import given

from costmodel.measure.measurement import Protocol
from costmodel.measure.thread_sync import ThreadSyncMonitor, thread_sync_sequence
from tests.fakes import FakeClock, FakeRunner

NEAR_US, APART_US = 50.0, 100.0
PROTOCOL = Protocol(sync_check_every_us=20_000.0, max_wait_us=1_000_000.0)


class Host:
    """A simulated host that moves virtual cores as `state` says for a time in microseconds."""

    def __init__(self, near: Callable[[float], bool]) -> None:
        """Creates a clock that advances with the runs."""
        self.clock = FakeClock()
        self.slept: list[float] = []
        self._near = near

    @property
    def near(self) -> bool:
        """Whether the cores are in sync now."""
        return self._near(self.clock.now_ns / 1000)

    def sleep(self, seconds: float) -> None:
        """Let time pass without runs."""
        self.slept.append(seconds)
        self.clock.pass_us(seconds * 1e6)

    def handover(self, in_sync_us: float | None = NEAR_US) -> ThreadSyncMonitor:
        """Returns the synchronisation monitor of this host."""
        runner = FakeRunner(self.clock, 1.0, lambda _: NEAR_US if self.near else APART_US)
        return ThreadSyncMonitor(runner, PROTOCOL, in_sync_us, clock_ns=self.clock, sleep=self.sleep)


def test_the_runtime_runs_it(run_alone: Callable[..., None]) -> None:
    """The probe is a chain of products, each of which reads the previous one."""
    sequence = thread_sync_sequence()
    made = [layer.outputs[0] for layer in sequence.layers]
    assert [layer.inputs[0] for layer in sequence.layers] == [0, *made[:-1]]
    assert len({layer.inputs[1] for layer in sequence.layers}) == len(sequence.layers)
    assert sequence.outputs == (made[-1],)
    run_alone(sequence)


class TestKnowing:
    """The best synchronisation time of a system."""

    def test_it_is_found_out_by_looking_for_a_while(self) -> None:
        """Cores that are in sync only after two seconds are still found so."""
        assert Host(lambda now_us: now_us > 2e6).handover(None).in_sync_us == NEAR_US

    def test_what_is_known_is_not_found_out_again(self) -> None:
        """A known best time is used after one probe, even while cores are out of sync."""
        host = Host(lambda _: False)
        assert host.handover().in_sync_us == NEAR_US
        assert host.slept == []

    def test_it_learns_that_they_can_be_nearer(self) -> None:
        """A better time than the known one replaces it."""
        host = Host(lambda now_us: now_us > 60e6)
        handover = host.handover(None)
        assert handover.in_sync_us == APART_US
        host.clock.pass_us(60e6)
        assert handover.stayed_in_sync()
        assert handover.in_sync_us == NEAR_US


class TestWaiting:
    """Waiting until threads are in sync."""

    def test_nothing_is_lost_while_they_are(self) -> None:
        """While threads are in sync, probing takes almost no time."""
        host = Host(lambda _: True)
        handover = host.handover()
        host.clock.pass_us(20_000)
        assert handover.due
        assert handover.stayed_in_sync()
        assert not handover.due
        assert (host.slept, handover.lost_us, handover.checks_out_of_sync) == ([], 0.0, 0)
        assert handover.metadata() == {"handover_us": 50.0, "handover_near_us": 50.0, "looks": 1, "looks_apart": 0}

    def test_what_was_timed_apart_is_to_be_timed_again(self) -> None:
        """Times out of sync are discarded after waiting, and the time lost is counted."""
        host = Host(lambda now_us: now_us > 500_000)
        handover = host.handover()
        host.clock.pass_us(20_000)
        began_us = host.clock.now_ns / 1000
        assert not handover.stayed_in_sync()
        assert host.near
        assert handover.lost_us == pytest.approx(host.clock.now_ns / 1000 - began_us + 20_000, abs=5 * APART_US)
        assert handover.checks_out_of_sync == 0

    def test_patience_ends(self) -> None:
        """Waiting ends after a second with a report, and starts again only after threads were in sync for a while."""
        host = Host(lambda _: False)
        handover = host.handover()
        assert handover.stayed_in_sync()
        assert sum(host.slept) == pytest.approx(1.0, abs=0.06)
        slept = len(host.slept)
        host.clock.pass_us(20_000)
        assert handover.stayed_in_sync()
        assert len(host.slept) == slept
        assert handover.metadata()["looks_apart"] == 2

    def test_nothing_is_waited_for_when_time_is_up(self) -> None:
        """The deadline of a budget ends waiting."""
        host = Host(lambda _: False)
        handover = host.handover()
        host.clock.pass_us(20_000)
        assert handover.stayed_in_sync(host.clock.now_ns + 200_000_000)
        assert sum(host.slept) == pytest.approx(0.2, abs=0.06)

    def test_a_group_begins_without_the_looks_of_the_last_one(self) -> None:
        """The counts of probes start anew for each group."""
        handover = Host(lambda _: False).handover()
        handover.stayed_in_sync()
        handover.restart()
        assert handover.metadata() == {"handover_near_us": NEAR_US, "looks": 0, "looks_apart": 0}

    @given(
        moves_us=st.lists(st.floats(1_000.0, 3e6, allow_nan=False), min_size=1, max_size=30),
        stretch_us=st.floats(100.0, 200_000.0, allow_nan=False),
        first=st.booleans(),
    )
    def test_it_loses_no_more_than_twice_what_it_keeps(
        self, moves_us: list[float], stretch_us: float, first: bool
    ) -> None:
        """The lost time is at most twice the kept time plus the waiting limit, one stretch and one rest."""

        def near(now_us: float) -> bool:
            state, until_us = first, 0.0
            for move_us in moves_us:
                until_us += move_us
                if now_us < until_us:
                    return state
                state = not state
            return state

        host = Host(near)
        handover = host.handover()
        kept_us = 0.0
        for _ in range(200):
            host.clock.pass_us(stretch_us)
            if handover.stayed_in_sync():
                kept_us += stretch_us
        slack_us = 200 * (len(handover.checks_us) + 1) * APART_US
        assert handover.lost_us <= PROTOCOL.max_wait_us + 2 * kept_us + stretch_us + 60_000 + slack_us


def test_protocols_look_as_often_as_they_say() -> None:
    """With an interval of 0, a probe is always due."""
    host = Host(lambda _: True)
    runner = FakeRunner(host.clock, NEAR_US)
    handover = ThreadSyncMonitor(runner, replace(PROTOCOL, sync_check_every_us=0.0), NEAR_US, clock_ns=host.clock)
    assert handover.due
