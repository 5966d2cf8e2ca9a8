"""Work that the runtime's optimiser would do while it lowers a model, and that has no bound."""

from collections.abc import Iterable

from onnx import AttributeProto, GraphProto, ModelProto, NodeProto

from costmodel.attributes import captured_names
from costmodel.errors import ModelReadError

__all__ = ["check_folding"]

# Operators whose bodies run as often as an input says.
_LOOPS = frozenset({"Loop", "Scan", "SequenceMap"})


def check_folding(name: str, model: ModelProto) -> None:
    """Refuse a model with a loop over constants.

    An optimiser evaluates what depends on constants only, a loop of 2**62 rounds included. No exporter writes a loop
    whose result is known beforehand.

    Args:
        name: What the model is called.
        model: The model; functions of its own count as loops if they hold one.

    Raises:
        ModelReadError: It has such a loop.
    """
    looping = {function.name for function in model.functions if any(map(_has_loop, function.node))}
    _check(name, model.graph, frozenset(), looping)


def _check(name: str, graph: GraphProto, outer: frozenset[str], looping: Iterable[str]) -> None:
    """Look at a graph whose constants from outside are `outer`."""
    constants = set(outer) | {tensor.name for tensor in graph.initializer}
    constants |= {sparse.values.name for sparse in graph.sparse_initializer}
    constants -= {port.name for port in graph.input}
    for node in graph.node:
        read = [*filter(None, node.input), *captured_names(node)]
        known = constants.issuperset(read)
        if known and (node.op_type in looping or _has_loop(node)):
            raise ModelReadError(
                f"{name} has a loop over constants ({node.op_type}), which would run while the model is read: replace "
                "it by its result and export again"
            )
        if known:
            constants.update(node.output)
        for body in _bodies(node):
            _check(name, body, frozenset(constants), looping)


def _has_loop(node: NodeProto) -> bool:
    return node.op_type in _LOOPS or any(_has_loop(inner) for body in _bodies(node) for inner in body.node)


def _bodies(node: NodeProto) -> Iterable[GraphProto]:
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            yield attribute.g
        yield from attribute.graphs
