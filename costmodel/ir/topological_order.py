"""Topological order with a rule for the positions that are ready at the same time."""

from collections.abc import Callable, Iterable, Sequence
from graphlib import TopologicalSorter
from heapq import heapify, heappop, heappush
from typing import Any

__all__ = ["topological_order"]


def topological_order(predecessors: Sequence[Iterable[int]], key: Callable[[int], Any]) -> list[int]:
    """Returns all positions in topological order; of those that are ready, the one with the lowest key comes first.

    Args:
        predecessors: Positions that come before each position.
        key: Sort key of a position; positions with equal keys come in their own order.

    Raises:
        graphlib.CycleError: There is no such order.
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
