"""Decides which nodes a pod may run on, and how well each node suits it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from costmodel.serving.extender.objective import SYSTEM_LABEL, PodObjective
from costmodel.serving.extender.predictions import Predicted
from costmodel.serving.extender.settings import Score, UnknownPolicy
from costmodel.units import format_us

__all__ = ["MAX_SCORE", "Node", "removed_nodes", "scores_of"]

# MaxExtenderPriority of k8s.io/kube-scheduler/extender/v1.
MAX_SCORE = 10


@dataclass(frozen=True, slots=True)
class Node:
    """A node of the cluster.

    Attributes:
        name: Name of the node.
        system: Name of the system that the node is, from its label; None without the label.
    """

    name: str
    system: str | None


def removed_nodes(
    nodes: Sequence[Node], predicted: Mapping[str, Predicted], objective: PodObjective, unknown: UnknownPolicy
) -> dict[str, str]:
    """Returns the reason for which a pod must not run on a node, by name of each node that is removed.

    Args:
        nodes: Nodes to decide on.
        predicted: Prediction for each system that a node is.
        objective: Model and latency objective of the pod.
        unknown: What happens to nodes without a prediction.
    """
    reasons = {}
    for node in nodes:
        reason = _reason(node, predicted, objective, unknown)
        if reason:
            reasons[node.name] = reason
    return reasons


def _reason(
    node: Node, predicted: Mapping[str, Predicted], objective: PodObjective, unknown: UnknownPolicy
) -> str | None:
    if node.system is None:
        return None if unknown == "keep" else f"the node has no label {SYSTEM_LABEL}"
    found = predicted[node.system]
    if found.latency_us is None:
        return None if unknown == "keep" else f"no prediction on {node.system}: {found.reason}"
    if objective.slo_us is None or found.latency_us <= objective.slo_us:
        return None
    return (
        f"predicted {objective.quantile} latency {format_us(found.latency_us)} on {node.system} exceeds the objective "
        f"of {format_us(objective.slo_us)}"
    )


def scores_of(nodes: Sequence[Node], predicted: Mapping[str, Predicted], by: Score) -> dict[str, int]:
    """Returns the score of each node by name, from 0 to `MAX_SCORE`.

    The best node has the highest score, a node with twice its latency or cost has half of it, rounded. A node without a
    prediction, or without a price where scores are computed from the cost, has the score 0.

    Args:
        nodes: Nodes to score.
        predicted: Prediction for each system that a node is.
        by: Quantity that scores are computed from.
    """
    values = {node.name: _value(predicted.get(node.system or ""), by) for node in nodes}
    lowest = min((value for value in values.values() if value is not None), default=0.0)
    return {name: _score(value, lowest) for name, value in values.items()}


def _value(predicted: Predicted | None, by: Score) -> float | None:
    if predicted is None:
        return None
    return predicted.latency_us if by == "latency" else predicted.usd_per_million


def _score(value: float | None, lowest: float) -> int:
    if value is None:
        return 0
    return MAX_SCORE if value <= lowest else round(MAX_SCORE * lowest / value)
