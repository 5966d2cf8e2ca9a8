"""Canonical order of layers, which depends only on the structure of their graph, not on names or the given order.

The method is colour refinement (Weisfeiler and Leman), which respects at which position a layer reads or produces a
value. Layers, and values that no layer produces, have colours (digests), which are refined until each colour encodes
everything upstream and downstream. If several layers still share a colour, they are taken to be interchangeable: one of
them is individualised (given a unique colour) and refinement continues.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from costmodel.ir.graph import Layer, TensorType
from costmodel.ir.topological_order import topological_order

__all__ = ["canonical_order"]

# Bounds the time for models with many interchangeable layers; layers beyond this limit keep their listed order.
_MAX_TIES = 64
# Refinement converged after two passes in every model measured so far. An adversarial graph can need as many passes as
# it has layers; beyond this limit, layers of equal colour keep their listed order.
_MAX_PASSES = 2 * (_MAX_TIES + 1)


def canonical_order(
    layers: Sequence[Layer],
    types: Mapping[str, TensorType],
    constants: Mapping[str, tuple[Any, ...] | None],
    outside: Collection[str],
) -> list[Layer]:
    """Returns `layers` in the canonical topological order.

    The time is proportional to the number of layers and of the values that they read, and to the number of refinement
    passes, which is at most `_MAX_PASSES`.

    Args:
        layers: At least one layer, topologically sorted.
        types: Type of every value that the layers read or write.
        constants: Data of each value known before the model runs, None for weights, as in `LayerGraph`.
        outside: Names of the produced values that something other than these layers reads.
    """
    if len(layers) == 1:
        return list(layers)
    colouring = _Colouring(layers, types, constants, outside)
    colouring.refine()
    for _ in range(_MAX_TIES):
        shared = [colour for colour, count in Counter(colouring.layers).items() if count > 1]
        if not shared or not colouring.can_refine:
            break
        colouring.individualize(min(shared))
        colouring.refine()
    return _by_colour(layers, colouring.layers)


def _digest(*parts: object) -> str:
    return hashlib.blake2b(repr(parts).encode(), digest_size=12).hexdigest()


class _Colouring:
    """Colours of the layers of a graph and of the values that it reads from outside.

    Attributes:
        layers: Colour of each layer, in the given order.
        leaves: Colour of each value that no layer produces, by name.
    """

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
                layer.num_captured,
                json.dumps(layer.attributes, sort_keys=True),
                [(types[name], name in outside) if name else None for name in layer.outputs],
            )
            for layer in layers
        ]

    @property
    def can_refine(self) -> bool:
        """Whether fewer than `_MAX_PASSES` refinement passes have been made."""
        return self._passes < _MAX_PASSES

    def refine(self) -> None:
        """Propagates colours downstream, upstream and to the leaves until no further colours become distinct."""
        previous = 0
        while (distinct := len(set(self.layers)) + len(set(self.leaves.values()))) > previous and self.can_refine:
            previous = distinct
            self._passes += 1
            for position in range(len(self.layers)):
                read = [self._colour_of(name) for name in self._graph[position].inputs]
                self.layers[position] = _digest(self.layers[position], read)
            for position in range(len(self.layers) - 1, -1, -1):
                reached = [self._reader_colours(name) for name in self._graph[position].outputs]
                self.layers[position] = _digest(self.layers[position], reached)
            self.leaves = {name: _digest(colour, self._reader_colours(name)) for name, colour in self.leaves.items()}

    def individualize(self, colour: str) -> None:
        """Gives the first layer whose colour is `colour` a colour of its own."""
        self.layers[self.layers.index(colour)] = _digest(colour, "singled out")

    def _colour_of(self, name: str) -> str:
        if name in self._producer:
            position, slot = self._producer[name]
            return f"{self.layers[position]}.{slot}"
        return self.leaves.get(name, "")

    def _reader_colours(self, name: str) -> list[tuple[str, int]]:
        return sorted((self.layers[position], slot) for position, slot in self._readers.get(name, ()))


def _by_colour(layers: Sequence[Layer], colours: Sequence[str]) -> list[Layer]:
    """Returns the layers in topological order; where several could come next, the one with the lowest colour does."""
    producer = {name: position for position, layer in enumerate(layers) for name in layer.outputs if name}
    predecessors = [{producer[name] for name in layer.inputs if name in producer} for layer in layers]
    return [layers[position] for position in topological_order(predecessors, colours.__getitem__)]
