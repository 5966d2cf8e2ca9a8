"""Schemas of the requests and answers of scheduler extenders, from Go's package k8s.io/kube-scheduler/extender/v1.

The Go types have no JSON tags, so that the scheduler writes the names of the fields: Pod, Nodes, NodeNames. Pods and
nodes are objects of the core API, whose names do have tags.
"""

from collections.abc import Sequence
from typing import Any

import jsonschema
from starlette.testclient import TestClient

__all__ = ["ANNOTATIONS", "LABEL", "args", "filtered", "node", "pod", "scores"]

ANNOTATIONS = "costmodel.dev"
LABEL = "costmodel.dev/system"

_FAILED_NODES = {"type": ["object", "null"], "additionalProperties": {"type": "string"}}
_NODE = {
    "type": "object",
    "required": ["metadata"],
    "properties": {"metadata": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}},
}
# ExtenderFilterResult: Nodes *v1.NodeList, NodeNames *[]string, FailedNodes and FailedAndUnresolvableNodes
# map[string]string, Error string.
FILTER_RESULT = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "Nodes": {
            "type": ["object", "null"],
            "required": ["items"],
            "properties": {"items": {"type": ["array", "null"], "items": _NODE}},
        },
        "NodeNames": {"type": ["array", "null"], "items": {"type": "string"}},
        "FailedNodes": _FAILED_NODES,
        "FailedAndUnresolvableNodes": _FAILED_NODES,
        "Error": {"type": "string"},
    },
}
# HostPriorityList: []HostPriority{Host string, Score int64}, from MinExtenderPriority to MaxExtenderPriority.
HOST_PRIORITIES = {
    "type": "array",
    "items": {
        "type": "object",
        "additionalProperties": False,
        "required": ["Host", "Score"],
        "properties": {"Host": {"type": "string"}, "Score": {"type": "integer", "minimum": 0, "maximum": 10}},
    },
}


def pod(**annotations: str) -> dict[str, Any]:
    """Returns a pod as the scheduler sends it; names of annotations have _ for -."""
    return {
        "metadata": {
            "name": "detector-7d9c",
            "namespace": "vision",
            "uid": "0f2d9a0e-3c75-4b6f-9a52-0f6f6f0f2a11",
            "creationTimestamp": "2026-11-24T03:00:00Z",
            "annotations": {f"{ANNOTATIONS}/{name.replace('_', '-')}": value for name, value in annotations.items()},
        },
        "spec": {"containers": [{"name": "server", "image": "detector:1", "resources": {}}], "nodeName": ""},
        "status": {},
    }


def node(name: str, system: str | None = None) -> dict[str, Any]:
    """Returns a node as the scheduler sends it, with fields that an extender does not know."""
    labels = {"kubernetes.io/hostname": name} | ({} if system is None else {LABEL: system})
    return {
        "metadata": {"name": name, "uid": f"uid-{name}", "creationTimestamp": None, "labels": labels},
        "spec": {"podCIDR": "10.0.0.0/24"},
        "status": {"capacity": {"cpu": "2", "memory": "8Gi"}, "images": [{"names": ["a"], "sizeBytes": 1 << 40}]},
    }


def args(pod: dict[str, Any], nodes: Sequence[dict[str, Any]] | Sequence[str]) -> dict[str, Any]:
    """Returns ExtenderArgs: with the names of nodes if the extender is `nodeCacheCapable`, else with whole nodes."""
    names = [one for one in nodes if isinstance(one, str)]
    if names:
        return {"Pod": pod, "Nodes": None, "NodeNames": names}
    return {"Pod": pod, "Nodes": {"metadata": {}, "items": list(nodes)}, "NodeNames": None}


def filtered(extender: TestClient, sent: dict[str, Any]) -> tuple[list[str], dict[str, str]]:
    """Returns what the scheduler makes of the answer to a filter request, with the checks that it makes.

    Returns:
        Names of the nodes that are kept, and the reason for each of the others.

    Raises:
        RuntimeError: The answer is an error.
    """
    answer = extender.post("/filter", json=sent)
    assert answer.status_code == 200
    result = answer.json()
    jsonschema.validate(result, FILTER_RESULT)
    if result["Error"]:
        raise RuntimeError(result["Error"])
    whole = {one["metadata"]["name"]: one for one in (sent["Nodes"] or {"items": ()})["items"] or ()}
    if sent["NodeNames"] is not None:
        kept = result["NodeNames"]
        assert set(kept) <= set(sent["NodeNames"])
    else:
        assert result["NodeNames"] is None
        kept = [one["metadata"]["name"] for one in result["Nodes"]["items"]]
        assert result["Nodes"]["items"] == [whole[name] for name in kept]
    assert result["FailedAndUnresolvableNodes"] == result["FailedNodes"]
    asked = sent["NodeNames"] if sent["NodeNames"] is not None else list(whole)
    assert sorted([*kept, *result["FailedNodes"]]) == sorted(asked)
    return kept, result["FailedNodes"]


def scores(extender: TestClient, sent: dict[str, Any]) -> dict[str, int]:
    """Returns the score of each node by name, as the scheduler reads them.

    Raises:
        RuntimeError: The answer is not successful.
    """
    answer = extender.post("/prioritize", json=sent)
    if answer.status_code != 200:
        raise RuntimeError(answer.text)
    jsonschema.validate(answer.json(), HOST_PRIORITIES)
    return {one["Host"]: one["Score"] for one in answer.json()}
