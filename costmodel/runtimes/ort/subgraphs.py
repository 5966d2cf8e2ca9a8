"""Replaces the bodies of If, Loop and Scan in a lowered model by their form in plain layout.

ONNX Runtime converts the convolutions of a body to the blocked layout of this host, as it does in the main graph. The
body is inside an attribute, where the canonical form cannot undo that. Levels below "all" leave it in plain layout.
"""

from collections.abc import Iterator

from onnx import AttributeProto, GraphProto, ModelProto, NodeProto

from costmodel.ir.nchwc import BLOCKED_DOMAIN

__all__ = ["has_blocked_body", "has_body", "with_bodies_of"]


def has_body(model: ModelProto) -> bool:
    """Returns whether a node of `model` has a subgraph."""
    return any(True for node in model.graph.node for _ in _bodies(node))


def has_blocked_body(model: ModelProto) -> bool:
    """Returns whether a subgraph of `model` has blocked layers."""
    return any(_is_blocked(body) for node in model.graph.node for body in _bodies(node))


def with_bodies_of(model: ModelProto, plain: ModelProto) -> None:
    """Replaces, in place, the nodes of `model` whose bodies have blocked layers by the same nodes of `plain`."""
    by_output = {node.output[0]: node for node in plain.graph.node}
    for node in model.graph.node:
        if any(_is_blocked(body) for body in _bodies(node)):
            node.CopyFrom(by_output[node.output[0]])


def _bodies(node: NodeProto) -> Iterator[GraphProto]:
    return (a.g for a in node.attribute if a.type == AttributeProto.GRAPH)


def _is_blocked(graph: GraphProto) -> bool:
    return any(node.domain == BLOCKED_DOMAIN or any(_is_blocked(body) for body in _bodies(node)) for node in graph.node)
