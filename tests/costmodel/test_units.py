"""Formatting and parsing of quantities."""

import re
from random import Random

import hypothesis.strategies as st
import pytest
from hypothesis import example, given

from costmodel.units import (
    format_bytes,
    format_per_s,
    format_us,
    format_usd,
    parse_bytes,
    parse_duration_s,
    parse_numbers,
    parse_shape,
    parse_value,
)

MICROSECONDS = {"µs": 1.0, "ms": 1e3, "s": 1e6}


@pytest.mark.parametrize(
    ("latency_us", "text"),
    [
        (0.0, "0.00 µs"), (0.126, "0.13 µs"), (1.0, "1.00 µs"), (12.34, "12.3 µs"), (123.4, "123 µs"),
        (999.4, "999 µs"), (999.6, "1.00 ms"), (99.96, "100 µs"), (9.996, "10.0 µs"), (1e3, "1.00 ms"),
        (45_678.0, "45.7 ms"), (999_600.0, "1.00 s"), (1.5e6, "1.50 s"), (1.234e8, "123 s"), (-45_678.0, "-45.7 ms"),
    ],
)  # fmt: skip
def test_a_latency_has_three_digits_and_the_unit_that_suits_it(latency_us: float, text: str) -> None:
    """A latency is shown with three digits and a suitable unit: 45.7 ms, not 45678.0."""
    assert format_us(latency_us) == text


@given(st.floats(1.0, 9.9e8))
@example(999.5)
@example(999_499.99)
def test_a_formatted_latency_reads_back_within_half_of_its_last_digit(latency_us: float) -> None:
    """A formatted latency is rounded to at most three digits."""
    number, unit = format_us(latency_us).split()
    assert float(number) * MICROSECONDS[unit] == pytest.approx(latency_us, rel=0.0051)
    assert len(number.replace(".", "")) == 3


@given(st.floats(0.0, 9e8), st.floats(0.0, 9e8))
def test_formatting_keeps_the_order(one: float, other: float) -> None:
    """Formatting preserves the order of latencies."""
    shown = [float(n) * MICROSECONDS[u] for n, u in (format_us(value).split() for value in sorted((one, other)))]
    assert shown == sorted(shown)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90), ("90s", 90), ("10m", 600), ("1h", 3600), ("30d", 2_592_000), ("1.5m", 90), (" 2 h ", 7200),
        ("0", 0), ("0.5", 0.5),
    ],
)  # fmt: skip
def test_a_duration_is_a_number_and_a_unit(text: str, seconds: float) -> None:
    """A duration without a unit is in seconds."""
    assert parse_duration_s(text) == seconds


@pytest.mark.parametrize("text", ["", "m", "-5s", "5 minutes", "1h30m", "1e3s", "nan", "inf", ".5", "5.", "5w"])
def test_what_is_no_duration_is_named_with_one_that_is(text: str) -> None:
    """An invalid duration is quoted with an example of a valid one."""
    with pytest.raises(ValueError, match=re.escape(f"{text!r} is not a duration") + ".*10m"):
        parse_duration_s(text)


@given(st.integers(0, 10**6), st.sampled_from(["s", "m", "h"]))
def test_units_of_time_are_multiples_of_each_other(number: int, unit: str) -> None:
    """Sixty of a unit are one of the next."""
    assert parse_duration_s(f"{number}{unit}") == number * {"s": 1, "m": 60, "h": 3600}[unit]


@given(st.text(min_size=1), st.lists(st.integers(0, 2**31), min_size=1, max_size=6))
def test_a_shape_reads_back_as_it_was_written(name: str, dims: list[int]) -> None:
    """Names may contain '='; the shape is behind the last one."""
    assert parse_shape(f"{name}={','.join(map(str, dims))}") == (name, tuple(dims))


