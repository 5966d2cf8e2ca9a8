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
    tied = False
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
                    tied = True
    if not tied:
        return [[layer] for layer in graph.layers]
    groups = _ordered(_circles(forward, backward), backward)
    return [[graph.layers[position] for position in sorted(group)] for group in groups]


def _circles(forward: _Edges, backward: _Edges) -> list[set[int]]:
    """Strongly connected components, in time that is linear in the number of edges (Kosaraju's method)."""
    assigned: set[int] = set()
    found = []
    for start in reversed(_by_departure(forward)):
        if start not in assigned:
            circle, waiting = {start}, [start]
            while waiting:
                new = backward[waiting.pop()] - assigned - circle
                circle |= new
                waiting.extend(new)
            assigned |= circle
            found.append(circle)
    return found


def _by_departure(edges: _Edges) -> list[int]:
    """Every position behind those that a walk from it finds first."""
    left: list[int] = []
    seen: set[int] = set()
    for start in edges:
        path = [] if start in seen else [(start, iter(edges[start]))]
        seen.add(start)
        while path:
            position, following = path[-1]
            new = next((other for other in following if other not in seen), None)
            if new is None:
                left.append(position)
                path.pop()
            else:
                seen.add(new)
                path.append((new, iter(edges[new])))
    return left


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
