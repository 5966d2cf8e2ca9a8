"""Finds the order in which ONNX Runtime added the layers of a graph to it, and the order in which it executes them."""

from collections.abc import Mapping, Sequence

from costmodel.ir.depth_first import depth_first
from costmodel.ir.graph import FUSED_PRODUCT, Layer, LayerGraph
from costmodel.ir.nchwc import BLOCKED_DOMAIN

__all__ = ["execution_order", "order_of_addition"]

_NORMALISATIONS = ("LayerNormalization", "SkipLayerNormalization")
_SUMS = ("Add", "SkipLayerNormalization")


def execution_order(graph: LayerGraph) -> tuple[Layer, ...]:
    """Returns the layers in the order in which ONNX Runtime executes them by default.

    The runtime walks back from the last layer, depth first, and takes the latest of several producers first: that which
    was added to the graph last. The order decides how long values live where a model branches.
    """
    return tuple(graph.layers[place] for place in _depth_first(graph, _places_by_addition(graph)))


def order_of_addition(graph: LayerGraph) -> tuple[Layer, ...]:
    """Returns the layers in the order in which they were added to the graph, which is that in which weights are packed.

    Fused layers were added after those of the file, blocked ones after these, and reorders to a plain layout at the
    end; each kind was added in the order in which the graph was executed until then.
    """
    return tuple(graph.layers[place] for place in _places_by_addition(graph))


def _places_by_addition(graph: LayerGraph) -> list[int]:
    places = range(len(graph.layers))
    attention = _attention_products(graph)
    stage = [_stage(layer, late=place in attention) for place, layer in enumerate(graph.layers)]
    before = _depth_first(graph, sorted(places, key=lambda place: stage[place] in (1, 2)))
    until_then = {place: number for number, place in enumerate(before)}
    return sorted(places, key=lambda place: (stage[place], until_then.get(place, place) if stage[place] else place))


def _stage(layer: Layer, *, late: bool) -> int:
    """Returns in which stage of its optimisations the runtime added a layer to the graph; 0 for those of the file.

    The graph does not say it; most fused layers, and few of a file, are of another domain than ONNX's own.
    """
    if layer.domain == BLOCKED_DOMAIN:
        return 4 if layer.op_type == "ReorderOutput" else 3
    if late:
        return 2
    return 1 if layer.domain or FUSED_PRODUCT in layer.name else 0


def _attention_products(graph: LayerGraph) -> set[int]:
    """Returns the places of the products of attention that the runtime fuses with their biases later than others.

    It keeps them for a fusion of the whole attention: the three that read what a normalisation makes, and the one whose
    result is added to that, as in BERT, whose normalisations follow the sums.
    """
    readers: dict[str, list[int]] = {}
    producer: dict[str, int] = {}
    for place, layer in enumerate(graph.layers):
        for name in filter(None, layer.inputs):
            readers.setdefault(name, []).append(place)
        for name in filter(None, layer.outputs):
            producer[name] = place
    found = set()
    for layer in graph.layers:
        if layer.op_type not in _NORMALISATIONS:
            continue
        products, sums = [], []
        own = readers.get(layer.outputs[0], [])
        for place in own:
            reader = graph.layers[place]
            if reader.op_type in _SUMS:
                sums.append(reader)
            elif reader.op_type == "Reshape":
                below = readers.get(reader.outputs[0], [])
                products += below if len(below) == 1 and FUSED_PRODUCT in graph.layers[below[0]].name else []
        if (len(products), len(sums), len(own)) == (3, 1, 4):
            found.update(products)
            found.update(_product_before(sums[0], graph, producer))
    return found


def _product_before(added: Layer, graph: LayerGraph, producer: Mapping[str, int]) -> set[int]:
    """Returns the places of the fused products whose reshaped results a layer adds."""
    made = (graph.layers[producer[name]] for name in added.inputs if name in producer)
    read = (layer.inputs[0] for layer in made if layer.op_type == "Reshape" and layer.inputs)
    places = {producer[name] for name in read if name in producer}
    return {place for place in places if FUSED_PRODUCT in graph.layers[place].name}


def _depth_first(graph: LayerGraph, added: Sequence[int]) -> list[int]:
    """Returns the places of the layers depth first, where `added` has them in the order in which they were added."""
    return depth_first([(layer.inputs, layer.outputs) for layer in graph.layers], added)
