"""Composition: from the costs of sequences to the latency of a model."""

import math
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.composition import COMPOSITIONS, Cost, Uncertainty, compose, counted, critical_path, half_width

Needs = list[tuple[int, ...]]
EXACT = Uncertainty(1.0, 0.0)


def cost(latency_us: float, width: float = 0.1, source: str = "predicted", kind: str = "Conv") -> Cost:
    """A cost with a half-width in log latency."""
    return Cost(latency_us, (latency_us * math.exp(-width), latency_us * math.exp(width)), source, kind)


@st.composite
def dags(draw: st.DrawFn) -> tuple[list[float], Needs]:
    """Latencies of up to 9 sequences, each reading from some earlier ones."""
    latencies = draw(st.lists(st.floats(0.1, 1e4), min_size=1, max_size=9))
    needs = [
        tuple(sorted(draw(st.sets(st.integers(0, position - 1), max_size=3)))) if position else ()
        for position in range(len(latencies))
    ]
    return latencies, needs


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
uncertainties = st.builds(Uncertainty, st.floats(1, 3), st.floats(0, 0.3))


def _dearest_chain(latencies: Sequence[float], needs: Needs) -> float:
    """By trying every chain."""

    def ending_at(position: int) -> float:
        return latencies[position] + max((ending_at(before) for before in needs[position]), default=0.0)

    return max(ending_at(position) for position in range(len(latencies)))


@given(dags())
def test_sequential_is_the_sum(dag: tuple[list[float], Needs]) -> None:
    """Whatever reads from whatever, one thing happens after another."""
    latencies, needs = dag
    latency, _ = compose([cost(us) for us in latencies], needs)
    assert latency == pytest.approx(sum(latencies))


@given(dags())
def test_parallel_lies_between_the_dearest_sequence_and_the_sum(dag: tuple[list[float], Needs]) -> None:
    """Branches may overlap; no sequence can be skipped."""
    latencies, needs = dag
    latency, _ = compose([cost(us) for us in latencies], needs, "parallel")
    assert max(latencies) * (1 - 1e-12) <= latency <= sum(latencies) * (1 + 1e-12)


@given(dags())
def test_the_critical_path_is_the_dearest_chain(dag: tuple[list[float], Needs]) -> None:
    """It is a chain, and no other chain costs more."""
    latencies, needs = dag
    path = critical_path(latencies, needs)
    assert all(before in needs[after] for before, after in pairwise(path))
    assert sum(latencies[position] for position in path) == pytest.approx(_dearest_chain(latencies, needs))


def test_the_critical_path_of_two_branches() -> None:
    """Of a stem, a short and a long branch and their join, the short branch is left out."""
    assert critical_path([1, 2, 3, 1], [(), (0,), (0,), (1, 2)]) == [0, 2, 3]
    assert critical_path([], []) == []


@given(costs, uncertainties, st.sampled_from(COMPOSITIONS))
def test_the_interval_contains_the_latency(parts: list[Cost], uncertainty: Uncertainty, composition: str) -> None:
    """And it is a factor either way, so that it never reaches zero."""
    latency, (low, high) = compose(parts, [()] * len(parts), composition, uncertainty)
    assert 0 < low <= latency <= high
    assert low * high == pytest.approx(latency**2)


@given(costs, uncertainties)
def test_more_uncertainty_is_wider(parts: list[Cost], uncertainty: Uncertainty) -> None:
    """In scale, in construction, and in any part."""
    width = half_width(parts, uncertainty)
    assert width >= uncertainty.construction
    assert half_width(parts, Uncertainty(uncertainty.scale + 1, uncertainty.construction)) >= width
    assert half_width(parts, Uncertainty(uncertainty.scale, uncertainty.construction + 0.1)) > width


@given(count=st.integers(2, 20), width=st.floats(0.01, 1))
def test_errors_of_one_kind_add_up_and_those_of_different_kinds_cancel(count: int, width: float) -> None:
    """A regressor that is wrong about one convolution is wrong about its siblings in the same direction."""
    alike = half_width([cost(10, width) for _ in range(count)], EXACT)
    mixed = half_width([cost(10, width, kind=f"Kind{i}") for i in range(count)], EXACT)
    measured = half_width([cost(10, width, "measured") for _ in range(count)], EXACT)
    assert alike == pytest.approx(width)
    assert mixed == pytest.approx(width / math.sqrt(count))
    assert measured == pytest.approx(mixed)


def test_the_scale_is_for_predictions_only() -> None:
    """Measurements do not grow less certain because a regressor does badly."""
    doubled = Uncertainty(2.0, 0.0)
    assert half_width([cost(10, 0.1, "measured")], doubled) == pytest.approx(0.1)
    assert half_width([cost(10, 0.1)], doubled) == pytest.approx(0.2)


def test_what_has_no_cost_counts_as_zero() -> None:
    """In a partial estimate, and without a width; of nothing but holes, the latency is 0."""
    hole = Cost(0.0, (0.0, 0.0), "unpriced", "")
    assert compose([cost(10), hole], [(), (0,)], "sequential", EXACT)[0] == 10
    assert compose([hole], [()]) == (0.0, (0.0, 0.0))
    assert compose([], []) == (0, (0, 0))


@given(dags(), st.sampled_from(COMPOSITIONS))
def test_what_counts_adds_up_to_the_latency(dag: tuple[list[float], Needs], composition: str) -> None:
    """No more and no less."""
    latencies, needs = dag
    costs = [cost(us) for us in latencies]
    latency, _ = compose(costs, needs, composition)
    assert sum(latencies[position] for position in counted(costs, needs, composition)) == pytest.approx(latency)


def test_an_unknown_composition_is_refused() -> None:
    """The message lists those there are."""
    with pytest.raises(ValueError, match="one of sequential, parallel, not 'fastest'"):
        compose([cost(1)], [()], "fastest")
