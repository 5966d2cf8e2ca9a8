"""MLPerf's early stopping: how many queries bound a percentile of the latency with 99% confidence.

Source: MLPerf inference rules, appendix "Early stopping criterion". With t queries over the latency, h queries within
it are enough if BetaRegularized(p, h, t + 1) <= 1 - c. For whole numbers that is the probability that at most t of
h + t queries are over the latency if each of them is with probability 1 - p, so no special function is needed.
"""

import math
from collections.abc import Iterator

import numpy as np

__all__ = ["early_stopping_estimate_us"]

_CONFIDENCE = 0.99


def early_stopping_estimate_us(latencies_us: np.ndarray, percentile: float) -> float | None:
    """Returns the latency in microseconds that bounds a percentile with 99% confidence, as LoadGen reports it.

    Returns:
        The t-th largest latency, for the largest t such that so many queries bound the percentile while t of them
        exceed it; None if there are too few queries.
    """
    queries = len(latencies_us)
    over = -1
    for over_latency, probability in enumerate(_cumulative(queries, 1 - percentile / 100)):
        if probability > 1 - _CONFIDENCE:
            break
        over = over_latency
    return float(np.partition(latencies_us, queries - over)[queries - over]) if over > 0 else None


def _cumulative(number: int, chance: float) -> Iterator[float]:
    """Yields the cumulative distribution function of the binomial distribution at 0, 1, 2, ... up to `number`."""
    total = 0.0
    log_chance, log_other = math.log(chance), math.log1p(-chance)
    for count in range(number + 1):
        log_choices = math.lgamma(number + 1) - math.lgamma(count + 1) - math.lgamma(number - count + 1)
        total += math.exp(log_choices + count * log_chance + (number - count) * log_other)
        yield total
