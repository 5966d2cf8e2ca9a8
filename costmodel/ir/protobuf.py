"""Finds every message of one type inside a protobuf message, wherever the schema allows it.

ONNX keeps tensors in initialisers, attributes, subgraphs, functions, sparse tensors and training information, and new
versions add more such fields. The traversal follows the protobuf descriptors, so it misses none of them. It visits
every field that is set, not only the field that the `type` of an attribute announces.
"""

from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple, TypeVar

from google.protobuf.message import Message

__all__ = ["messages"]

_MessageT = TypeVar("_MessageT")


class _Field(NamedTuple):
    """A field whose messages are of the target type, or can contain messages of that type.

    Attributes:
        field: Name of the field.
        repeated: Whether the field is repeated.
        is_target: Whether its messages have the target type.
        has_nested: Whether its messages can contain messages of the target type.
    """

    field: str
    repeated: bool
    is_target: bool
    has_nested: bool


def messages(root: Any, kind: type[_MessageT]) -> Iterator[_MessageT]:
    """Yields every message of type `kind` inside `root`; `root` itself is not included.

    In each message, fields of type `kind` come before fields that only contain such messages at some depth; the graph
    of a model comes before its functions.
    """
    target: str = kind.DESCRIPTOR.full_name  # type: ignore[attr-defined]
    waiting: list[Message] = [root]
    # A loop with a stack takes half the time of recursive generators; a model can have 100,000 attributes.
    while waiting:
        message = waiting.pop()
        children: list[Message] = []
        for field, repeated, is_target, has_nested in _target_fields(message.DESCRIPTOR, target):
            if repeated:
                items = getattr(message, field)
                if not items:
                    continue
            elif message.HasField(field):
                items = (getattr(message, field),)
            else:
                continue
            if is_target:
                yield from items
            if has_nested:
                children.extend(items)
        waiting.extend(reversed(children))


@cache
def _target_fields(descriptor: Any, target: str) -> tuple[_Field, ...]:
    """Returns the fields of a message type that are of the type `target`, then those that can contain such messages."""
    routes = []
    for field in descriptor.fields:
        inner = field.message_type
        if inner is not None:
            route = _Field(field.name, field.is_repeated, inner.full_name == target, _can_contain(inner, target))
            if route.is_target or route.has_nested:
                routes.append(route)
    return tuple(sorted(routes, key=lambda route: not route.is_target))


def _can_contain(descriptor: Any, target: str) -> bool:
    """Returns whether a message of this type can contain, at any depth, a message of type `target`."""
    visited, waiting = {descriptor.full_name}, [descriptor]
    while waiting:
        for field in waiting.pop().fields:
            inner = field.message_type
            if inner is None:
                continue
            if inner.full_name == target:
                return True
            if inner.full_name not in visited:
                visited.add(inner.full_name)
                waiting.append(inner)
    return False
