"""By how much layers become faster with more threads, where no system has their number."""

import math
from dataclasses import dataclass
from typing import Self

import numpy as np

__all__ = ["ThreadDivision", "thread_half_width", "thread_steps", "threads_factor", "undivided_share"]

# Two threads make a layer quicker by the speedup that its kernel allows, to the power of `_EFFICIENCY`, and each
# further doubling brings less: the logarithm of a speedup grows with the doublings to the power of `_EXPONENT`. Both
# are fitted by `benchmarks/thread_speedups.py` to the models that data/ has with several threads under ONNX Runtime: on
# three processors with two threads, on one of them with four, eight and sixteen. The other constants are chosen by the
# errors that it prints (docs/adr/0030).
_EFFICIENCY, _EXPONENT = 0.9, 0.76
# What a model's latency with a number of threads says of it counts to this share for more threads; the rest is noise,
# or particular to that number.
_WITH_MORE = 0.8
# Half-width of the 90% interval of the log speedup of a model with two threads, and its share that is left where the
# latency with another number of threads is known.
_HALF_WIDTH, _OF_KNOWN = 0.15, 0.8
# A wait that is expected to be longer than this share of a layer's cost is not believed.
_MOST_WAIT = 0.5
# Bounds of the share of a model that takes as long with any number of threads; a negative one is a model that becomes
# quicker than expected. The time that threads are expected to save is taken to be at least `_LEAST_SAVED` of the
# latency, so that noise is not magnified.
_UNDIVIDED_BOUNDS, _LEAST_SAVED = (-0.5, 1.5), 0.2
# No ratio of latencies is believed that is less than this share of the expected one.
_LEAST_OF_EXPECTED = 0.5


@dataclass(frozen=True, slots=True)
class ThreadDivision:
    """How a number of threads divides the work of layers.

    Attributes:
        threads: Number of threads.
        speedups: How many times as quick as with one thread the work of each layer is, if each thread is as quick as
            one alone; shape [num_layers].
        waits_us: How long the threads wait for each other in each layer, in microseconds; shape [num_layers].
    """

    threads: int
    speedups: np.ndarray
    waits_us: np.ndarray

    @classmethod
    def even(cls, threads: int, layers: int) -> Self:
        """Returns the division of layers whose work is divided evenly, without a wait."""
        return cls(threads, np.full(layers, float(threads)), np.zeros(layers))

    def costs_us(self, costs_us: np.ndarray, base: "ThreadDivision") -> np.ndarray:
        """Returns what layers are expected to cost with these threads, in microseconds, shape [num_layers].

        Args:
            costs_us: Costs of the layers with other threads, shape [num_layers].
            base: How those divide the work.
        """
        waits_us = np.minimum(base.waits_us, _MOST_WAIT * costs_us)
        believed = np.divide(waits_us, base.waits_us, out=np.ones(len(waits_us)), where=base.waits_us > 0)
        divided_us: np.ndarray = (costs_us - waits_us) * (base._effective_speedups / self._effective_speedups)
        costs: np.ndarray = divided_us + believed * self.waits_us
        return costs

    @property
    def _effective_speedups(self) -> np.ndarray:
        """Speedups as threads reach them that share caches, memory and perhaps a core; shape [num_layers]."""
        if self.threads == 1:
            return np.ones(len(self.speedups))
        reached: np.ndarray = self.speedups ** (_EFFICIENCY * math.log2(self.threads) ** (_EXPONENT - 1))
        return reached


def undivided_share(found: float, expected: float, *, beyond: bool) -> float:
    """Returns the share of a model's latency that takes as long with any number of threads, besides what is expected.

    Args:
        found: Ratio of the latency with several threads to that with the fewest.
        expected: The ratio that was expected, from its layers.
        beyond: Whether the share is to be used for more threads than those, instead of fewer.
    """
    share = (found - expected) / max(1 - expected, _LEAST_SAVED) * (_WITH_MORE if beyond else 1.0)
    return min(max(share, _UNDIVIDED_BOUNDS[0]), _UNDIVIDED_BOUNDS[1])


def threads_factor(expected: float, undivided: float, *, fewer: bool = False) -> float:
    """Returns the ratio of the latency of a model with a number of threads to that with the fewest that are known.

    Args:
        expected: The ratio that is expected, from its layers.
        undivided: Share of the latency that takes as long with any number of threads, besides that.
        fewer: Whether the number is even smaller than the fewest.
    """
    saved = 1 - expected if fewer else max(1 - expected, _LEAST_SAVED)
    return max(expected + undivided * saved, _LEAST_OF_EXPECTED * expected)


def thread_half_width(threads: int, few: int, known: bool) -> float:
    """Returns the half-width of the 90% interval of log(latency / expected latency) of a model.

    Args:
        threads: Number of threads that nobody has measured.
        few: Number of threads from whose costs others are expected.
        known: Whether the latency with a further number of threads is known.
    """
    return _HALF_WIDTH * abs(thread_steps(threads) - thread_steps(few)) * (_OF_KNOWN if known else 1.0)


def thread_steps(threads: int) -> float:
    """Returns the ratio of the log speedup with a number of threads to that with two."""
    return math.pow(math.log2(threads), _EXPONENT)
