"""Choice of what to measure: most value per second, no row twice, within the budget."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.measure.protocol import Protocol
from costmodel.training.suggestion import (
    BenchmarkTimeModel,
    MeasurementBatch,
    Usage,
    choose,
    importance,
    value_of_measuring,
)

ROWS = 40


def _prices(latencies_us: np.ndarray) -> BenchmarkTimeModel:
    nothing = np.zeros(len(latencies_us), dtype=np.int64)
    return BenchmarkTimeModel(latencies_us, nothing, nothing, None, Protocol())


@st.composite
def _cases(draw: st.DrawFn) -> tuple[list[Usage], np.ndarray, np.ndarray, np.ndarray]:
    """Strategy for models that share rows, the rows left, the values of rows and their latencies."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    usages = [
        Usage(f"m{i}", rng.integers(0, ROWS, draw(st.integers(1, 30))), int(rng.integers(0, 1 << 24)))
        for i in range(draw(st.integers(1, 5)))
    ]
    return usages, rng.random(ROWS) < 0.8, rng.random(ROWS) * (rng.random(ROWS) < 0.9), rng.exponential(500, ROWS) + 1


@given(_cases(), st.floats(0.01, 30))
def test_portions_are_disjoint_parts_of_models(
    case: tuple[list[Usage], np.ndarray, np.ndarray, np.ndarray], budget_s: float
) -> None:
    """Batches have valuable unmeasured rows of one model in order; all but the last fit the budget."""
    usages, left, values, latencies_us = case
    portions = choose(usages, left, values, _prices(latencies_us), budget_s)
    rows = [row for portion in portions for row in portion.rows.tolist()]
    assert len(rows) == len(set(rows))
    assert left[rows].all()
    assert (values[rows] > 0).all()
    for portion in portions:
        assert portion.usage in usages
        order = portion.usage.unique.tolist()
        places = [order.index(row) for row in portion.rows.tolist()]
        assert places == sorted(places)
        assert portion.value == pytest.approx(values[portion.rows].sum())
    assert sum(portion.seconds for portion in portions[:-1]) < budget_s


@given(_cases())
def test_with_all_the_time_there_is_everything_is_chosen(
    case: tuple[list[Usage], np.ndarray, np.ndarray, np.ndarray],
) -> None:
    """Without a time limit, all rows of models with any value are chosen."""
    usages, left, values, latencies_us = case
    portions = choose(usages, left, values, _prices(latencies_us), 1e9)
    wanted = {row for usage in usages for row in usage.rows.tolist() if left[row] and values[row] > 0}
    assert {row for portion in portions for row in portion.rows.tolist()} == wanted


@given(_cases())
def test_importance_is_shared_out(case: tuple[list[Usage], np.ndarray, np.ndarray, np.ndarray]) -> None:
    """Shares of all rows add up to one with equal weight for each model; rows of no model have none."""
    usages, _, _, latencies_us = case
    shares = importance(usages, latencies_us)
    assert shares.sum() == pytest.approx(1)
    used = {row for usage in usages for row in usage.rows.tolist()}
    assert set(np.flatnonzero(shares).tolist()) == used


def _first(values: np.ndarray, latencies_us: np.ndarray) -> MeasurementBatch:
    usages = [Usage("one", np.arange(20), 0), Usage("other", np.arange(20, 40), 0)]
    return choose(usages, np.ones(ROWS, dtype=bool), values, _prices(latencies_us), 0.01)[0]


def test_what_is_worth_more_for_its_time_comes_first() -> None:
    """A batch with twice the value in the same time, or the same value in half of it, is first."""
    half = np.arange(ROWS) < ROWS // 2
    assert _first(np.where(half, 2.0, 1.0), np.full(ROWS, 100.0)).usage.name == "one"
    assert _first(np.where(half, 1.0, 2.0), np.full(ROWS, 100.0)).usage.name == "other"
    assert _first(np.ones(ROWS), np.where(half, 4e4, 1e4)).usage.name == "other"


def test_worth_grows_with_share_and_with_doubt() -> None:
    """Rows that no model has, and rows without uncertainty, have no value."""
    assert value_of_measuring(np.array([0.0, 0.5, 0.5, 0.5]), np.array([1.0, 0.0, 0.1, 0.2])).tolist() == [
        0.0,
        0.0,
        0.05,
        0.1,
    ]
