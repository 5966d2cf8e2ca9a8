"""Atomic groups: layers that can only run together, because a value between them cannot be fed to a network.

Such a value (a sequence, an optional, a string) must be produced in the network that reads it. An atomic group contains
the layers that produce and read it and every layer on a path between these: the smallest runnable network around it.
"""

from collections.abc import Mapping, Sequence

from costmodel.ir.graph import Layer, LayerGraph
from costmodel.ir.topological_order import topological_order

__all__ = ["find_atomic_groups"]

_Edges = Mapping[int, set[int]]


def find_atomic_groups(graph: LayerGraph) -> list[list[Layer]]:
    """Returns the layers of `graph` as atomic groups, in execution order; most groups are single layers.

    Layers keep the order of the graph, except that a layer listed between two layers of a group to which it does not
    belong moves before or after that group.
    """
    positions = range(len(graph.layers))
    producer = {name: position for position, layer in enumerate(graph.layers) for name in layer.outputs if name}
    forward: dict[int, set[int]] = {position: set() for position in positions}
    backward: dict[int, set[int]] = {position: set() for position in positions}
    has_opaque = False
    for position, layer in enumerate(graph.layers):
        for name in layer.inputs:
            if name in producer:
                made = producer[name]
                forward[made].add(position)
                backward[position].add(made)
                if graph.types[name].opaque:
                    # With an edge back, the layers of an atomic group are a strongly connected component.
                    forward[position].add(made)
                    backward[made].add(position)
                    has_opaque = True
    if not has_opaque:
        return [[layer] for layer in graph.layers]
    groups = _ordered_groups(_components(forward, backward), backward)
    return [[graph.layers[position] for position in sorted(group)] for group in groups]


def _components(forward: _Edges, backward: _Edges) -> list[set[int]]:
    """Returns the strongly connected components of a graph, in time linear in its edges (Kosaraju's algorithm)."""
    assigned: set[int] = set()
    components = []
    for start in reversed(_postorder(forward)):
        if start not in assigned:
            component, waiting = {start}, [start]
            while waiting:
                new = backward[waiting.pop()] - assigned - component
                component |= new
                waiting.extend(new)
            assigned |= component
            components.append(component)
    return components


def _postorder(edges: _Edges) -> list[int]:
    """Returns all nodes of the graph with the given edges in depth-first postorder."""
    finished: list[int] = []
    visited: set[int] = set()
    for start in edges:
        path = [] if start in visited else [(start, iter(edges[start]))]
        visited.add(start)
        while path:
            position, following = path[-1]
            new = next((other for other in following if other not in visited), None)
            if new is None:
                finished.append(position)
                path.pop()
            else:
                visited.add(new)
                path.append((new, iter(edges[new])))
    return finished


def _ordered_groups(groups: Sequence[set[int]], predecessors: _Edges) -> list[set[int]]:
    """Returns the groups in topological order; where several could come next, the one with the earliest layer does."""
    group_of = {position: index for index, group in enumerate(groups) for position in group}
    between = [
        {group_of[p] for position in group for p in predecessors[position]} - {index}
        for index, group in enumerate(groups)
    ]
    return [groups[index] for index in topological_order(between, lambda index: min(groups[index]))]
