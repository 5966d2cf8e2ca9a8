"""Objectives, rates and policies as users write them."""

import re
from collections.abc import Callable

import hypothesis.strategies as st
import pytest
from hypothesis import given

from costmodel.traffic.objective import (
    NO_BATCHING,
    BatchPolicy,
    LatencyObjective,
    parse_batch_policy,
    parse_objective,
    parse_rate_per_s,
)


def test_objectives_are_read() -> None:
    """An objective is a percentile and a latency."""
    found = parse_objective("p99=50ms")
    assert (found, found.name, found.share) == (LatencyObjective(99.0, 50_000.0), "p99", 0.99)
    assert parse_objective(" p99.9 <= 1.5s ").name == "p99.9"


def test_rates_are_read() -> None:
    """A rate is a number of requests in a second, a minute or an hour."""
    assert [parse_rate_per_s(text) for text in ("120/s", "90 / min", "7200/h")] == [120.0, 1.5, 2.0]


def test_policies_are_read() -> None:
    """A policy is the largest batch and the longest wait, which is 0 if it is left out."""
    assert parse_batch_policy("none") == NO_BATCHING
    assert parse_batch_policy("max=8, wait=5ms") == BatchPolicy(8, 5000.0)
    assert parse_batch_policy("max=8") == parse_batch_policy("max=8,wait=0") == BatchPolicy(8)


@pytest.mark.parametrize(
    ("parse", "text", "words"),
    [
        (parse_objective, "50ms", "write it like p99=50ms"),
        (parse_objective, "p10=50ms", "from p50 to p99.9"),
        (parse_objective, "p99=50", "write it like 500us, 20ms or 1.5s"),
        (parse_rate_per_s, "120", "write it like 120/s"),
        (parse_rate_per_s, "0/s", "is not a rate"),
        (parse_rate_per_s, "99999999/s", "is more than 10000000/s"),
        (parse_batch_policy, "8", "write it like none, max=8 or max=8,wait=5ms"),
        (parse_batch_policy, "max=0", "give a size from 1 to 1024"),
        (parse_batch_policy, "max=8,wait=5", "is not a latency"),
    ],
)
def test_what_cannot_be_read_says_how_to_write_it(parse: Callable[[str], object], text: str, words: str) -> None:
    """Errors quote the text and show the right form."""
    with pytest.raises(ValueError, match=re.escape(words)):
        parse(text)


@given(st.integers(1, 1024), st.integers(0, 10_000))
def test_policies_are_written_as_they_are_read(size: int, wait_us: int) -> None:
    """A policy that is written can be read again, and its sizes end with the largest batch."""
    policy = BatchPolicy(size, float(wait_us)) if size > 1 else NO_BATCHING
    assert parse_batch_policy(str(policy)) == policy
    assert (policy.sizes[0], policy.sizes[-1]) == (1, size)
