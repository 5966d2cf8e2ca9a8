"""How precisely the time of a network is known from its runs."""

import math
from collections.abc import Sequence

import numpy as np

from costmodel.measure.protocol import Protocol

__all__ = ["is_precise", "relative_error"]

# Times also agree if their standard error is at most this, however large it is relative to them.
_CLOCK_US = 0.25


def relative_error(pass_times_us: Sequence[Sequence[float]]) -> float:
    """Returns the standard error of a network's time, relative to that time.

    The time is the median, over the passes, of the median in each pass. The error is estimated from the median absolute
    deviation of the passes' medians, so that outliers do not count.

    Args:
        pass_times_us: Times of the network's runs in microseconds, a sequence for each pass.
    """
    medians = np.array([np.median(times) for times in pass_times_us])
    centre = float(np.median(medians))
    spread = 1.4826 * float(np.median(np.abs(medians - centre)))
    return 1.2533 * spread / math.sqrt(len(medians)) / centre


def is_precise(pass_times_us: Sequence[Sequence[float]], protocol: Protocol) -> bool:
    """Returns whether a network's time is known well enough: from enough passes, with a small enough standard error.

    The error is small enough if it is at most `Protocol.agreement` relative to the median, or at most a quarter of a
    microsecond, which is the noise of the clock.

    Args:
        pass_times_us: Times of the network's runs in microseconds, a sequence for each pass.
        protocol: Measurement protocol, which sets the number of passes and the relative error.
    """
    if len(pass_times_us) < protocol.min_passes:
        return False
    error = relative_error(pass_times_us)
    return error <= protocol.agreement or error * float(np.median([t for r in pass_times_us for t in r])) <= _CLOCK_US
