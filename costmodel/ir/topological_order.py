"""Sorts items topologically; where several items could come next, a sort key decides between them."""

from collections.abc import Callable, Iterable, Sequence
from graphlib import TopologicalSorter
from heapq import heapify, heappop, heappush
from typing import Any

__all__ = ["topological_order"]


def topological_order(predecessors: Sequence[Iterable[int]], key: Callable[[int], Any]) -> list[int]:
    """Returns the positions of all items in topological order; where several could come next, the lowest key does.

    Args:
        predecessors: For each item, the positions of the items that must come before it.
        key: Returns the sort key of the item at a position; items with equal keys keep the order of their positions.

    Raises:
        graphlib.CycleError: There is no topological order, because items precede each other in a cycle.
    """
    sorter = TopologicalSorter(dict(enumerate(predecessors)))
    sorter.prepare()
    ready = [(key(position), position) for position in sorter.get_ready()]
    heapify(ready)
    order = []
    while ready:
        _, position = heappop(ready)
        order.append(position)
        sorter.done(position)
        for follower in sorter.get_ready():
            heappush(ready, (key(follower), follower))
    return order
