"""Statistics of raw times: the latency of a model or of a part of one, and its interval.

The latency of a whole model is the median time of its runs. In every run some layers take longer than usual, and over
many layers these delays average out: the median of a model's time is the sum of its layers' means, not of their
medians. The latency of a layer is therefore its mean time, without the runs during which another process had the
processor. See docs/adr/0005.
"""

import math
from collections.abc import Sequence
from statistics import median

import numpy as np

__all__ = ["MODEL_QUANTILE", "mean_interval_us", "mean_us", "median_interval_us", "median_us"]

# Quantile of its runs that is the latency of a whole model.
MODEL_QUANTILE = 0.5
_INTERRUPTED = 2.0  # runs of more than this many medians count as interrupted
_Z = 1.645  # standard errors on each side of a 90% interval


def median_us(times_us: Sequence[float]) -> float:
    """Returns the median of run times in microseconds."""
    return float(median(times_us))  # for a few dozen times, thirty times as quick as NumPy's


def median_interval_us(times_us: Sequence[float]) -> tuple[float, float]:
    """Returns the 90% interval of the median of run times: two of their order statistics, in microseconds."""
    times = sorted(times_us)
    spread = _Z * math.sqrt(len(times) * MODEL_QUANTILE * (1 - MODEL_QUANTILE))
    centre = len(times) * MODEL_QUANTILE
    low = times[max(0, math.floor(centre - spread))]
    high = times[min(len(times) - 1, math.ceil(centre + spread))]
    middle = median_us(times)
    return min(low, middle), max(high, middle)


def mean_us(times_us: Sequence[float]) -> float:
    """Returns the mean run time in microseconds, without interrupted runs, which take more than twice the median."""
    return float(np.mean(_uninterrupted(times_us)))


def mean_interval_us(times_us: Sequence[float]) -> tuple[float, float]:
    """Returns the 90% interval of the mean of run times, in microseconds.

    It follows from the standard error of the mean without interrupted runs, and is limited to the range of all run
    times.
    """
    kept = _uninterrupted(times_us)
    mean, error = float(np.mean(kept)), _Z * float(np.std(kept)) / math.sqrt(len(kept))
    return max(min(times_us), mean - error), min(max(times_us), mean + error)


def _uninterrupted(times_us: Sequence[float]) -> np.ndarray:
    times = np.asarray(times_us)
    return np.asarray(times[times <= _INTERRUPTED * median(times_us)])
