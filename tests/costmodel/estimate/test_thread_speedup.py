"""What other numbers of threads bring, where no system has them."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.estimate.thread_speedup import ThreadDivision, thread_half_width, threads_factor, undivided_share
from costmodel.runtimes.base import RuntimeSettings
from costmodel.systems.system import differ_in_threads_alone
from tests.fakes import fake_system

THREADS = st.integers(1, 256)


@st.composite
def _divisions(draw: st.DrawFn) -> ThreadDivision:
    """A number of threads, and how it divides three layers."""
    number = draw(THREADS)
    speedups = draw(st.lists(st.floats(1, number), min_size=3, max_size=3))
    waits_us = [0.0] * 3 if number == 1 else draw(st.lists(st.floats(0, 50), min_size=3, max_size=3))
    return ThreadDivision(number, np.array(speedups), np.array(waits_us))


COSTS_US = st.lists(st.floats(1, 1e6), min_size=3, max_size=3).map(np.array)


@given(COSTS_US, _divisions())
def test_costs_lead_back(costs_us: np.ndarray, division: ThreadDivision) -> None:
    """From costs with one thread to others and back is no change, unless a wait is too long to be believed."""
    one = ThreadDivision.even(1, 3)
    many_us = division.costs_us(costs_us, one)
    believed = division.waits_us <= 0.5 * many_us
    assert one.costs_us(many_us, division)[believed] == pytest.approx(costs_us[believed])


@given(COSTS_US, _divisions())
def test_threads_bring_no_more_than_a_kernel_allows(costs_us: np.ndarray, division: ThreadDivision) -> None:
    """A layer becomes quicker by at most its speedup, and slower by no more than its wait."""
    many_us = division.costs_us(costs_us, ThreadDivision.even(1, 3))
    assert (many_us >= costs_us / division.speedups * (1 - 1e-9)).all()
    assert (many_us <= (costs_us + division.waits_us) * (1 + 1e-9)).all()


@given(st.integers(1, 7))
def test_each_doubling_brings_less(doublings: int) -> None:
    """The next doubling of the threads brings less than the one before, and more threads are never slower."""
    one = ThreadDivision.even(1, 1)
    before, here, after = (
        ThreadDivision.even(2 ** (doublings + step), 1).costs_us(np.ones(1), one)[0] for step in (-1, 0, 1)
    )
    assert here / before < after / here < 1


@given(st.floats(0.05, 2.5), st.floats(0.05, 3), st.floats(0.05, 2.5), st.booleans())
def test_what_two_numbers_of_threads_tell(expected: float, found: float, other: float, beyond: bool) -> None:
    """A model that gained less than expected gains less with other threads, too; as expected, as expected."""
    undivided = undivided_share(found, expected, beyond=beyond)
    factor = threads_factor(other, undivided)
    assert (factor > other) == (undivided > 0)
    assert (undivided > 0) == (found > expected)
    assert factor >= other / 2
    assert threads_factor(other, undivided_share(expected, expected, beyond=beyond)) == other


@given(st.floats(0.05, 2.5), st.floats(0.97, 1.1))
def test_the_found_latency_is_reproduced(expected: float, ratio: float) -> None:
    """With the number of threads that tells the share, the latency is the one that was found."""
    undivided = undivided_share(ratio * expected, expected, beyond=False)
    assert threads_factor(expected, undivided) == pytest.approx(ratio * expected)


def test_fewer_threads_than_are_known() -> None:
    """A model that gained less than expected from two to four threads loses less than expected with one."""
    assert 1 < threads_factor(1.9, undivided_share(0.8, 0.55, beyond=False), fewer=True) < 1.9


def test_a_model_that_gains_nothing_gains_little_with_any_threads() -> None:
    """Next to nothing with two threads instead of twice as quick is no promise of four times with four."""
    assert 0.75 < threads_factor(0.25, undivided_share(0.95, 0.5, beyond=True)) < 0.95


@given(THREADS, THREADS)
def test_intervals_widen_with_the_distance(few: int, threads: int) -> None:
    """Nothing is uncertain about the same number of threads; another number that is known makes others less so."""
    alone, with_other = (thread_half_width(threads, few, known) for known in (False, True))
    assert (alone > 0) == (threads != few)
    assert with_other <= alone
    assert thread_half_width(few + 2 * abs(threads - few) + 1, few, False) > thread_half_width(
        few + abs(threads - few), few, False
    )


def test_systems_that_differ_in_threads_alone() -> None:
    """Another level, runtime or release changes more than the threads do, and so does spinning with several threads."""
    one, another = fake_system("one"), fake_system("another")
    two = replace(another, settings=RuntimeSettings(2))
    idle = replace(two, settings=RuntimeSettings(2, spinning=False))
    assert differ_in_threads_alone(one, two)
    assert differ_in_threads_alone(one, idle)
    assert not differ_in_threads_alone(one, another)
    assert not differ_in_threads_alone(replace(two, settings=RuntimeSettings(4)), idle)
    assert not differ_in_threads_alone(one, replace(two, settings=RuntimeSettings(2, "none")))
    assert not differ_in_threads_alone(one, replace(two, runtime="another"))
    assert not differ_in_threads_alone(one, replace(two, runtime_version="0.1"))
