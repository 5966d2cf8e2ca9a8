"""MLPerf's early stopping."""

import numpy as np
import pytest

from costmodel.traffic.early_stopping import early_stopping_estimate_us


@pytest.mark.parametrize(("percentile", "least"), [(90, 64), (99, 662)])
def test_the_least_queries_are_mlperfs(percentile: int, least: int) -> None:
    """MLPerf's rules name 64 queries for the 90th percentile, and 662 for the 99th: one may be over the latency."""
    latencies_us = np.arange(1.0, least + 1)
    assert early_stopping_estimate_us(latencies_us[:-1], percentile) is None
    assert early_stopping_estimate_us(latencies_us, percentile) == least


@pytest.mark.parametrize("percentile", [90, 97, 99])
@pytest.mark.parametrize("queries", [500, 1_234, 20_000])
def test_the_criterion_is_that_of_the_beta_function(percentile: int, queries: int) -> None:
    """The number over the latency is the largest t with BetaRegularized(p, h, t + 1) <= 1 - c, of h + t queries."""
    betainc = pytest.importorskip("scipy.special").betainc
    found = early_stopping_estimate_us(np.arange(1.0, queries + 1), percentile)
    over = 0 if found is None else queries + 1 - int(found)
    assert over == 0 or betainc(queries - over, over + 1, percentile / 100) <= 0.01
    assert betainc(queries - over - 1, over + 2, percentile / 100) > 0.01


def test_the_estimate_is_above_the_percentile_and_close_to_it() -> None:
    """With many queries the estimate comes close to the percentile, from above, in whatever order they arrived."""
    latencies_us = np.random.default_rng(0).permutation(np.arange(1.0, 100_001.0))
    found = early_stopping_estimate_us(latencies_us, 90)
    assert found is not None
    assert 90_000 < found < 90_400
