"""Replaces the bodies of If, Loop and Scan in a lowered model by their form in plain layout.

ONNX Runtime converts the convolutions of a body to the blocked layout of this host, as it does in the main graph. The
body is inside an attribute, where the canonical form cannot undo that. At optimisation levels below "all", ONNX Runtime
leaves the body in plain layout.
"""

from onnx import GraphProto, ModelProto, NodeProto

from costmodel.ir.nchwc import BLOCKED_DOMAIN
from costmodel.ir.protobuf import messages

__all__ = ["has_blocked_body", "has_body", "with_bodies_of"]


def has_body(model: ModelProto) -> bool:
    """Returns whether a node of `model`, or of one of its local functions, has a subgraph."""
    return any(next(messages(part, GraphProto), None) is not None for part in (model.graph, *model.functions))


def has_blocked_body(model: ModelProto) -> bool:
    """Returns whether a subgraph of `model` has blocked layers."""
    return any(map(_has_blocked_body, model.graph.node))


def with_bodies_of(model: ModelProto, plain: ModelProto) -> None:
    """Replaces, in place, the nodes of `model` whose bodies have blocked layers by the same nodes of `plain`.

    Args:
        model: Lowered model.
        plain: The same model, lowered at a level without blocked layouts.
    """
    by_output = {node.output[0]: node for node in plain.graph.node}
    for node in model.graph.node:
        if _has_blocked_body(node):
            node.CopyFrom(by_output[node.output[0]])


def _has_blocked_body(node: NodeProto) -> bool:
    return any(inner.domain == BLOCKED_DOMAIN for inner in messages(node, NodeProto))
