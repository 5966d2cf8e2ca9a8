"""The layer graph as data."""

import json
from collections.abc import Callable

import hypothesis.strategies as st
import pytest
from hypothesis import given

from costmodel.ir.graph import LayerGraph, TensorType


@pytest.mark.parametrize("level", ["none", "all"])
def test_a_graph_survives_json(level: str, light_name: str, lowered_light: Callable[..., LayerGraph]) -> None:
    """Graphs of real models survive JSON."""
    graph = lowered_light(light_name, level)
    assert LayerGraph.from_dict(json.loads(json.dumps(graph.to_dict()))) == graph


@given(data=st.data())
def test_any_graph_survives_json(data: st.DataObject, graphs: Callable[..., st.SearchStrategy[LayerGraph]]) -> None:
    """Arbitrary graphs survive JSON."""
    graph = data.draw(graphs())
    assert LayerGraph.from_dict(json.loads(json.dumps(graph.to_dict()))) == graph


def test_the_size_of_a_tensor() -> None:
    """The size of a tensor excludes the padding of blocked layouts and counts half bytes."""
    assert TensorType("float32", (1, 3, 8, 8), blocked=True).nbytes == 768
    assert TensorType("int4", (2, 5)).nbytes == 5
    assert TensorType("float16", ()).nbytes == 2
    assert TensorType("float32", (0, 5)).elements == 0
