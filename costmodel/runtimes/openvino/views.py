"""Gives each reader of a transposition that OpenVINO does not execute its own copy of it.

OpenVINO reads the same memory in another layout where it can: the executed graph has a reorder that moves nothing in
the place of the transposition. If several layers read the result, each of them does so by itself.
"""

from collections.abc import Sequence
from dataclasses import replace

from costmodel.ir.graph import Layer, LayerGraph
from costmodel.runtimes.openvino.executed import Primitive, is_view

__all__ = ["with_own_views"]


def with_own_views(graph: LayerGraph, primitives: Sequence[Primitive]) -> LayerGraph:
    """Returns the model with a copy of such a transposition for each layer that reads it.

    Args:
        graph: The model that was compiled, with the names of its nodes as names of layers.
        primitives: The executed graph.
    """
    executed = {name: one for one in primitives for name in one.operators}
    readers: dict[str, list[Layer]] = {}
    for layer in graph.layers:
        for name in layer.inputs:
            readers.setdefault(name, []).append(layer)

    def reads_a_view(layer: Layer) -> bool:
        primitive = executed.get(layer.name)
        return primitive is not None and any(is_view(primitives[source]) for source, _ in primitive.inputs)

    types, layers = dict(graph.types), list[Layer]()
    copied: dict[str, Layer] = {}
    for layer in graph.layers:
        result = layer.outputs[0]
        if (
            layer.op_type == "Transpose"
            and layer.name not in executed
            and result not in graph.outputs
            and len(readers.get(result, [])) > 1
            and all(map(reads_a_view, readers[result]))
        ):
            copied[result] = layer
            continue
        inputs = list(layer.inputs)
        for name in dict.fromkeys(n for n in inputs if n in copied):
            own = f"{name}/{layer.name}"
            types[own] = types[name]
            layers.append(replace(copied[name], name=f"{copied[name].name}/{layer.name}", outputs=(own,)))
            inputs = [own if n == name else n for n in inputs]
        layers.append(replace(layer, inputs=tuple(inputs)))
    return replace(graph, layers=tuple(layers), types=types)
