"""Layers that can only run together: those that exchange a sequence or a string, and what lies between them."""

from collections.abc import Callable, Sequence

import hypothesis.strategies as st
from hypothesis import given

from costmodel.decomposition import decompose
from costmodel.graph import Layer, LayerGraph, TensorType
from costmodel.inseparable import inseparable


def graph_of(*layers: tuple[str, str, str], opaque: str = "") -> LayerGraph:
    """Layers as (name, values read, values made), each value one letter."""
    made = tuple(Layer(name, "Op", "", 1, {}, tuple(reads), tuple(makes)) for name, reads, makes in layers)
    values = {value for layer in made for value in (*layer.inputs, *layer.outputs)}
    types = {v: TensorType("sequence", ()) if v in opaque else TensorType("float32", (2,)) for v in values}
    return LayerGraph(made, types, {}, ("x",), (made[-1].outputs[0],), 17)


def names(units: Sequence[Sequence[Layer]]) -> list[str]:
    """The layers of each unit, in one word."""
    return ["".join(layer.name for layer in unit) for unit in units]


@given(data=st.data())
def test_tensors_hold_nothing_together(
    data: st.DataObject, graphs: Callable[..., st.SearchStrategy[LayerGraph]]
) -> None:
    """Where all is tensors, every layer is by itself, in the order of the graph."""
    graph = data.draw(graphs())
    assert inseparable(graph) == [[layer] for layer in graph.layers]


def test_another_branch_stays_out() -> None:
    """What stands between the layers in the order, and not on a path, is no part of the group."""
    graph = graph_of(("a", "x", "s"), ("b", "x", "t"), ("c", "s", "y"), ("d", "yt", "z"), opaque="s")
    assert names(inseparable(graph)) == ["ac", "b", "d"]


def test_what_lies_on_a_path_belongs_to_the_group() -> None:
    """A layer that is fed by the group and feeds it cannot run before or after it."""
    graph = graph_of(("a", "x", "st"), ("b", "t", "u"), ("c", "su", "y"), opaque="s")
    assert names(inseparable(graph)) == ["abc"]


def test_groups_that_wait_for_each_other_are_one() -> None:
    """Each holds a layer that the other needs."""
    layers = ("a", "x", "st"), ("b", "x", "uv"), ("c", "sv", "y"), ("d", "ut", "z")
    assert names(inseparable(graph_of(*layers, opaque="su"))) == ["abcd"]


def test_a_group_waits_for_all_that_it_reads() -> None:
    """A layer that the last of a group needs comes before the first."""
    graph = graph_of(("a", "x", "s"), ("b", "x", "t"), ("c", "st", "y"), opaque="s")
    assert names(inseparable(graph)) == ["b", "ac"]


def test_a_group_is_a_sequence_at_any_granularity() -> None:
    """It is longer than the granularity where it has to be, and joins others where there is room."""
    graph = graph_of(("a", "x", "t"), ("b", "t", "s"), ("c", "s", "u"), ("d", "u", "y"), opaque="s")
    cuts = {g: ["".join(p.layers) for p in decompose("m", graph, g).pieces] for g in (1, 2, 3, 4)}
    assert cuts == {1: ["a", "bc", "d"], 2: ["a", "bc", "d"], 3: ["abc", "d"], 4: ["abcd"]}
