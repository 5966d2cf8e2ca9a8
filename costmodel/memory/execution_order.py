"""Finds the order in which ONNX Runtime executes the layers of a graph."""

from costmodel.ir.graph import Layer, LayerGraph

__all__ = ["execution_order"]


def execution_order(graph: LayerGraph) -> tuple[Layer, ...]:
    """Returns the layers in the order in which ONNX Runtime executes them by default.

    The runtime walks back from the last layer, depth first, and takes the latest of several producers first. The order
    decides how long values live where a model branches.
    """
    producer = {name: place for place, layer in enumerate(graph.layers) for name in layer.outputs if name}
    read = [sorted({producer[name] for name in layer.inputs if name in producer}) for layer in graph.layers]
    has_reader = {place for places in read for place in places}
    stack = [(place, False) for place in range(len(graph.layers)) if place not in has_reader]
    visited: set[int] = set()
    order = []
    while stack:
        place, done = stack.pop()
        if done:
            order.append(graph.layers[place])
        elif place not in visited:
            visited.add(place)
            stack.append((place, True))
            stack += [(before, False) for before in read[place] if before not in visited]
    return tuple(order)
