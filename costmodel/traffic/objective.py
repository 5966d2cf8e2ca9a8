"""Latency objectives, arrival rates and batching policies, as objects and as users write them."""

import re
from dataclasses import dataclass

from costmodel.units import parse_latency_us

__all__ = [
    "MAX_BATCH", "MAX_RATE_PER_S", "NO_BATCHING", "BatchPolicy", "LatencyObjective", "parse_batch_policy",
    "parse_objective", "parse_rate_per_s",
]  # fmt: skip

# Largest batch and highest rate that a user may ask about.
MAX_BATCH = 1024
MAX_RATE_PER_S = 1e7
_OBJECTIVE = re.compile(r"^p(\d{2}(?:\.\d)?)\s*(?:=|<=)\s*(.+)$")
_RATE = re.compile(r"^(\d+(?:\.\d+)?)\s*/\s*(s|min|h)$")
_SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0}
_LEAST_PERCENTILE = 50.0
_POLICY = re.compile(r"^max=(\d{1,6})(?:,wait=([^,]+))?$")


@dataclass(frozen=True, slots=True)
class LatencyObjective:
    """A service level objective: the latency that a percentile of the requests must not exceed.

    Attributes:
        percentile: Percentile that the objective applies to, such as 99.0.
        latency_us: Latency that must not be exceeded, in microseconds.
    """

    percentile: float
    latency_us: float

    @property
    def name(self) -> str:
        """Name of the percentile, such as "p99"."""
        return f"p{self.percentile:g}"

    @property
    def share(self) -> float:
        """Share of the requests that must be answered within the latency, such as 0.99."""
        return self.percentile / 100


@dataclass(frozen=True, slots=True)
class BatchPolicy:
    """How an idle replica forms a batch from the requests that wait.

    A replica starts a batch as soon as it is free and either `max_size` requests wait, or the oldest one has waited for
    `max_wait_us`; the batch then has all requests that wait, at most `max_size`.

    Attributes:
        max_size: Largest number of requests in a batch; 1 for no batching.
        max_wait_us: Longest time that a free replica waits for more requests, in microseconds.
    """

    max_size: int = 1
    max_wait_us: float = 0.0

    def __str__(self) -> str:
        """Returns the policy as users write it."""
        return "none" if self.max_size == 1 else f"max={self.max_size},wait={self.max_wait_us / 1e3:g}ms"

    @property
    def sizes(self) -> tuple[int, ...]:
        """Batch sizes whose service times describe those of all batches: the powers of two, and the largest size."""
        powers = [2**power for power in range(self.max_size.bit_length())]
        return tuple(sorted({*powers, self.max_size}))


NO_BATCHING = BatchPolicy()


def parse_objective(text: str) -> LatencyObjective:
    """Parses a latency objective such as "p99=50ms".

    Raises:
        ValueError: `text` is not an objective.
    """
    match = _OBJECTIVE.match(text.strip())
    if match is None or float(match[1]) < _LEAST_PERCENTILE:
        raise ValueError(
            f"{text!r} is not a latency objective: write it like p99=50ms, with a percentile from p50 to p99.9"
        )
    return LatencyObjective(float(match[1]), parse_latency_us(match[2]))


def parse_rate_per_s(text: str) -> float:
    """Parses a rate of arrivals such as "120/s", "7200/min" or "400000/h" into requests a second.

    Raises:
        ValueError: `text` is not a positive rate, or is more than `MAX_RATE_PER_S`.
    """
    match = _RATE.match(text.strip())
    rate_per_s = float(match[1]) / _SECONDS[match[2]] if match else 0.0
    if not rate_per_s:
        raise ValueError(f"{text!r} is not a rate of arrivals: write it like 120/s, 7200/min or 400000/h")
    if rate_per_s > MAX_RATE_PER_S:
        raise ValueError(f"{text!r} is more than {MAX_RATE_PER_S:.0f}/s: divide the traffic among several plans")
    return rate_per_s


def parse_batch_policy(text: str) -> BatchPolicy:
    """Parses a batching policy: "none", "max=8" (no waiting) or "max=8,wait=5ms".

    Raises:
        ValueError: `text` is not a policy, or its batch is larger than `MAX_BATCH`.
    """
    if text.strip() == "none":
        return NO_BATCHING
    match = _POLICY.match(text.replace(" ", ""))
    if match is None:
        raise ValueError(f"{text!r} is not a batching policy: write it like none, max=8 or max=8,wait=5ms")
    size = int(match[1])
    if not 1 <= size <= MAX_BATCH:
        raise ValueError(f"{text!r} has batches of {size}: give a size from 1 to {MAX_BATCH}")
    wait = match[2]
    return BatchPolicy(size, 0.0 if wait is None or wait in ("0", "0s", "0ms", "0us") else parse_latency_us(wait))
