"""Atomic groups: layers that exchange a sequence or string and so can only run together."""

from collections.abc import Callable, Sequence

import hypothesis.strategies as st
from hypothesis import given

from costmodel.ir.graph import Layer, LayerGraph, TensorType
from costmodel.partition.atomic_groups import find_atomic_groups
from costmodel.partition.decomposition import decompose


def graph_of(*layers: tuple[str, str, str], opaque: str = "") -> LayerGraph:
    """Returns a graph of layers given as (name, inputs, outputs), with one letter per value."""
    made = tuple(Layer(name, "Op", "", 1, {}, tuple(reads), tuple(makes)) for name, reads, makes in layers)
    values = {value for layer in made for value in (*layer.inputs, *layer.outputs)}
    types = {v: TensorType("sequence", ()) if v in opaque else TensorType("float32", (2,)) for v in values}
    return LayerGraph(made, types, {}, ("x",), (made[-1].outputs[0],), 17)


def names(units: Sequence[Sequence[Layer]]) -> list[str]:
    """Returns the layers of each group, joined to one word."""
    return ["".join(layer.name for layer in unit) for unit in units]


@given(data=st.data())
def test_tensors_hold_nothing_together(
    data: st.DataObject, graphs: Callable[..., st.SearchStrategy[LayerGraph]]
) -> None:
    """If all values are tensors, every layer is its own group, in graph order."""
    graph = data.draw(graphs())
    assert find_atomic_groups(graph) == [[layer] for layer in graph.layers]


def test_another_branch_stays_out() -> None:
    """A layer between those of a group that is not on a path between them is not part of it."""
    graph = graph_of(("a", "x", "s"), ("b", "x", "t"), ("c", "s", "y"), ("d", "yt", "z"), opaque="s")
    assert names(find_atomic_groups(graph)) == ["ac", "b", "d"]


def test_what_lies_on_a_path_belongs_to_the_group() -> None:
    """A layer on a path between layers of a group is part of it."""
    graph = graph_of(("a", "x", "st"), ("b", "t", "u"), ("c", "su", "y"), opaque="s")
    assert names(find_atomic_groups(graph)) == ["abc"]


def test_groups_that_wait_for_each_other_are_one() -> None:
    """Groups that depend on each other are merged."""
    layers = ("a", "x", "st"), ("b", "x", "uv"), ("c", "sv", "y"), ("d", "ut", "z")
    assert names(find_atomic_groups(graph_of(*layers, opaque="su"))) == ["abcd"]


def test_a_group_waits_for_all_that_it_reads() -> None:
    """A layer that a group's last layer reads comes before the group."""
    graph = graph_of(("a", "x", "s"), ("b", "x", "t"), ("c", "st", "y"), opaque="s")
    assert names(find_atomic_groups(graph)) == ["b", "ac"]


def test_a_group_is_a_sequence_at_any_granularity() -> None:
    """A group may exceed the granularity, and is joined with other layers up to the granularity."""
    graph = graph_of(("a", "x", "t"), ("b", "t", "s"), ("c", "s", "u"), ("d", "u", "y"), opaque="s")
    cuts = {g: ["".join(p.layers) for p in decompose("m", graph, g).segments] for g in (1, 2, 3, 4)}
    assert cuts == {1: ["a", "bc", "d"], 2: ["a", "bc", "d"], 3: ["abc", "d"], 4: ["abcd"]}