@pytest.mark.parametrize("text", ["", "input", "=1,2", "input=", "input=1,,2", "input=1,N", "input=1.5", "1,3,224,224"])
def test_what_is_no_shape_is_named_with_one_that_is(text: str) -> None:
    """An invalid shape is quoted with an example of a valid one."""
    with pytest.raises(ValueError, match=re.escape(f"{text!r} is not a shape") + ".*input=1,3,224,224"):
        parse_shape(text)


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [("rate=16000", "rate", 16000), ("a=b=-0.5", "a=b", -0.5), ("flag=true", "flag", 1), ("flag=False", "flag", 0)],
)
def test_a_value_is_parsed(text: str, name: str, value: float) -> None:
    """An input and its value are parsed; flags may be words."""
    assert parse_value(text) == (name, value)


@pytest.mark.parametrize("text", ["", "flag", "=1", "flag=", "flag=yes", "flag=nan", "flag=inf", "flag=1e999", "a=1,2"])
def test_what_is_no_value_is_named_with_one_that_is(text: str) -> None:
    """An invalid value is quoted with an example of a valid one."""
    with pytest.raises(ValueError, match=re.escape(f"{text!r} is no value") + ".*use_cache_branch=1"):
        parse_value(text)


numbers = st.sets(st.integers(1, 999), min_size=1, max_size=20)


@given(numbers, st.randoms(use_true_random=False))
def test_a_list_of_numbers_reads_back_in_order(chosen: set[int], random: Random) -> None:
    """A parsed list of numbers is sorted and has no duplicates."""
    listed = [*chosen, *list(chosen)[:2]]
    random.shuffle(listed)
    assert parse_numbers(",".join(map(str, listed))) == sorted(chosen)
    assert parse_numbers(" , ".join(map(str, listed))) == sorted(chosen)


@given(st.integers(1, 999), st.integers(0, 50), numbers)
def test_a_range_is_all_of_its_numbers(first: int, more: int, others: set[int]) -> None:
    """A range includes both ends, alone and with others."""
    last = min(999, first + more)
    assert parse_numbers(f"{first}-{last}") == list(range(first, last + 1))
    text = ",".join([f"{first}-{last}", *map(str, others)])
    assert parse_numbers(text) == sorted(others | set(range(first, last + 1)))


@pytest.mark.parametrize(
    "text", ["", ",", "1,", "1,,2", "0", "0-3", "3-1", "-3", "1-", "1 2", "1.5", "all", "1-2-3", "1000", "1-9999"]
)
def test_what_is_no_list_of_numbers_is_named_with_one_that_is(text: str) -> None:
    """An invalid list is quoted with an example of a valid one."""
    with pytest.raises(ValueError, match=re.escape(f"{text!r} is no list of numbers") + ".*1-4 or 1,2,8"):
        parse_numbers(text)


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [(0, "0 bytes"), (999, "999 bytes"), (1500, "1.50 kB"), (512e6, "512 MB"), (999.9e6, "1.00 GB"), (2e9, "2.00 GB")],
)
def test_a_size_has_three_digits_and_the_unit_that_suits_it(nbytes: float, text: str) -> None:
    """A size is shown with three digits, in powers of 1000."""
    assert format_bytes(nbytes) == text


@pytest.mark.parametrize(
    ("text", "nbytes"), [("512MB", 512_000_000), ("1.5 GB", 1_500_000_000), ("2GiB", 2 << 30), ("64 KiB", 65_536)]
)
def test_a_size_is_a_number_and_a_unit(text: str, nbytes: int) -> None:
    """Units with an i are powers of 1024, the others powers of 1000."""
    assert parse_bytes(text) == nbytes


@pytest.mark.parametrize("text", ["", "512", "0MB", "-1GB", "1 mb", "GB", "1e3MB"])
def test_what_is_no_size_is_named_with_one_that_is(text: str) -> None:
    """An invalid size is quoted with an example of a valid one."""
    with pytest.raises(ValueError, match=re.escape(f"{text!r} is not a size") + ".*512MB"):
        parse_bytes(text)


def test_rates_and_amounts_are_short() -> None:
    """A rate of thousands has no fraction; an amount of less than a dollar has two digits."""
    assert [format_per_s(rate) for rate in (0.25, 999.9, 140_450.7)] == ["0.2/s", "999.9/s", "140,451/s"]
    assert [format_usd(usd) for usd in (12.0, 0.104, 0.00035, 0.0)] == ["$12.00", "$0.10", "$0.00035", "$0.00"]
