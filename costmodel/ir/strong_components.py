"""Strongly connected components of a graph."""

from collections.abc import Mapping

__all__ = ["strong_components"]

Edges = Mapping[int, set[int]]


def strong_components(forward: Edges, backward: Edges) -> list[set[int]]:
    """Returns the strongly connected components of a graph, in time linear in its edges (Kosaraju's algorithm).

    Args:
        forward: Successors of each node.
        backward: Predecessors of each node.
    """
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


def _postorder(edges: Edges) -> list[int]:
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
