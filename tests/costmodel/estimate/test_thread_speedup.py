"""What other numbers of threads bring, where no system has them."""

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from costmodel.estimate.thread_speedup import TYPICAL, ThreadSpeedup
from costmodel.runtimes.base import RuntimeSettings
from costmodel.serving.tuning.nearest import with_other_threads
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


@given(threads, threads, latencies_us, latencies_us)
def test_two_latencies_are_reproduced(few: int, many: int, slow_us: float, quick_us: float) -> None:
    """A speedup between two numbers of threads leads from one latency to the other, whichever comes first."""
    assume(few != many)
    speedup = ThreadSpeedup.between((few, many), (slow_us, quick_us))
    assert slow_us * speedup.factor(many, few) == pytest.approx(quick_us)
    turned = ThreadSpeedup.between((many, few), (quick_us, slow_us))
    assert turned.with_two == pytest.approx(speedup.with_two)


@given(st.integers(1, 7))
def test_each_doubling_brings_less(doublings: int) -> None:
    """The next doubling of the threads brings less than the one before, and no fewer threads are quicker."""
    before, here, after = (2 ** (doublings + step) for step in (-1, 0, 1))
    assert TYPICAL.factor(here, before) < TYPICAL.factor(after, here) < 1


def test_only_systems_that_differ_in_threads_alone_tell_what_threads_bring() -> None:
    """Another level, spinning, runtime or release changes more than the threads do."""
    one = fake_system("one")
    two = replace(one, name="two", settings=RuntimeSettings(2))
    others = [
        replace(two, settings=RuntimeSettings(2, "none")),
        replace(two, settings=RuntimeSettings(2, spinning=False)),
        replace(two, runtime="another"),
        replace(two, runtime_version="0.1"),
    ]
    assert with_other_threads(one, [one, two, *others]) == [two]
