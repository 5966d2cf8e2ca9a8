"""By how much a model or a layer becomes faster with more threads, where no system has their number."""

import math
from dataclasses import dataclass
from typing import Self

__all__ = ["OWN_HALF_WIDTH", "TYPICAL", "ThreadSpeedup", "thread_steps"]

# The constants are what `benchmarks/thread_speedups.py` prints for the models that data/ has with several threads under
# ONNX Runtime: on three processors with two threads, on one of them with eight (docs/adr/0030).
# The logarithm of a speedup grows with the doublings of the threads to this power: each doubling brings less.
_EXPONENT = 0.63
# Speedup with two threads: geometric mean, and bounds in 90% of cases.
_WITH_TWO, _BOUNDS_WITH_TWO = 1.67, (1.18, 1.99)
# Half-width of the 90% interval of log speedup by a model's own gain, for one step further (`thread_steps`), such as
# from two threads to eight.
OWN_HALF_WIDTH = 0.31


@dataclass(frozen=True, slots=True)
class ThreadSpeedup:
    """How the latency of a model depends on the number of threads.

    Attributes:
        with_two: How many times as fast a run is with two threads as with one.
        bounds: Lower and upper bound of `with_two`, as it applies to other numbers of threads.
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
        logarithm = math.log(latencies_us[0] / latencies_us[1]) / (thread_steps(threads[1]) - thread_steps(threads[0]))
        low, high = logarithm - OWN_HALF_WIDTH, logarithm + OWN_HALF_WIDTH
        return cls(math.exp(logarithm), (math.exp(low), math.exp(high)))

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


TYPICAL = ThreadSpeedup(_WITH_TWO, _BOUNDS_WITH_TWO)
