"""Atomic groups: layers that can only run together, because a value between them cannot be fed to a network.

Such a value (a sequence, an optional, a string) must be produced in the network that reads it. An atomic group contains
the layers that produce and read it and every layer on a path between these: the smallest runnable network around it.
"""

from collections.abc import Mapping, Sequence

from costmodel.ir.graph import Layer, LayerGraph
from costmodel.ir.strong_components import strong_components
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
    groups = _ordered_groups(strong_components(forward, backward), backward)
    return [[graph.layers[position] for position in sorted(group)] for group in groups]


def _ordered_groups(groups: Sequence[set[int]], predecessors: _Edges) -> list[set[int]]:
    """Returns the groups in topological order; where several could come next, the one with the earliest layer does."""
    group_of = {position: index for index, group in enumerate(groups) for position in group}
    between = [
        {group_of[p] for position in group for p in predecessors[position]} - {index}
        for index, group in enumerate(groups)
    ]
    return [groups[index] for index in topological_order(between, lambda index: min(groups[index]))]
