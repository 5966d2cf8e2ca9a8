"""The canonical order of graphs that are built to be hard."""

import hashlib
from collections.abc import Callable
from typing import Any

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


@pytest.mark.parametrize("graph", [interchangeable, zigzag, chain])
def test_work_grows_with_the_number_of_layers(
    graph: Callable[[int], list[Layer]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three times as many layers take about three times as many digests, and all layers are ordered."""

    class Counted:
        made = 0

        @classmethod
        def blake2b(cls, *given: Any, **named: Any) -> Any:
            cls.made += 1
            return hashlib.blake2b(*given, **named)

    monkeypatch.setattr("costmodel.ir.canonical_order.hashlib", Counted)
    taken = []
    for count in (700, 2100):
        layers = graph(count)
        types = {name: KIND for one in layers for name in (*one.inputs, *one.outputs)}
        Counted.made = 0
        order = canonical_order(layers, types, {}, set())
        taken.append(Counted.made)
        place = {one.name: position for position, one in enumerate(order)}
        assert len(place) == count
        assert all(place[name] < place[one.name] for one in layers for name in one.inputs if name in place)
    assert taken[1] < 3.5 * taken[0]
