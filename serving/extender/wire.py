"""The JSON contract of scheduler extenders: the types of Go's package k8s.io/kube-scheduler/extender/v1.

The published types have no JSON tags: kube-scheduler writes the names of Go's fields ("NodeNames"), and reads them in
any capitalisation, as Go does. Older schedulers write them in lower case ("nodenames"). Requests are therefore read in
any capitalisation, and answers use the published names.
"""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

__all__ = ["ExtenderArgs", "ExtenderFilterResult", "HostPriority", "NodeList"]


class _Metadata(BaseModel):
    name: str = Field(default="", max_length=253)
    namespace: str = Field(default="", max_length=253)
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class _Named(BaseModel):
    metadata: _Metadata


class Pod(BaseModel):
    """The pod to schedule; only its metadata is read."""

    metadata: _Metadata = Field(default_factory=_Metadata)

    @property
    def annotations(self) -> Mapping[str, str]:
        """Annotations of the pod."""
        return self.metadata.annotations or {}

    @property
    def label(self) -> str:
        """Namespace and name of the pod, for the log."""
        return f"{self.metadata.namespace}/{self.metadata.name}"


class NodeList(BaseModel):
    """A list of nodes, which are returned to the scheduler exactly as they arrived."""

    model_config = ConfigDict(extra="allow")

    items: list[dict[str, Any]] = Field(default_factory=list)

    @field_validator("items", mode="before")
    @classmethod
    def _null_is_empty(cls, value: object) -> object:
        return [] if value is None else value  # Go writes an empty list as null

    @field_validator("items")
    @classmethod
    def _have_names(cls, items: list[dict[str, Any]]) -> list[dict[str, Any]]:
        for item in items:
            if not _Named.model_validate(item).metadata.name:
                raise ValueError("a node has no name")
        return items

    def names(self) -> list[str]:
        """Returns the names of the nodes."""
        return [str(item["metadata"]["name"]) for item in self.items]

    def labels(self, label: str) -> dict[str, str]:
        """Returns the value of a label by name of the node; nodes without it, or with an empty value, are left out."""
        values = {
            name: (item["metadata"].get("labels") or {}).get(label)
            for name, item in zip(self.names(), self.items, strict=True)
        }
        return {name: value for name, value in values.items() if value}


class ExtenderArgs(BaseModel):
    """A request of the scheduler: a pod, and the nodes on which it may run.

    Attributes:
        pod: The pod.
        nodes: The nodes, if the extender is not configured as `nodeCacheCapable`.
        nodenames: Names of the nodes, if the extender is configured as `nodeCacheCapable`.
    """

    pod: Pod
    nodes: NodeList | None = None
    nodenames: list[str] | None = None

    @property
    def names(self) -> list[str]:
        """Names of the nodes, however they are given."""
        return (self.nodenames or []) if self.nodes is None else self.nodes.names()

    @model_validator(mode="before")
    @classmethod
    def _in_any_capitalisation(cls, value: object) -> object:
        return {str(key).lower(): item for key, item in value.items()} if isinstance(value, Mapping) else value


class ExtenderFilterResult(BaseModel):
    """The answer to a filter request.

    Attributes:
        Nodes: Nodes that are kept, if the request had whole nodes.
        NodeNames: Names of the nodes that are kept, if the request had names.
        FailedNodes: Reason for each node that is removed, by its name.
        FailedAndUnresolvableNodes: Those of the removed nodes to which the pod would not fit either if other pods made
            room: all of them. They are in `FailedNodes` as well, because old schedulers know only that field.
        Error: Reason why the request failed; "" if it did not.
    """

    Nodes: NodeList | None = None
    NodeNames: list[str] | None = None
    FailedNodes: dict[str, str] = Field(default_factory=dict)
    FailedAndUnresolvableNodes: dict[str, str] = Field(default_factory=dict)
    Error: str = ""


class HostPriority(BaseModel):
    """The score of a node; the answer to a prioritise request is a list of them.

    Attributes:
        Host: Name of the node.
        Score: Score from 0 to 10; a node with a higher score is preferred.
    """

    Host: str
    Score: int
