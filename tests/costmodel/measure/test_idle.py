"""Measuring what an idle time costs."""

import math

import pytest

from costmodel.errors import MeasurementError
from costmodel.measure.idle import idle_sequence, measure_idle_effects
from costmodel.runtimes.base import RuntimeSettings, get_runtime
from tests.fakes import FakeClock

RUN_US, EXTRA_US, COOLING_US = 1500.0, 250.0, 6000.0


class ColdRunner:
    """A runner whose runs take longer after an idle time."""

    def __init__(self, clock: FakeClock, extra_us: float = EXTRA_US) -> None:
        self._clock = clock
        self._extra_us = extra_us
        self._ended_ns = clock()

    def run(self) -> None:
        """Takes as much longer as the time since the last run says."""
        idle_us = (self._clock() - self._ended_ns) / 1000
        self._clock.pass_us(RUN_US + self._extra_us * (1 - math.exp(-idle_us / COOLING_US)))
        self._ended_ns = self._clock()

    def feed(self) -> None:
        """Does nothing."""


def _measured(runner: ColdRunner, clock: FakeClock) -> dict[str, float]:
    return measure_idle_effects(runner, clock, lambda seconds: clock.pass_us(seconds * 1e6))


def test_size_and_time_constant_are_found() -> None:
    """From runs that follow the law, its constants are found; a thread that wakes at once has no delay."""
    clock = FakeClock()
    found = _measured(ColdRunner(clock), clock)
    assert found["idle_extra_us"] == pytest.approx(EXTRA_US, rel=0.02)
    assert found["idle_cooling_us"] == pytest.approx(COOLING_US, rel=0.1)
    assert found["idle_wake_up_us"] < 1
    assert clock() / 1e9 < 5


def test_runs_that_are_quicker_after_an_idle_time_cost_nothing() -> None:
    """The size is never negative."""
    clock = FakeClock()
    assert _measured(ColdRunner(clock, -100.0), clock)["idle_extra_us"] == 0


def test_a_failure_of_the_network_is_raised_here() -> None:
    """An error in the serving thread is raised in the thread that measures."""

    class Broken:
        def run(self) -> None:
            raise MeasurementError("broken")

        def feed(self) -> None:
            """Does nothing."""

    with pytest.raises(MeasurementError, match="broken"):
        measure_idle_effects(Broken(), FakeClock(), lambda _: None)


def test_the_network_runs_on_the_real_runtime() -> None:
    """ONNX Runtime executes the network, and a thread of its own serves it."""
    runner = get_runtime().open_sequence(idle_sequence(), RuntimeSettings())
    found = measure_idle_effects(runner, sleep=lambda _: None)
    assert set(found) == {"idle_extra_us", "idle_cooling_us", "idle_wake_up_us"}
    assert all(value >= 0 for value in found.values())
