"""Finds the order in which ONNX Runtime executes the layers of a graph."""

from costmodel.ir.graph import Layer, LayerGraph
from costmodel.ir.nchwc import BLOCKED_DOMAIN

__all__ = ["execution_order"]


def execution_order(graph: LayerGraph) -> tuple[Layer, ...]:
    """Returns the layers in the order in which ONNX Runtime executes them by default.

    The runtime walks back from the last layer, depth first, and takes the latest of several producers first: that which
    was added to the graph last. Fused layers were added after those of the file, blocked ones after these, and reorders
    to a plain layout at the end. The order decides how long values live where a model branches.
    """
    layers = sorted(graph.layers, key=_added)
    producer = {name: place for place, layer in enumerate(layers) for name in layer.outputs if name}
    read = [sorted({producer[name] for name in layer.inputs if name in producer}) for layer in layers]
    has_reader = {place for places in read for place in places}
    stack = [(place, False) for place in range(len(layers)) if place not in has_reader]
    visited: set[int] = set()
    order = []
    while stack:
        place, done = stack.pop()
        if done:
            order.append(layers[place])
        elif place not in visited:
            visited.add(place)
            stack.append((place, True))
            stack += [(before, False) for before in read[place] if before not in visited]
    return tuple(order)


def _added(layer: Layer) -> int:
    """Returns in which stage of its optimisations the runtime added a layer to the graph."""
    if layer.domain == BLOCKED_DOMAIN:
        return 3 if layer.op_type == "ReorderOutput" else 2
    return 1 if layer.domain else 0
