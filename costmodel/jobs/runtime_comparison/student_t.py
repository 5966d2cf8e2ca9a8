"""Quantiles of Student's t distribution; SciPy has them, but is installed for training only."""

import math
from functools import cache

__all__ = ["two_sided_quantile"]


@cache
def two_sided_quantile(outside: float, degrees: int) -> float:
    """Returns the value that |t| exceeds with probability `outside`.

    The probability inside is a finite sum for whole degrees of freedom (Abramowitz and Stegun, 26.7.3 and 26.7.4); the
    value is found by bisection over the angle of that sum.

    Args:
        outside: Probability outside, between 0 and 1.
        degrees: Degrees of freedom, at least 1.
    """
    low, high = 0.0, math.pi / 2
    for _ in range(100):
        angle = (low + high) / 2
        if _inside(angle, degrees) < 1 - outside:
            low = angle
        else:
            high = angle
    return math.sqrt(degrees) * math.tan(low)


def _inside(angle: float, degrees: int) -> float:
    """Returns the probability that |t| is at most sqrt(degrees) * tan(angle)."""
    total, odd = 0.0, degrees % 2
    term = math.cos(angle) if odd else 1.0
    for step in range(1, (degrees - odd) // 2 + 1):
        total += term
        term *= math.cos(angle) ** 2 * (2 * step - 1 + odd) / (2 * step + odd)
    if odd:
        return 2 / math.pi * (angle + math.sin(angle) * total)
    return math.sin(angle) * total
