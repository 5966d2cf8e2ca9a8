"""MLPerf's early stopping."""

import numpy as np
import pytest

from costmodel.traffic.early_stopping import early_stopping_estimate_us, least_queries


def test_the_least_queries_are_mlperfs() -> None:
    """MLPerf's rules name 64 queries for the 90th percentile, and 662 for the 99th."""
    assert (least_queries(90, 1), least_queries(99, 1)) == (64, 662)


@pytest.mark.parametrize("percentile", [90, 97, 99])
@pytest.mark.parametrize("over", [0, 1, 10, 100])
def test_the_criterion_is_that_of_the_beta_function(percentile: int, over: int) -> None:
    """The number within the latency is the least h with BetaRegularized(p, h, t + 1) <= 1 - c."""
    special = pytest.importorskip("scipy.special")
    within = least_queries(percentile, over) - over
    assert special.betainc(within, over + 1, percentile / 100) <= 0.01
    assert special.betainc(within - 1, over + 1, percentile / 100) > 0.01 or within == 1


def test_the_estimate_is_above_the_percentile_and_close_to_it() -> None:
    """With few queries there is none; with 64 it is the largest latency; with many it comes close to the percentile."""
    latencies_us = np.random.default_rng(0).permutation(np.arange(1.0, 100_001.0))
    assert early_stopping_estimate_us(latencies_us[:63], 90) is None
    assert early_stopping_estimate_us(latencies_us[:64], 90) == latencies_us[:64].max()
    found = early_stopping_estimate_us(latencies_us, 90)
    assert found is not None
    assert 90_000 < found < 90_400
