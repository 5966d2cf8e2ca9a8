"""Formats and parses quantities: latencies, durations, shapes, lists of numbers."""

import math
import re
from contextlib import suppress

__all__ = [
    "format_bytes", "format_per_s", "format_us", "format_usd", "parse_bytes", "parse_duration_s", "parse_latency_us",
    "parse_numbers", "parse_shape", "parse_value", "usd_per_million",
]  # fmt: skip

_DURATION = re.compile(r"^(\d+(?:\.\d+)?)\s*(s|m|h|d)?$")
_NUMBERS = re.compile(r"^(\d{1,3})(?:-(\d{1,3}))?$")
_LATENCY = re.compile(r"^(\d+(?:\.\d+)?)\s*(us|µs|ms|s)$")
_MICROSECONDS = {"us": 1.0, "µs": 1.0, "ms": 1e3, "s": 1e6}
_SIZE = re.compile(r"^(\d+(?:\.\d+)?)\s*(kB|KB|MB|GB|TB|KiB|MiB|GiB|TiB)$")
_BYTES = {
    "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
    "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40,
}  # fmt: skip
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, None: 1.0}


def format_us(latency_us: float) -> str:
    """Formats a latency in microseconds as text with three significant digits, in µs, ms or s."""
    rounded = float(f"{latency_us:.3g}")  # before the unit is chosen, because 999.6 µs are 1.00 ms
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if abs(rounded) >= size:
            return f"{_three_digits(rounded / size)} {unit}"
    return f"{_three_digits(rounded)} µs"


def format_bytes(nbytes: float) -> str:
    """Formats a size in bytes as text with three significant digits, in bytes, kB, MB or GB (powers of 1000)."""
    rounded = float(f"{nbytes:.3g}")
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if abs(rounded) >= size:
            return f"{_three_digits(rounded / size)} {unit}"
    return f"{rounded:.0f} bytes"


def format_per_s(rate_per_s: float) -> str:
    """Formats a rate for display, such as "12.5/s" or "1,450/s"."""
    return f"{rate_per_s:.1f}/s" if rate_per_s < 1000 else f"{rate_per_s:,.0f}/s"


def format_usd(usd: float) -> str:
    """Formats an amount in US dollars for display: with cents or, if it is less than ten of them, with two digits."""
    return f"${usd:.2f}" if abs(usd) >= 0.1 or not usd else f"${usd:.2g}"


def usd_per_million(usd_per_hour: float, requests_per_s: float) -> float:
    """Returns the price in US dollars of a million requests, one after the other.

    Args:
        usd_per_hour: Price an hour in US dollars of what answers them.
        requests_per_s: Number of requests that it answers a second.
    """
    return usd_per_hour / _SECONDS["h"] / requests_per_s * 1e6


def _three_digits(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def parse_duration_s(text: str) -> float:
    """Parses a duration such as "90", "90s", "10m", "1h" or "30d" into seconds.

    Raises:
        ValueError: `text` is not a duration.
    """
    match = _DURATION.match(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a duration: write it like 90s, 10m, 1h or 30d")
    return float(match[1]) * _SECONDS[match[2]]


def parse_latency_us(text: str) -> float:
    """Parses a latency such as "500us", "20ms" or "1.5s" into microseconds.

    Raises:
        ValueError: `text` is not a positive latency.
    """
    match = _LATENCY.match(text.strip())
    if match is None or not float(match[1]):
        raise ValueError(f"{text!r} is not a latency: write it like 500us, 20ms or 1.5s")
    return float(match[1]) * _MICROSECONDS[match[2]]


def parse_bytes(text: str) -> int:
    """Parses a size such as "512MB" (a power of 1000) or "2GiB" (a power of 1024) into bytes.

    Raises:
        ValueError: `text` is not a positive size.
    """
    match = _SIZE.match(text.strip())
    nbytes = round(float(match[1]) * _BYTES[match[2]]) if match else 0
    if not nbytes:
        raise ValueError(f"{text!r} is not a size: write it like 512MB, 2GB or 1.5GiB")
    return nbytes


def parse_shape(text: str) -> tuple[str, tuple[int, ...]]:
    """Parses the name and shape of a model's input, such as "input=1,3,224,224", into (name, shape).

    Raises:
        ValueError: `text` is not of that form.
    """
    name, equals, dims = text.rpartition("=")
    try:
        if equals and name:
            return name, tuple(int(dim) for dim in dims.split(","))
    except ValueError:
        pass
    raise ValueError(f"{text!r} is not a shape: write it like input=1,3,224,224")


def parse_value(text: str) -> tuple[str, float]:
    """Parses the name and value of a model's input, such as "use_cache_branch=1" or "=true", into (name, value).

    Raises:
        ValueError: `text` is not of that form.
    """
    name, equals, value = text.rpartition("=")
    with suppress(ValueError):
        number = {"true": 1.0, "false": 0.0}.get(value.lower()) if value.isalpha() else float(value)
        if equals and name and number is not None and math.isfinite(number):
            return name, number
    raise ValueError(f"{text!r} is no value of an input: write it like use_cache_branch=1")


def parse_numbers(text: str) -> list[int]:
    """Parses a list of positive integers such as "1-4", "1,2,8" or "1-3,8"; returns them in ascending order.

    Raises:
        ValueError: `text` is not of that form.
    """
    numbers: set[int] = set()
    for part in text.split(","):
        match = _NUMBERS.match(part.strip())
        if match is None or not 1 <= int(match[1]) <= int(match[2] or match[1]):
            raise ValueError(f"{text!r} is no list of numbers from 1 on: write it like 1-4 or 1,2,8")
        numbers.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    return sorted(numbers)
