"""Whether threads are near each other, in imagined time."""

from collections.abc import Callable
from dataclasses import replace

import hypothesis.strategies as st
import pytest
from hypothesis import given

from costmodel.handover import Handover, handover_sequence
from costmodel.measurement import Protocol
from tests.fakes import FakeClock, FakeRunner

NEAR_US, APART_US = 50.0, 100.0
PROTOCOL = Protocol(handover_every_us=20_000.0, patience_us=1_000_000.0)


class Host:
    """Moves the cores of a virtual machine, as `state` says at any time in microseconds."""

    def __init__(self, near: Callable[[float], bool]) -> None:
        """Of what runs on it, the clock moves."""
        self.clock = FakeClock()
        self.slept: list[float] = []
        self._near = near

    @property
    def near(self) -> bool:
        """Whether cores are near each other now."""
        return self._near(self.clock.now_ns / 1000)

    def sleep(self, seconds: float) -> None:
        """Let time pass, in which nothing runs."""
        self.slept.append(seconds)
        self.clock.pass_us(seconds * 1e6)

    def handover(self, near_us: float | None = NEAR_US) -> Handover:
        """On this host."""
        runner = FakeRunner(self.clock, 1.0, lambda _: NEAR_US if self.near else APART_US)
        return Handover(runner, PROTOCOL, near_us, clock_ns=self.clock, sleep=self.sleep)


def test_the_runtime_runs_it(run_alone: Callable[..., None]) -> None:
    """Each product takes what the one before it made."""
    sequence = handover_sequence()
    made = [layer.outputs[0] for layer in sequence.layers]
    assert [layer.inputs[0] for layer in sequence.layers] == [0, *made[:-1]]
    assert len({layer.inputs[1] for layer in sequence.layers}) == len(sequence.layers)
    assert sequence.outputs == (made[-1],)
    run_alone(sequence)


class TestKnowing:
    """How near they can be."""

    def test_it_is_found_out_by_looking_for_a_while(self) -> None:
        """Cores that are apart at first are found near after two seconds."""
        assert Host(lambda now_us: now_us > 2e6).handover(None).near_us == NEAR_US

    def test_what_is_known_is_not_found_out_again(self) -> None:
        """One look, no rest; and cores that are apart now do not change it."""
        host = Host(lambda _: False)
        assert host.handover().near_us == NEAR_US
        assert host.slept == []

    def test_it_learns_that_they_can_be_nearer(self) -> None:
        """They never were, as long as it looked before."""
        host = Host(lambda now_us: now_us > 60e6)
        handover = host.handover(None)
        assert handover.near_us == APART_US
        host.clock.pass_us(60e6)
        assert handover.stayed_near()
        assert handover.near_us == NEAR_US


class TestWaiting:
    """For threads to be near."""

    def test_nothing_is_lost_while_they_are(self) -> None:
        """A look takes next to nothing."""
        host = Host(lambda _: True)
        handover = host.handover()
        host.clock.pass_us(20_000)
        assert handover.due
        assert handover.stayed_near()
        assert not handover.due
        assert (host.slept, handover.lost_us, handover.apart) == ([], 0.0, 0)
        assert handover.told() == {"handover_us": 50.0, "handover_near_us": 50.0, "looks": 1, "looks_apart": 0}

    def test_what_was_timed_apart_is_to_be_timed_again(self) -> None:
        """It waits for them first; what was timed and waited is lost."""
        host = Host(lambda now_us: now_us > 500_000)
        handover = host.handover()
        host.clock.pass_us(20_000)
        began_us = host.clock.now_ns / 1000
        assert not handover.stayed_near()
        assert host.near
        assert handover.lost_us == pytest.approx(host.clock.now_ns / 1000 - began_us + 20_000, abs=5 * APART_US)
        assert handover.apart == 0

    def test_patience_ends(self) -> None:
        """After a second it goes on as it is, and says so; it does not wait again before they were near for a time."""
        host = Host(lambda _: False)
        handover = host.handover()
        assert handover.stayed_near()
        assert sum(host.slept) == pytest.approx(1.0, abs=0.06)
        slept = len(host.slept)
        host.clock.pass_us(20_000)
        assert handover.stayed_near()
        assert len(host.slept) == slept
        assert handover.told()["looks_apart"] == 2

    def test_nothing_is_waited_for_when_time_is_up(self) -> None:
        """A budget ends patience too."""
        host = Host(lambda _: False)
        handover = host.handover()
        host.clock.pass_us(20_000)
        assert handover.stayed_near(host.clock.now_ns + 200_000_000)
        assert sum(host.slept) == pytest.approx(0.2, abs=0.06)

    def test_a_group_begins_without_the_looks_of_the_last_one(self) -> None:
        """What went wrong there says nothing of this one."""
        handover = Host(lambda _: False).handover()
        handover.stayed_near()
        handover.restart()
        assert handover.told() == {"handover_near_us": NEAR_US, "looks": 0, "looks_apart": 0}

    @given(
        moves_us=st.lists(st.floats(1_000.0, 3e6, allow_nan=False), min_size=1, max_size=30),
        stretch_us=st.floats(100.0, 200_000.0, allow_nan=False),
        first=st.booleans(),
    )
    def test_it_loses_no_more_than_twice_what_it_keeps(
        self, moves_us: list[float], stretch_us: float, first: bool
    ) -> None:
        """Whatever the host does: besides its patience, and what one stretch and one rest go beyond it."""

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
            if handover.stayed_near():
                kept_us += stretch_us
        slack_us = 200 * (len(handover.looks_us) + 1) * APART_US
        assert handover.lost_us <= PROTOCOL.patience_us + 2 * kept_us + stretch_us + 60_000 + slack_us


def test_protocols_look_as_often_as_they_say() -> None:
    """One that looks at once is always due."""
    host = Host(lambda _: True)
    runner = FakeRunner(host.clock, NEAR_US)
    handover = Handover(runner, replace(PROTOCOL, handover_every_us=0.0), NEAR_US, clock_ns=host.clock)
    assert handover.due
