"""By how much a model becomes faster with more threads, where no system has their number."""

import math
from dataclasses import dataclass
from typing import Self

__all__ = ["GAIN_BOUNDS", "TYPICAL", "ThreadSpeedup", "own_half_width", "thread_steps"]

# `benchmarks/thread_speedups.py` prints the constants, for the models that data/ has with several threads under ONNX
# Runtime: on three processors with two threads, on one of them with four, eight and sixteen (docs/adr/0030).
# The logarithm of a speedup grows with the doublings of the threads to this power: each doubling brings less.
_EXPONENT = 0.62
# Speedup with two threads: geometric mean, and 90% bounds that hold with each of these numbers of threads.
_WITH_TWO, _BOUNDS_WITH_TWO = 1.64, (1.06, 2.17)
# Half-width of the 90% interval of log speedup by a model's own gain between one thread and two, for one step further.
_OWN_HALF_WIDTH = 0.35
# Bounds of the log speedup with two threads; what two latencies say beyond them is noise.
GAIN_BOUNDS = (-0.3, 0.8)


@dataclass(frozen=True, slots=True)
class ThreadSpeedup:
    """How the latency of a model depends on the number of threads.

    Attributes:
        with_two: How many times as fast a run is with two threads as with one.
        bounds: 90% bounds of `with_two`; those with other numbers of threads follow from them by the same law.
    """

    with_two: float
    bounds: tuple[float, float]

    @classmethod
    def between(cls, threads: tuple[int, int], latencies_us: tuple[float, float]) -> Self:
        """Returns the speedup that follows from a model's latencies with two numbers of threads.

        Args:
            threads: The two numbers of threads, which differ.
            latencies_us: Latency with each of them in microseconds.
        """
        gain = math.log(latencies_us[0] / latencies_us[1]) / (thread_steps(threads[1]) - thread_steps(threads[0]))
        gain = min(max(gain, GAIN_BOUNDS[0]), GAIN_BOUNDS[1])
        half_width = own_half_width(*threads)
        return cls(math.exp(gain), (math.exp(gain - half_width), math.exp(gain + half_width)))

    def factor(self, threads: int, base: int) -> float:
        """Returns the ratio of the latency with `threads` threads to that with `base` threads."""
        return math.pow(self.with_two, thread_steps(base) - thread_steps(threads))

    def factor_bounds(self, threads: int, base: int) -> tuple[float, float]:
        """Returns the lower and the upper bound of that ratio."""
        ends = [math.pow(bound, thread_steps(base) - thread_steps(threads)) for bound in self.bounds]
        return min(ends), max(ends)


def thread_steps(threads: int) -> float:
    """Returns the ratio of the log speedup with a number of threads to that with two."""
    return math.pow(math.log2(threads), _EXPONENT)


def own_half_width(one: int, other: int) -> float:
    """Returns the half-width of the 90% interval of log speedup, for each step away from the nearer of two numbers.

    The nearer two numbers of threads are to each other, the less they tell about a third.

    Args:
        one: Number of threads with which the latency is known.
        other: Another one.
    """
    return _OWN_HALF_WIDTH / abs(thread_steps(one) - thread_steps(other))


TYPICAL = ThreadSpeedup(_WITH_TWO, _BOUNDS_WITH_TWO)
