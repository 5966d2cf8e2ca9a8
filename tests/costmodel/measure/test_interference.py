"""Slowdowns of networks beside each other, in simulated time, and the neighbour as a real process."""

from collections.abc import Sequence
from functools import partial

import numpy as np
import pytest

from costmodel.errors import MeasurementError
from costmodel.measure.contenders import Contender, contenders, open_contenders
from costmodel.measure.interference import Ring, Slowdowns, measure_slowdowns
from costmodel.measure.neighbour import NeighbourProcess
from costmodel.runtimes.base import Runner, RuntimeSettings
from costmodel.systems.host import Host
from tests.fakes import FakeClock, FakeNeighbour, FakeRunner, elementwise

ALL = [(0, 0), (0, 1), (1, 0), (1, 1)]


def _measured(neighbour: FakeNeighbour, *, patience_s: float = 40.0) -> Slowdowns:
    clock = neighbour.clock
    return measure_slowdowns(
        [FakeRunner(clock, 100.0), FakeRunner(clock, 1000.0)], neighbour, ALL, patience_s=patience_s, clock_ns=clock,
        sleep=lambda seconds: clock.pass_us(seconds * 1e6),
    )  # fmt: skip


def test_each_ratio_is_that_of_its_pair() -> None:
    """The ratios are those by which the neighbour's networks slow, and the times alone are undisturbed."""
    neighbour = FakeNeighbour(FakeClock(), slowdowns=(1.0, 1.5))
    found = _measured(neighbour)
    assert found.ratios == pytest.approx(np.array([[1.0, 1.5], [1.0, 1.5]]))
    assert found.alone_us == pytest.approx(np.array([100.0, 1000.0]))
    assert (found.near, found.near_share) == (True, 1.0)
    assert neighbour.clock.slowed == 1.0


def test_times_while_the_cpus_are_far_from_each_other_do_not_count() -> None:
    """The measurement waits until the CPUs are near each other, and says how often they were not."""
    found = _measured(FakeNeighbour(FakeClock(), slowdowns=(2.0, 3.0), far_ns=5e9))
    assert found.near
    assert found.ratios == pytest.approx(np.array([[2.0, 3.0], [2.0, 3.0]]))
    assert 0 < found.near_share < 1


def test_cpus_that_are_never_near_each_other_are_measured_as_they_are() -> None:
    """When the patience ends, the times count, and the result says that the CPUs were far from each other."""
    found = _measured(FakeNeighbour(FakeClock(), slowdowns=(2.0, 3.0), far_ns=1e15), patience_s=1.0)
    assert (found.near, found.near_share) == (False, 0.0)
    assert found.ratios == pytest.approx(np.ones((2, 2)))


def test_a_failing_network_ends_the_measurement() -> None:
    """The error of the runtime reaches the caller."""
    clock = FakeClock()
    broken = FakeRunner(clock, 1.0, error=MeasurementError("it failed to run"))
    with pytest.raises(MeasurementError, match="failed to run"):
        measure_slowdowns([broken], FakeNeighbour(clock), [(0, 0)], clock_ns=clock)


def test_a_ring_runs_and_feeds_each_network_once() -> None:
    """A ring is one network made of several."""
    runners = [FakeRunner(FakeClock(), 1.0) for _ in range(3)]
    ring = Ring(runners)
    ring.run()
    ring.feed()
    assert [(one.runs, one.feeds) for one in runners] == [(1, 1)] * 3


@pytest.mark.parametrize("l3_mib", [0, 4, 32, 512])
def test_contenders_fit_the_cache_of_the_host(l3_mib: int) -> None:
    """What is to stay in the last-level cache is smaller than it, what is not is larger, within bounds of memory."""
    found = contenders(Host("x", "y", 0, 0, l3_bytes=l3_mib << 20))
    sizes = {key: one.copies * sum(v.type.nbytes for v in one.sequence.values) for key, one in found.items()}
    l3_bytes = (l3_mib or 32) << 20
    assert sizes["in_cache"] < max(l3_bytes, 5 << 20)
    assert all(sizes[key] >= min(1.5 * l3_bytes, 500 << 20) for key in ("streaming", "weights", "sixteen_rows"))
    assert max(sizes.values()) < 1200 << 20


def _small() -> tuple[Contender, ...]:
    return (Contender("Relu", elementwise(8)), Contender("two", elementwise(16), 2))


def _refusing() -> Sequence[Runner]:
    raise MeasurementError("nothing can be opened here")


class _Broken:
    def run(self) -> None:
        """Fail."""
        raise MeasurementError("it failed beside")

    def feed(self) -> None:
        """Do nothing."""


def _broken() -> Sequence[Runner]:
    return [_Broken()]


def test_a_neighbour_really_runs_networks_in_its_process() -> None:
    """The process loops what it is asked for, rests, echoes, and ends with the context."""
    opening = partial(open_contenders, "onnxruntime", RuntimeSettings(), _small())
    with NeighbourProcess(opening, ()) as neighbour:
        for number in (0, 1, 0):
            neighbour.loop(number)
            neighbour.rest()
            assert neighbour.round_trip_ns() >= 0
        process = neighbour._process
        assert process.is_alive()
    assert not process.is_alive()


def test_errors_of_the_neighbour_reach_the_caller() -> None:
    """An error while it opens networks, or while it runs them, is raised here."""
    with pytest.raises(MeasurementError, match="nothing can be opened here"), NeighbourProcess(_refusing, ()):
        pass
    with (
        pytest.raises(MeasurementError, match="it failed beside"),
        NeighbourProcess(_broken, ()) as neighbour,
    ):
        neighbour.loop(0)
