"""Finds which operators of a model OpenVINO executes together.

The executed graph names the operators that a primitive was made from, but not all of them: a transformation that puts a
new operator in the place of several keeps one name, and new operators may have none. An operator without a primitive
therefore belongs to the primitive that executes what reads its result, and a primitive without operators to the
operators whose primitives read its result.
"""

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

from costmodel.ir.graph import Layer, LayerGraph
from costmodel.ir.strong_components import strong_components
from costmodel.ir.topological_order import topological_order
from costmodel.runtimes.openvino.executed import Primitive
from costmodel.runtimes.openvino.executed_types import rounding_quantisations

__all__ = ["Group", "grouped"]

_NO_WORK = ("Input", "Parameter", "Const", "Output", "Result")
# The kind of primitive of operators of which each is executed by a primitive of its own.
_KINDS = {"Conv": "Convolution", "ConvTranspose": "Deconvolution", "Resize": "Interpolate", "Softmax": "Softmax"}


@dataclass(frozen=True, slots=True)
class Group:
    """Operators that OpenVINO executes together.

    Attributes:
        layers: The operators, in topological order.
        primitives: Positions, in the executed graph, of the primitives that execute them; none if OpenVINO found that
            they do nothing.
    """

    layers: tuple[Layer, ...]
    primitives: tuple[int, ...]


class _Sets:
    """Disjoint sets (union-find) of the nodes 0 to `size` - 1."""

    def __init__(self, size: int) -> None:
        self._parent = list(range(size))

    def find(self, node: int) -> int:
        """Returns the representative of the set of `node`."""
        while self._parent[node] != node:
            self._parent[node] = self._parent[self._parent[node]]
            node = self._parent[node]
        return node

    def join(self, one: int, other: int) -> None:
        """Makes one set of two."""
        self._parent[self.find(other)] = self.find(one)


def grouped(graph: LayerGraph, primitives: Sequence[Primitive]) -> list[Group]:
    """Returns the operators of a model in groups that OpenVINO executes together, in an order in which they can run.

    Args:
        graph: The model that was compiled, with the names of its nodes as names of layers.
        primitives: The executed graph.
    """
    sets = _Sets(len(graph.layers) + len(primitives))
    base = len(graph.layers)
    working = working_primitives(primitives)
    by_name = {layer.name: position for position, layer in enumerate(graph.layers)}
    # What makes an output of the model may be called like the output.
    results = {n: position for position, layer in enumerate(graph.layers) for n in layer.outputs if n in graph.outputs}
    equal = _equal_dequantisations(graph)
    named = set()
    for p in sorted(working):
        for name in primitives[p].operators:
            layer = by_name.get(name, results.get(name))
            if layer in equal:
                continue
            if layer is not None:
                named |= {layer, base + p}
            else:  # a part of an operator, such as the transposition of an argument
                layer = by_name.get(name.rpartition("/")[0])
            if layer is not None:
                sets.join(layer, base + p)
    for layer, p in _same_work(graph, primitives, named, sorted(working), base):
        sets.join(layer, base + p)
        named |= {layer, base + p}
    named |= _join_rounding(sets, graph, rounding_quantisations(graph, primitives))
    _adopt_primitives(sets, base, primitives, working, named)
    _adopt_layers(sets, graph, named)
    _close_cycles(sets, graph)
    members: dict[int, list[int]] = {}
    for position in range(len(graph.layers)):
        members.setdefault(sets.find(position), []).append(position)
    executing: dict[int, list[int]] = {}
    for p in sorted(working):
        executing.setdefault(sets.find(base + p), []).append(p)
    groups = list(members)
    order = topological_order(_predecessors(sets, graph, groups), lambda i: members[groups[i]][0])
    return [
        Group(tuple(graph.layers[i] for i in members[groups[g]]), tuple(executing.get(groups[g], ()))) for g in order
    ]


def working_primitives(primitives: Sequence[Primitive]) -> set[int]:
    """Returns the positions of the primitives that run whenever the model does; not those that only read constants."""
    working, moving = set(), set()
    for position, primitive in enumerate(primitives):
        if primitive.kind in ("Input", "Parameter") or any(source in moving for source, _ in primitive.inputs):
            moving.add(position)
            if primitive.kind not in _NO_WORK:
                working.add(position)
    return working


def _equal_dequantisations(graph: LayerGraph) -> set[int]:
    """Returns the positions of the dequantisations of which there are several of the same tensor.

    OpenVINO keeps one of them, under any of their names; each belongs to the operator that reads its result.
    """
    alike: dict[tuple[str, ...], list[int]] = {}
    for i, layer in enumerate(graph.layers):
        if layer.op_type == "DequantizeLinear":
            alike.setdefault(layer.inputs, []).append(i)
    return {i for found in alike.values() if len(found) > 1 for i in found}


