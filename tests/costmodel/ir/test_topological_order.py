"""Topological order with a rule for positions that are ready at the same time."""

from graphlib import CycleError

import hypothesis.strategies as st
import pytest
from hypothesis import given

from costmodel.ir.topological_order import topological_order


@st.composite
def graphs(draw: st.DrawFn) -> list[set[int]]:
    """Draws the predecessors of each position of an acyclic graph."""
    count = draw(st.integers(1, 12))
    return [draw(st.sets(st.integers(0, i - 1), max_size=i)) if i else set() for i in range(count)]


@given(graphs(), st.randoms())
def test_the_lowest_key_that_is_ready_comes_next(predecessors: list[set[int]], random: st.random_module) -> None:
    """At each step the order takes, of all positions whose predecessors came before, the one with the lowest key."""
    keys = [random.randrange(4) for _ in predecessors]  # type: ignore[attr-defined]
    order = topological_order(predecessors, keys.__getitem__)
    assert sorted(order) == list(range(len(predecessors)))
    done: set[int] = set()
    for position in order:
        ready = [p for p, before in enumerate(predecessors) if before <= done and p not in done]
        assert position == min(ready, key=lambda p: (keys[p], p))
        done.add(position)


def test_a_cycle_has_no_order() -> None:
    """The error is that of the standard library."""
    with pytest.raises(CycleError):
        topological_order([{1}, {0}], lambda position: position)
