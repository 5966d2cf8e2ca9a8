"""What other numbers of threads bring, where no system has them."""

import math
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from costmodel.estimate.thread_speedup import TYPICAL, ThreadSpeedup, thread_steps
from costmodel.runtimes.base import RuntimeSettings
from costmodel.systems.system import differ_in_threads_alone
from tests.fakes import fake_system

threads = st.integers(1, 256)
latencies_us = st.floats(1.0, 1e6)


@given(threads, threads, threads)
def test_factors_compose(one: int, two: int, three: int) -> None:
    """Going from one number of threads to another by way of a third makes no difference."""
    by_two = TYPICAL.factor(two, one) * TYPICAL.factor(three, two)
    assert by_two == pytest.approx(TYPICAL.factor(three, one))
    low, high = TYPICAL.factor_bounds(three, one)
    assert low <= TYPICAL.factor(three, one) * (1 + 1e-9)
    assert high >= TYPICAL.factor(three, one) * (1 - 1e-9)


@given(threads, threads, latencies_us, st.floats(-0.29, 0.79))
def test_two_latencies_are_reproduced(few: int, many: int, slow_us: float, gain: float) -> None:
    """A speedup between two numbers of threads leads from one latency to the other, whichever comes first."""
    assume(few < many)
    quick_us = slow_us * math.exp(-gain * (thread_steps(many) - thread_steps(few)))
    speedup = ThreadSpeedup.between((few, many), (slow_us, quick_us))
    assert slow_us * speedup.factor(many, few) == pytest.approx(quick_us)
    turned = ThreadSpeedup.between((many, few), (quick_us, slow_us))
    assert turned.with_two == pytest.approx(speedup.with_two)


def test_numbers_of_threads_near_to_each_other_tell_little_of_a_third() -> None:
    """One thread and two bound sixteen less than one and eight do, and seven and eight hardly; gains are limited."""
    widths = []
    for few, many in ((1, 8), (1, 2), (7, 8)):
        low, high = ThreadSpeedup.between((few, many), (1100.0, 1000.0)).factor_bounds(16, 8)
        widths.append(high / low)
    assert 1 < widths[0] < widths[1] < widths[2]
    assert ThreadSpeedup.between((7, 8), (1000.0, 1030.0)).factor(1, 7) > 0.5


@given(st.integers(1, 7))
def test_each_doubling_brings_less(doublings: int) -> None:
    """The next doubling of the threads brings less than the one before, and more threads are never slower."""
    before, here, after = (2 ** (doublings + step) for step in (-1, 0, 1))
    assert TYPICAL.factor(here, before) < TYPICAL.factor(after, here) < 1


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
