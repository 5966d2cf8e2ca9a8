"""Sorts the nodes of a graph depth first, as ONNX Runtime does."""

from collections.abc import Iterable, Sequence

__all__ = ["depth_first"]


def depth_first(nodes: Sequence[tuple[Iterable[str], Iterable[str]]], added: Sequence[int]) -> list[int]:
    """Returns the places of nodes depth first from the last ones; of several producers, that added last comes first.

    Args:
        nodes: Names of the values that each node reads, and of those that it produces; "" for an absent one.
        added: Places of the nodes, in the order in which they were added to the graph.
    """
    rank = {place: number for number, place in enumerate(added)}
    producer = {name: place for place, (_, outputs) in enumerate(nodes) for name in outputs if name}
    read = [
        sorted({producer[name] for name in inputs if name in producer}, key=rank.__getitem__) for inputs, _ in nodes
    ]
    has_reader = {place for places in read for place in places}
    stack = [(place, False) for place in added if place not in has_reader]
    visited: set[int] = set()
    order = []
    while stack:
        place, done = stack.pop()
        if done:
            order.append(place)
        elif place not in visited:
            visited.add(place)
            stack.append((place, True))
            stack += [(before, False) for before in read[place] if before not in visited]
    return order
