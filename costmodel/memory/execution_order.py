"""Finds the order in which ONNX Runtime executes the layers of a graph."""

from collections.abc import Sequence

from costmodel.ir.graph import Layer, LayerGraph
from costmodel.ir.nchwc import BLOCKED_DOMAIN

__all__ = ["execution_order"]


def execution_order(graph: LayerGraph) -> tuple[Layer, ...]:
    """Returns the layers in the order in which ONNX Runtime executes them by default.

    The runtime walks back from the last layer, depth first, and takes the latest of several producers first: that which
    was added to the graph last. Fused layers were added after those of the file, blocked ones after these, and reorders
    to a plain layout at the end; each kind was added in the order in which the graph was executed until then. The order
    decides how long values live where a model branches.
    """
    places = range(len(graph.layers))
    stage = [_stage(layer) for layer in graph.layers]
    before = _depth_first(graph.layers, sorted(places, key=lambda place: stage[place] == 1))
    until_then = {place: number for number, place in enumerate(before)}
    added = sorted(places, key=lambda place: (stage[place], until_then.get(place, place) if stage[place] else place))
    return tuple(graph.layers[place] for place in _depth_first(graph.layers, added))


def _stage(layer: Layer) -> int:
    """Returns in which stage of its optimisations the runtime added a layer to the graph; 0 for those of the file.

    The graph does not say it; most fused layers, and few of a file, are of another domain than ONNX's own.
    """
    if layer.domain == BLOCKED_DOMAIN:
        return 3 if layer.op_type == "ReorderOutput" else 2
    return 1 if layer.domain else 0


def _depth_first(layers: Sequence[Layer], added: Sequence[int]) -> list[int]:
    """Returns the places of layers depth first from the last ones; of several producers, that added last is first.

    Args:
        layers: Layers of a graph.
        added: Their places, in the order in which they were added to the graph.
    """
    rank = {place: number for number, place in enumerate(added)}
    producer = {name: place for place, layer in enumerate(layers) for name in layer.outputs if name}
    made = [{producer[name] for name in layer.inputs if name in producer} for layer in layers]
    read = [sorted(places, key=rank.__getitem__) for places in made]
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
