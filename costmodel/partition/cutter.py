"""Finds where the layers of a model may be cut, and makes the sequences between two cuts."""

import json
from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate

from costmodel.ir.graph import Layer, LayerGraph
from costmodel.ir.sequence import LayerSequence, build_sequence
from costmodel.partition.atomic_groups import find_atomic_groups
from costmodel.synthetic.argument_constraints import is_constrained

__all__ = ["Cutter", "Window"]

# A run of consecutive units: index of the first unit, and index after the last one.
Window = tuple[int, int]


class Cutter:
    """The layers of a model in execution order, as units that are never cut: single layers and atomic groups.

    Attributes:
        graph: Layers of the model in execution order.
        units: Number of units in the model.
    """

    def __init__(self, graph: LayerGraph) -> None:
        groups = find_atomic_groups(graph)
        self.units = len(groups)
        self.graph = graph
        self._layers = tuple(layer for group in groups for layer in group)
        self._starts = [0, *accumulate(len(group) for group in groups)]
        self._unit_of = [unit for unit, group in enumerate(groups) for _ in group]
        self._producer = {
            name: position for position, layer in enumerate(self._layers) for name in layer.outputs if name
        }
        # For each layer, the last position that produces an argument which must be fed (see `is_constrained`), and the
        # last that produces any argument. The layer can extend a run that begins after the former position and not
        # after the latter.
        self._last_fed, self._last_made = [-1] * len(self._layers), [-1] * len(self._layers)
        for position, layer in enumerate(self._layers):
            for slot, name in enumerate(layer.inputs):
                producer = self._producer.get(name, -1)
                self._last_made[position] = max(self._last_made[position], producer)
                if is_constrained(layer.op_type, slot):
                    self._last_fed[position] = max(self._last_fed[position], producer)
        self._last_reader: dict[str, int] = {}
        for position, layer in enumerate(self._layers):
            for name in layer.inputs:
                self._last_reader[name] = position
        for name in graph.outputs:
            self._last_reader[name] = len(self._layers)
        self._numbers: dict[object, int] = {}
        self._kind_of_layer = [self._number(_without_names(layer)) for layer in self._layers]
        self._kind_of_value: dict[str, int] = {}
        self._sequences: dict[tuple[int, ...], LayerSequence] = {}

    def within(self, first: int, granularity: int) -> int:
        """Returns the end of the longest run of units that starts at `first` and has at most `granularity` layers.

        The end is the index of the unit (single layer or atomic group) after the run. A run has at least one unit, even
        if that is an atomic group of more layers.
        """
        return max(first + 1, bisect_right(self._starts, self._starts[first] + granularity) - 1)

    def reach(self, first: int, limit: int) -> int:
        """Returns the end, at most `limit`, of the longest run of units from `first` that is runnable by itself.

        A unit is a single layer or an atomic group; the end is the index of the unit after the run. Every shorter run
        from `first` is runnable too. A run is runnable if every layer after its first unit reads an output of the run,
        but takes no index or shape from it. A layer that reads no output of the run starts another branch, whose data
        input is missing from the run. An index or shape that the run computes from synthetic inputs would be arbitrary;
        as an input of the run it gets suitable values.
        """
        begin = self._starts[first]
        for unit in range(first + 1, limit):
            for position in range(self._starts[unit], self._starts[unit + 1]):
                if not self._last_fed[position] < begin <= self._last_made[position]:
                    return unit
        return limit

    def windows(self, granularity: int) -> Iterator[Window]:
        """Yields every runnable window of at most `granularity` layers or of one atomic group, by first layer."""
        for first in range(self.units):
            for last in range(first + 1, self.reach(first, self.within(first, granularity)) + 1):
                yield first, last

    def layers(self, window: Window) -> tuple[Layer, ...]:
        """Returns the layers of a window in execution order."""
        first, last = window
        return self._layers[self._starts[first] : self._starts[last]]

    def read_units(self, window: Window) -> set[int]:
        """Returns the units (single layers or atomic groups) that produce the values which the layers of a window read.

        Units of the window itself are included.
        """
        names = (name for layer in self.layers(window) for name in layer.inputs)
        return {self._unit_of[self._producer[name]] for name in names if name in self._producer}

    def sequence(self, window: Window) -> LayerSequence:
        """Returns the canonical sequence of a window; windows that differ only in names get the same object."""
        key = self._structure(window)
        if key not in self._sequences:
            layers, end = self.layers(window), self._starts[window[1]]
            outside = [name for layer in layers for name in layer.outputs if self._last_reader.get(name, -1) >= end]
            self._sequences[key] = build_sequence(layers, self.graph.types, self.graph.constants, outside)
        return self._sequences[key]

    def _structure(self, window: Window) -> tuple[int, ...]:
        """Returns a key of the layers of a window, without names; much cheaper to compute than their canonical form.

        The key depends on the order of the layers, so windows with the same canonical form may have different keys.
        """
        end = self._starts[window[1]]
        encoded: list[int] = []
        mentioned: dict[str, int] = {"": -1}
        for position in range(self._starts[window[0]], end):
            layer = self._layers[position]
            encoded.append(self._kind_of_layer[position])
            for name in (*layer.inputs, *layer.outputs):
                if name in mentioned:
                    encoded.append(mentioned[name])
                else:
                    encoded += (len(mentioned), self._value_number(name))
                    mentioned[name] = len(mentioned)
            encoded.extend(self._last_reader.get(name, -1) >= end for name in layer.outputs)
        return tuple(encoded)

    def _value_number(self, name: str) -> int:
        """Returns a number for the value `name`; values of equal type and equal known data have the same number."""
        if name not in self._kind_of_value:
            constants = self.graph.constants
            kind = (self.graph.types[name], name in constants, repr(constants.get(name)))
            self._kind_of_value[name] = self._number(kind)
        return self._kind_of_value[name]

    def _number(self, kind: object) -> int:
        """Returns a number that stands for an object in keys: the same for equal objects, the next for a new one."""
        return self._numbers.setdefault(kind, len(self._numbers))


def _without_names(layer: Layer) -> tuple[object, ...]:
    """Returns what identifies the work of a layer without its name and the names of the values that it uses."""
    attributes = json.dumps(layer.attributes, sort_keys=True)
    sizes = (len(layer.inputs), len(layer.outputs))
    return layer.op_type, layer.domain, layer.since, layer.num_captured, attributes, sizes
