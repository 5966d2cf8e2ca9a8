"""An order of layers that depends on the structure of their graph only: not on names, not on how it was listed.

Layers and the values that arrive from outside get colours, refined until each tells everything that is above and
below it (Weisfeiler and Leman's method, on a graph whose edges have positions). Where layers still share a colour,
one of them is given a colour of its own and the refinement goes on: swapping them would change nothing.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import Any

from costmodel.graph import Layer, TensorType

__all__ = ["canonical_order"]

# A model with more interchangeable layers than this would take long, and keeps them in the order it lists them in.
_MAX_TIES = 64
# Colours have spread after two passes in every model measured so far. A graph can be made in which they need as many
# passes as it has layers; it too keeps the order that it lists its layers in, as far as colours leave that open.
_MAX_PASSES = 2 * (_MAX_TIES + 1)


def canonical_order(
    layers: Sequence[Layer],
    types: Mapping[str, TensorType],
    constants: Mapping[str, tuple[Any, ...] | None],
    outside: Collection[str],
) -> list[Layer]:
    """Topological order of `layers`, which are given in a valid one.

    Takes time that grows with the number of layers and of values they read, times at most `_MAX_PASSES`.

    Args:
        layers: At least one layer.
        types: Type of every value that they touch.
        constants: Values known before the model runs, as in `LayerGraph`.
        outside: Names of the values that are read elsewhere.
    """
    if len(layers) == 1:
        return list(layers)
    colouring = _Colouring(layers, types, constants, outside)
    colouring.refine()
    for _ in range(_MAX_TIES):
        shared = [colour for colour, count in Counter(colouring.layers).items() if count > 1]
        if not shared or not colouring.may_go_on:
            break
        colouring.single_out(min(shared))
        colouring.refine()
    return _by_colour(layers, colouring.layers)


def _digest(*parts: object) -> str:
    return hashlib.blake2b(repr(parts).encode(), digest_size=12).hexdigest()


class _Colouring:
    """Colours of layers, by position, and of the values that no layer makes, by name."""

    def __init__(
        self,
        layers: Sequence[Layer],
        types: Mapping[str, TensorType],
        constants: Mapping[str, tuple[Any, ...] | None],
        outside: Collection[str],
    ) -> None:
        self._graph = layers
        self._passes = 0
        self._producer = {
            name: (position, slot)
            for position, layer in enumerate(layers)
            for slot, name in enumerate(layer.outputs)
            if name
        }
        self._readers: dict[str, list[tuple[int, int]]] = {}
        for position, layer in enumerate(layers):
            for slot, name in enumerate(layer.inputs):
                self._readers.setdefault(name, []).append((position, slot))
        self._readers.pop("", None)
        self.leaves = {
            name: _digest(types[name], name in constants, constants.get(name))
            for name in self._readers
            if name not in self._producer
        }
        self.layers = [
            _digest(
                layer.op_type,
                layer.domain,
                layer.since,
                layer.captured,
                json.dumps(layer.attributes, sort_keys=True),
                [(types[name], name in outside) if name else None for name in layer.outputs],
            )
            for layer in layers
        ]

    @property
    def may_go_on(self) -> bool:
        """Whether colours may spread once more."""
        return self._passes < _MAX_PASSES

    def refine(self) -> None:
        """Let colours spread down, up and to the leaves until no two layers or leaves are told apart any more."""
        distinct = 0
        while (found := len(set(self.layers)) + len(set(self.leaves.values()))) > distinct and self.may_go_on:
            distinct = found
            self._passes += 1
            for position in range(len(self.layers)):
                read = [self._colour_of(name) for name in self._graph[position].inputs]
                self.layers[position] = _digest(self.layers[position], read)
            for position in range(len(self.layers) - 1, -1, -1):
                reached = [self._reader_colours(name) for name in self._graph[position].outputs]
                self.layers[position] = _digest(self.layers[position], reached)
            self.leaves = {name: _digest(colour, self._reader_colours(name)) for name, colour in self.leaves.items()}

    def single_out(self, colour: str) -> None:
        """Give one of the layers of this colour a colour of its own."""
        self.layers[self.layers.index(colour)] = _digest(colour, "singled out")

    def _colour_of(self, name: str) -> str:
        if name in self._producer:
            position, slot = self._producer[name]
            return f"{self.layers[position]}.{slot}"
        return self.leaves.get(name, "")

    def _reader_colours(self, name: str) -> list[tuple[str, int]]:
        return sorted((self.layers[position], slot) for position, slot in self._readers.get(name, ()))


def _by_colour(layers: Sequence[Layer], colours: Sequence[str]) -> list[Layer]:
    """Topological order in which the lowest colour goes first among the layers that are ready."""
    producer = {name: position for position, layer in enumerate(layers) for name in layer.outputs if name}
    needs = [{producer[name] for name in layer.inputs if name in producer} for layer in layers]
    followers: list[list[int]] = [[] for _ in layers]
    for position, needed in enumerate(needs):
        for before in needed:
            followers[before].append(position)
    waiting = [len(needed) for needed in needs]
    ready = [(colours[position], position) for position, count in enumerate(waiting) if count == 0]
    heapify(ready)
    order = []
    while ready:
        _, position = heappop(ready)
        order.append(layers[position])
        for follower in followers[position]:
            waiting[follower] -= 1
            if waiting[follower] == 0:
                heappush(ready, (colours[follower], follower))
    return order