def _same_work(
    graph: LayerGraph, primitives: Sequence[Primitive], named: Set[int], working: Sequence[int], base: int
) -> Iterator[tuple[int, int]]:
    """Yields operators and primitives, both without the other's name, that compute the same tensors in the same way.

    Where several operators of a kind have results of one shape, their order decides.
    """
    operators: dict[tuple[str, tuple[int, ...]], list[int]] = {}
    for i, layer in enumerate(graph.layers):
        if i not in named and layer.op_type in _KINDS:
            operators.setdefault((_KINDS[layer.op_type], graph.types[layer.outputs[0]].shape), []).append(i)
    nameless: dict[tuple[str, tuple[int, ...]], list[int]] = {}
    for p in working:
        if base + p not in named and primitives[p].kind in _KINDS.values():
            nameless.setdefault((primitives[p].kind, primitives[p].shapes[0]), []).append(p)
    for key, found in nameless.items():
        if len(operators.get(key, [])) == len(found):
            yield from zip(operators[key], found, strict=True)


def _join_rounding(sets: _Sets, graph: LayerGraph, rounding: Set[str]) -> set[int]:
    """Joins quantisations whose results remain floats with their dequantisations, and returns the latter."""
    quantised = {layer.outputs[0]: i for i, layer in enumerate(graph.layers) if layer.name in rounding}
    found = {
        i
        for i, layer in enumerate(graph.layers)
        if layer.op_type == "DequantizeLinear" and layer.inputs[0] in quantised
    }
    for i in found:
        sets.join(quantised[graph.layers[i].inputs[0]], i)
    return found


def _adopt_primitives(
    sets: _Sets, base: int, primitives: Sequence[Primitive], working: set[int], named: set[int]
) -> None:
    """Joins primitives without operators, except reorders, with those that read their result, or else make theirs.

    Reorders between primitives of one group belong to it.
    """
    readers: dict[int, list[int]] = {}
    for position, primitive in enumerate(primitives):
        for source, _ in primitive.inputs:
            readers.setdefault(source, []).append(position)
    for p in sorted(working, reverse=True):
        if base + p in named or primitives[p].kind == "Reorder":
            continue
        behind = [_beyond_reorders(n, primitives, readers) for n in readers.get(p, ())]
        before = [_beyond_reorders(n, primitives, None) for n, _ in primitives[p].inputs]
        neighbour = next((base + n for n in (*behind, *before) if base + n in named), None)
        if neighbour is not None:
            sets.join(neighbour, base + p)
            named.add(base + p)
    for p in sorted(working):
        if primitives[p].kind == "Reorder" and base + p not in named:
            maker = sets.find(base + _beyond_reorders(p, primitives, None))
            if maker in {sets.find(base + n) for n in readers.get(p, ())}:
                sets.join(maker, base + p)
                named.add(base + p)


def _beyond_reorders(position: int, primitives: Sequence[Primitive], readers: Mapping[int, list[int]] | None) -> int:
    """Returns the first primitive from `position` on that is no reorder: towards `readers`, or if None, backwards."""
    while primitives[position].kind == "Reorder":
        following = [n for n, _ in primitives[position].inputs] if readers is None else readers.get(position, [])
        if not following:
            break
        position = following[0]
    return position


def _adopt_layers(sets: _Sets, graph: LayerGraph, named: set[int]) -> None:
    """Joins operators without a primitive with the operator that reads their result, or else with one that makes it."""
    producer = {name: i for i, layer in enumerate(graph.layers) for name in layer.outputs if name}
    reader: dict[int, int] = {}
    for i, layer in enumerate(graph.layers):
        for name in layer.inputs:
            if name in producer:
                reader.setdefault(producer[name], i)
    for i, layer in enumerate(graph.layers):
        made = producer.get(layer.inputs[0]) if layer.op_type == "QuantizeLinear" else None
        if i not in named and made is not None:  # it is fused with what it quantises
            sets.join(made, i)
    for i in reversed(range(len(graph.layers))):
        if i not in named and reader.get(i) in named and graph.layers[i].op_type != "QuantizeLinear":
            sets.join(reader[i], i)
            named.add(i)
    for i, layer in enumerate(graph.layers):
        makers = [producer[name] for name in layer.inputs if name in producer]
        if i not in named and makers:
            sets.join(makers[0], i)
        named.add(i)


def _predecessors(sets: _Sets, graph: LayerGraph, groups: Sequence[int]) -> list[set[int]]:
    place = {group: i for i, group in enumerate(groups)}
    producer = {name: i for i, layer in enumerate(graph.layers) for name in layer.outputs if name}
    before: list[set[int]] = [set() for _ in groups]
    for i, layer in enumerate(graph.layers):
        own = place[sets.find(i)]
        before[own] |= {place[sets.find(producer[n])] for n in layer.inputs if n in producer} - {own}
    return before


def _close_cycles(sets: _Sets, graph: LayerGraph) -> None:
    """Joins groups of which each reads a result of the other, so that the groups can run one after another."""
    groups = list(dict.fromkeys(sets.find(i) for i in range(len(graph.layers))))
    backward = dict(enumerate(_predecessors(sets, graph, groups)))
    forward: dict[int, set[int]] = {place: set() for place in backward}
    for own, before in backward.items():
        for other in before:
            forward[other].add(own)
    for component in strong_components(forward, backward):
        first, *others = component
        for other in others:
            sets.join(groups[first], groups[other])
