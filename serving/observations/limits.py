"""Validates the values of an observation before they are stored."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TypeGuard

from costmodel.errors import ObservationError
from costmodel.serving.observations.drift import Observation

__all__ = ["LARGEST_INTEGER", "check_observation", "check_text"]

LARGEST_INTEGER = 2**63 - 1

# Maximum number of characters of each text: the widths of the database columns.
_CHARACTERS: Mapping[str, int] = {
    "system": 64,
    "model": 256,
    "digest": 80,
    "version": 128,
    "owner": 64,
    "idempotency_key": 255,
}
# From a millionth of a microsecond to thirty years, so that all ratios are finite.
_LEAST_US, _MOST_US = 1e-6, 1e15
# Tolerance for clocks that are wrong and for confused time zones.
_CLOCK_TOLERANCE = timedelta(days=1)


def check_observation(one: Observation) -> None:
    """Checks that an observation can be stored, and that its latency can be compared with the predicted latency.

    Raises:
        ObservationError: A text is empty, too long, or has a character that cannot be stored; a latency is not a number
            in range; the bounds of the interval are out of range or not in order; the number of runs is out of range;
            or the time of the observation is not valid, not in UTC, or in the future.
    """
    for name, most in _CHARACTERS.items():
        value = getattr(one, name)
        if name != "idempotency_key" or value is not None:
            check_text(name, value, most)
    for name in ("latency_us", "predicted_us"):
        _check_time(name, getattr(one, name))
    low, high = one.interval_us
    if not (_is_number(low) and _is_number(high) and 0 <= low <= high <= _MOST_US):
        raise ObservationError(f"interval_us cannot be {low} to {high}: give two times, the lower one first")
    if one.runs is not None and not (_is_integer(one.runs) and 1 <= one.runs <= LARGEST_INTEGER):
        raise ObservationError(f"runs cannot be {one.runs}: give a whole number from 1 to {LARGEST_INTEGER}")
    if one.observed_at is not None:
        _check_date(one.observed_at)


def check_text(name: str, value: object, most: int) -> None:
    """Checks that `value` is a text of 1 to `most` characters that every database can store.

    Args:
        name: Name of the value, for the message.
        value: Value to check.
        most: Maximum number of characters.

    Raises:
        ObservationError: The value is not such a text.
    """
    if not isinstance(value, str) or not 1 <= len(value) <= most:
        raise ObservationError(f"{name} must be a text of 1 to {most} characters")
    if "\0" in value or any("\ud800" <= character <= "\udfff" for character in value):
        raise ObservationError(f"{name} holds a character that cannot be stored (NUL or half a surrogate pair)")


def _check_time(name: str, value: object) -> None:
    if not (_is_number(value) and _LEAST_US <= value <= _MOST_US):
        raise ObservationError(f"{name} cannot be {value}: give microseconds from {_LEAST_US:g} to {_MOST_US:g}")


def _check_date(text: str) -> None:
    check_text("observed_at", text, 32)
    try:
        date = datetime.fromisoformat(text)
        offset = date.utcoffset()
    except ValueError:
        offset = None
    if offset != timedelta(0):
        raise ObservationError(f"observed_at cannot be {text!r}: give a date such as 2026-01-31T12:00:00Z, in UTC")
    if date > datetime.now(UTC) + _CLOCK_TOLERANCE:
        raise ObservationError(f"observed_at cannot be {text!r}, which is in the future: check the clock")


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_integer(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)
