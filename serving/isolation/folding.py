"""Refuses models for which constant folding (computing what depends on constants only) could run without end."""

from collections.abc import Iterable

from onnx import AttributeProto, GraphProto, ModelProto, NodeProto

from costmodel.errors import ModelReadError
from costmodel.ir.attributes import captured_names

__all__ = ["check_folding"]

# Operators whose number of iterations depends on an input.
_LOOPS = frozenset({"Loop", "Scan", "SequenceMap"})


def check_folding(name: str, model: ModelProto) -> None:
    """Refuses a model with a loop all of whose inputs are constants.

    While lowering a model, the optimiser of the runtime evaluates all nodes that depend on constants only, even a loop
    of 2**62 iterations. No model from an exporter is refused, because exporters write no loops whose results are
    constant.

    Args:
        name: Name of the model, for messages.
        model: The model; a node that calls a local function with a loop in it counts as a loop.

    Raises:
        ModelReadError: The model has such a loop.
    """
    looping = {function.name for function in model.functions if any(map(_has_loop, function.node))}
    _check(name, model.graph, frozenset(), looping)


def _check(name: str, graph: GraphProto, outer: frozenset[str], looping: Iterable[str]) -> None:
    """Refuses a graph, or one of its subgraphs, with a loop all of whose inputs are constants.

    Args:
        name: Name of the model, for messages.
        graph: Main graph of the model, or a subgraph.
        outer: Names of the constants of the enclosing graphs.
        looping: Names of the local functions of the model that contain loops.

    Raises:
        ModelReadError: The graph has such a loop.
    """
    constants = set(outer) | {tensor.name for tensor in graph.initializer}
    constants |= {sparse.values.name for sparse in graph.sparse_initializer}
    constants -= {port.name for port in graph.input}
    for node in graph.node:
        read = [*filter(None, node.input), *captured_names(node)]
        is_constant = constants.issuperset(read)
        if is_constant and (node.op_type in looping or _has_loop(node)):
            raise ModelReadError(
                f"{name} has a loop over constants ({node.op_type}), which would run while the model is read: replace "
                "it by its result and export again"
            )
        if is_constant:
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
