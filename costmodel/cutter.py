"""Where the layers of a model may be cut apart, and the sequences that lie between two cuts."""

import json
from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate

from costmodel.graph import Layer, LayerGraph
from costmodel.inseparable import inseparable
from costmodel.particular import must_be_fed
from costmodel.sequence import LayerSequence, build_sequence

__all__ = ["Cutter", "Window"]

# A run of units: the number of the first, and of the one behind the last.
Window = tuple[int, int]


class Cutter:
    """The layers of a model in execution order, as units: single layers, and those that can only run together.

    Attributes:
        units: How many there are.
    """

    def __init__(self, graph: LayerGraph) -> None:
        units = inseparable(graph)
        self.units = len(units)
        self._graph = graph
        self._layers = tuple(layer for unit in units for layer in unit)
        self._starts = [0, *accumulate(len(unit) for unit in units)]
        self._unit_of = [number for number, unit in enumerate(units) for _ in unit]
        self._producer = {
            name: position for position, layer in enumerate(self._layers) for name in layer.outputs if name
        }
        # A layer goes on with a run that begins behind the first of these positions, and not behind the second.
        self._fed, self._made = [-1] * len(self._layers), [-1] * len(self._layers)
        for position, layer in enumerate(self._layers):
            for slot, name in enumerate(layer.inputs):
                producer = self._producer.get(name, -1)
                self._made[position] = max(self._made[position], producer)
                if must_be_fed(layer.op_type, slot):
                    self._fed[position] = max(self._fed[position], producer)
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
        """Where the longest run ends that starts at a unit and has at most `granularity` layers, or one unit."""
        return max(first + 1, bisect_right(self._starts, self._starts[first] + granularity) - 1)

    def reach(self, first: int, limit: int) -> int:
        """Where the longest runnable run ends that starts at a unit and goes up to `limit`; shorter ones are runnable.

        Every layer behind the first unit has to read a layer of the run, and none an index or a shape of one. A layer
        that reads none is the start of another branch: its data input is missing from the run. An index or a shape
        that the run computes from what it is fed would be any number; fed itself, it is made to fit.
        """
        begin = self._starts[first]
        for unit in range(first + 1, limit):
            for position in range(self._starts[unit], self._starts[unit + 1]):
                if not self._fed[position] < begin <= self._made[position]:
                    return unit
        return limit

    def windows(self, granularity: int) -> Iterator[Window]:
        """Every runnable run of at most `granularity` layers, or of one unit, in order of where they start."""
        for first in range(self.units):
            for last in range(first + 1, self.reach(first, self.within(first, granularity)) + 1):
                yield first, last

    def layers(self, window: Window) -> tuple[Layer, ...]:
        """The layers of a window in execution order."""
        first, last = window
        return self._layers[self._starts[first] : self._starts[last]]

    def read_units(self, window: Window) -> set[int]:
        """The units that make what the layers of a window read, those inside it included."""
        names = (name for layer in self.layers(window) for name in layer.inputs)
        return {self._unit_of[self._producer[name]] for name in names if name in self._producer}

    def sequence(self, window: Window) -> LayerSequence:
        """The canonical sequence that a window is; windows that differ in names alone have one and the same."""
        written = self._written(window)
        if written not in self._sequences:
            layers, end = self.layers(window), self._starts[window[1]]
            outside = [name for layer in layers for name in layer.outputs if self._last_reader.get(name, -1) >= end]
            self._sequences[written] = build_sequence(layers, self._graph.types, self._graph.constants, outside)
        return self._sequences[written]

    def _written(self, window: Window) -> tuple[int, ...]:
        """A window in its own order and without names, made in a fraction of the time that its canonical form takes."""
        end = self._starts[window[1]]
        written: list[int] = []
        mentioned: dict[str, int] = {"": -1}
        for position in range(self._starts[window[0]], end):
            layer = self._layers[position]
            written.append(self._kind_of_layer[position])
            for name in (*layer.inputs, *layer.outputs):
                if name in mentioned:
                    written.append(mentioned[name])
                else:
                    written += (len(mentioned), self._value(name))
                    mentioned[name] = len(mentioned)
            written.extend(self._last_reader.get(name, -1) >= end for name in layer.outputs)
        return tuple(written)

    def _value(self, name: str) -> int:
        if name not in self._kind_of_value:
            constants = self._graph.constants
            kind = (self._graph.types[name], name in constants, repr(constants.get(name)))
            self._kind_of_value[name] = self._number(kind)
        return self._kind_of_value[name]

    def _number(self, kind: object) -> int:
        return self._numbers.setdefault(kind, len(self._numbers))


def _without_names(layer: Layer) -> tuple[object, ...]:
    attributes = json.dumps(layer.attributes, sort_keys=True)
    sizes = (len(layer.inputs), len(layer.outputs))
    return layer.op_type, layer.domain, layer.since, layer.captured, attributes, sizes
