"""The canonical order of graphs that are built to be hard."""

import sys
from collections.abc import Callable
from functools import partial
from types import FrameType

import pytest

from costmodel.ir.canonical_order import canonical_order
from costmodel.ir.graph import Layer, TensorType

KIND = TensorType("float32", (1, 8))


def layer(op_type: str, inputs: list[str], output: str) -> Layer:
    """Returns a layer with one output."""
    return Layer(output, op_type, "", 13, {}, tuple(inputs), (output,))


def interchangeable(count: int) -> list[Layer]:
    """Returns layers that all read the same value."""
    return [layer("Relu", ["x"], f"a{i}") for i in range(count)]


def zigzag(count: int) -> list[Layer]:
    """Returns two chains of layers in which colour refinement spreads by two layers per round."""
    below = [layer("Relu", ["x"], f"a{i}") for i in range(count // 2)]
    above = [layer("Add", [f"a{i}", f"a{min(i + 1, count // 2 - 1)}"], f"b{i}") for i in range(count // 2)]
    return below + above


def chain(count: int) -> list[Layer]:
    """Returns a chain of layers."""
    return [layer("Relu", [f"a{i - 1}" if i else "x"], f"a{i}") for i in range(count)]


def counting_calls(work: Callable[[], list[Layer]]) -> tuple[list[Layer], int]:
    """Returns what a function returns, and the number of calls of Python and C functions that it takes."""
    calls = 0

    def count(_: FrameType, event: str, __: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        result = work()
    finally:
        sys.setprofile(before)
    return result, calls


@pytest.mark.parametrize("graph", [interchangeable, zigzag, chain])
def test_work_grows_with_the_number_of_layers(graph: Callable[[int], list[Layer]]) -> None:
    """Three times as many layers take about three times as many function calls, and all layers are ordered."""
    taken = []
    for count in (700, 2100):
        layers = graph(count)
        types = {name: KIND for one in layers for name in (*one.inputs, *one.outputs)}
        order, calls = counting_calls(partial(canonical_order, layers, types, {}, set()))
        taken.append(calls)
        place = {one.name: position for position, one in enumerate(order)}
        assert len(place) == count
        assert all(place[name] < place[one.name] for one in layers for name in one.inputs if name in place)
    assert taken[1] < 3.5 * taken[0]
