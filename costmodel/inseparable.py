"""Layers that can only run together, because what passes between them cannot be fed to a network.

A sequence, an optional, a string: such a value has to be made where it is read. The layers that make and read it
form one group, with whatever lies on a path between them: the smallest runnable network around each.
"""

from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush

from costmodel.graph import Layer, LayerGraph

__all__ = ["inseparable"]

_Edges = Mapping[int, set[int]]


def inseparable(graph: LayerGraph) -> list[list[Layer]]:
    """The layers of `graph` in execution order, those together that can only run together.

    The order is the graph's own, except that a layer outside a group does not stay in the midst of it.
    """
    positions = range(len(graph.layers))
    producer = {name: position for position, layer in enumerate(graph.layers) for name in layer.outputs if name}
    forward: dict[int, set[int]] = {position: set() for position in positions}
    backward: dict[int, set[int]] = {position: set() for position in positions}
    tied = set()
    for position, layer in enumerate(graph.layers):
        for name in layer.inputs:
            if name in producer:
                made = producer[name]
                forward[made].add(position)
                backward[position].add(made)
                if graph.types[name].opaque:
                    # An edge back: what is then on a circle cannot be taken apart.
                    forward[position].add(made)
                    backward[made].add(position)
                    tied |= {made, position}
    if not tied:
        return [[layer] for layer in graph.layers]
    groups: list[set[int]] = []
    while tied:
        start = min(tied)
        groups.append(_reached(start, forward) & _reached(start, backward))
        tied -= groups[-1]
    alone = set(positions).difference(*groups)
    groups.extend({position} for position in alone)
    return [[graph.layers[position] for position in sorted(group)] for group in _ordered(groups, backward)]


def _reached(start: int, edges: _Edges) -> set[int]:
    """Everything that the edges lead to, the start included."""
    found, waiting = {start}, [start]
    while waiting:
        new = edges[waiting.pop()] - found
        found |= new
        waiting.extend(new)
    return found


def _ordered(groups: Sequence[set[int]], needs: _Edges) -> list[set[int]]:
    """Topological order; among groups that are ready, the one goes first whose first layer does."""
    group_of = {position: index for index, group in enumerate(groups) for position in group}
    wanted = {i: {group_of[p] for position in group for p in needs[position]} - {i} for i, group in enumerate(groups)}
    followers: dict[int, list[int]] = {index: [] for index in wanted}
    for index, before in wanted.items():
        for needed in before:
            followers[needed].append(index)
    ready = [(min(groups[index]), index) for index, before in wanted.items() if not before]
    heapify(ready)
    order = []
    while ready:
        _, index = heappop(ready)
        order.append(groups[index])
        for follower in followers[index]:
            wanted[follower].discard(index)
            if not wanted[follower]:
                heappush(ready, (min(groups[follower]), follower))
    return order
