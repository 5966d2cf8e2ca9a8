"""Composition: from the costs of sequences to the latency of a model."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.estimate.composition import PricedBatch, half_width
from costmodel.estimate.cost import Cost, Uncertainty

TOGETHER, APART = Uncertainty(1.0, 0.0), Uncertainty(0.0, 0.0)


def cost(latency_us: float, width: float = 0.1, source: str = "predicted", kind: str = "Conv") -> Cost:
    """Returns a cost with a half-width in log latency."""
    return Cost(latency_us, (latency_us * math.exp(-width), latency_us * math.exp(width)), source, kind)


def compose(
    parts: Sequence[Cost], included: Sequence[float] | None = None, uncertainty: Uncertainty = TOGETHER
) -> tuple[float, tuple[float, float]]:
    """Returns the latency and the interval of a batch of one model."""
    shares = None if included is None else np.array(included)
    found = PricedBatch.of([parts]).compose(uncertainty, shares)
    low_us, high_us = found.interval_us[0].tolist()
    return float(found.latency_us[0]), (low_us, high_us)


costs = st.lists(
    st.builds(
        cost,
        st.floats(0.1, 1e6),
        st.floats(0, 1),
        st.sampled_from(["measured", "predicted", "extrapolated"]),
        st.sampled_from(["Conv", "Relu", "MatMul"]),
    ),
    min_size=1,
    max_size=20,
)
uncertainties = st.builds(Uncertainty, st.floats(0, 3), st.floats(0, 0.3))


@given(costs, uncertainties, st.data())
def test_the_interval_contains_the_latency(parts: list[Cost], uncertainty: Uncertainty, data: st.DataObject) -> None:
    """The interval is a factor either way, hence positive, whatever the counted shares."""
    shares = data.draw(st.lists(st.floats(0.1, 2), min_size=len(parts), max_size=len(parts)))
    latency, (low, high) = compose(parts, shares, uncertainty)
    assert latency == pytest.approx(sum(share * part.latency_us for share, part in zip(shares, parts, strict=True)))
    assert 0 < low <= latency <= high
    assert low * high == pytest.approx(latency**2)


@given(costs, uncertainties)
def test_more_uncertainty_is_wider(parts: list[Cost], uncertainty: Uncertainty) -> None:
    """More correlation, construction error or uncertainty of a part widens the interval."""
    width = half_width(parts, uncertainty)
    assert width >= uncertainty.construction
    correlation, construction = uncertainty.correlation, uncertainty.construction
    assert half_width(parts, Uncertainty(correlation + 1, construction)) >= width * (1 - 1e-9)
    assert half_width(parts, Uncertainty(correlation, construction + 0.1)) > width


@given(count=st.integers(2, 20), width=st.floats(0.01, 1), correlation=st.floats(0, 1))
def test_errors_of_different_layers_cancel_as_far_as_they_are_not_correlated(
    count: int, width: float, correlation: float
) -> None:
    """Only uncorrelated parts of errors cancel in a sum; measurements are always uncorrelated."""
    different = [cost(10 + i / 1e6, width) for i in range(count)]
    assert half_width(different, TOGETHER) == pytest.approx(width)
    assert half_width(different, APART) == pytest.approx(width / math.sqrt(count), rel=1e-3)
    between = half_width(different, Uncertainty(correlation, 0.0))
    assert between == pytest.approx(width * math.sqrt(correlation + (1 - correlation) / count), rel=1e-3)
    measured = half_width([cost(10, width, "measured") for _ in range(count)], TOGETHER)
    assert measured == pytest.approx(width / math.sqrt(count))


@given(st.integers(1, 20), st.floats(0.01, 1), uncertainties)
def test_a_layer_that_repeats_repeats_its_error(count: int, width: float, uncertainty: Uncertainty) -> None:
    """The errors of a repeated layer do not cancel."""
    alone = half_width([cost(10, width)], uncertainty)
    assert half_width([cost(10, width)] * count, uncertainty) == pytest.approx(alone)
    assert alone == pytest.approx(math.hypot(width, uncertainty.construction))


@given(st.floats(1, 1e6), st.floats(1, 1e6), st.floats(0, 1))
def test_sums_of_shorter_models_are_farther_off(one_us: float, other_us: float, power: float) -> None:
    """The error of composition decreases with the latency of a model, within limits; a power of 0 makes all alike."""

    def width(latency_us: float, power: float = power) -> float:
        return half_width([cost(latency_us, 0.0, "measured")], Uncertainty(1.0, 0.05, power))

    assert width(max(one_us, other_us)) <= width(min(one_us, other_us)) * (1 + 1e-9)
    assert width(20e3) == pytest.approx(0.05)
    assert width(one_us, 0.0) == pytest.approx(0.05)
    assert width(one_us) <= 0.05 * 20**power * (1 + 1e-9)


def test_what_has_no_cost_counts_as_zero() -> None:
    """In a partial estimate, unpriced layers count as 0 without width."""
    hole = Cost(0.0, (0.0, 0.0), "unpriced", "")
    assert compose([cost(10), hole])[0] == 10
    assert compose([hole]) == (0.0, (0.0, 0.0))
    assert compose([]) == (0, (0, 0))


@given(costs, uncertainties)
def test_what_does_not_count_does_not_widen(parts: list[Cost], uncertainty: Uncertainty) -> None:
    """A layer that does not count in the composition does not widen the interval."""
    hidden = cost(1e6, 1.0)
    alone = compose(parts, uncertainty=uncertainty)
    assert compose([*parts, hidden], [*(1.0 for _ in parts), 0.0], uncertainty) == alone
