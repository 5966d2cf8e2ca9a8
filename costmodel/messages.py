"""Finds every message of one kind inside a protobuf message, wherever the schema lets it stand.

ONNX keeps tensors in initialisers, attributes, subgraphs, functions, sparse tensors and training information, and adds
places with new versions. This walk follows the descriptors, so it misses none of them, and it looks at the fields that
are set, not at the one that an attribute's `type` announces.
"""

from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple, TypeVar

from google.protobuf.message import Message

__all__ = ["messages"]

_Found = TypeVar("_Found")


class _Route(NamedTuple):
    """A field that can lead to the wanted messages."""

    field: str
    repeated: bool
    wanted: bool
    leads_on: bool


def messages(root: Any, kind: type[_Found]) -> Iterator[_Found]:
    """Every message of type `kind` beneath `root`, which is itself not among them.

    Messages in fields of the outermost ones come first; the graph of a model comes before its functions.
    """
    target: str = kind.DESCRIPTOR.full_name  # type: ignore[attr-defined]
    waiting: list[Message] = [root]
    # A loop over a list takes half the time of recursive generators: a model has 100,000 attributes.
    while waiting:
        message = waiting.pop()
        following: list[Message] = []
        for field, repeated, wanted, leads_on in _routes(message.DESCRIPTOR, target):
            if repeated:
                items = getattr(message, field)
                if not items:
                    continue
            elif message.HasField(field):
                items = (getattr(message, field),)
            else:
                continue
            if wanted:
                yield from items
            if leads_on:
                following.extend(items)
        waiting.extend(reversed(following))


@cache
def _routes(descriptor: Any, target: str) -> tuple[_Route, ...]:
    routes = []
    for field in descriptor.fields:
        inner = field.message_type
        if inner is not None:
            route = _Route(field.name, field.is_repeated, inner.full_name == target, _reaches(inner, target))
            if route.wanted or route.leads_on:
                routes.append(route)
    return tuple(sorted(routes, key=lambda route: not route.wanted))


def _reaches(descriptor: Any, target: str) -> bool:
    """Whether a message of type `target` can lie beneath one of this type."""
    seen, waiting = {descriptor.full_name}, [descriptor]
    while waiting:
        for field in waiting.pop().fields:
            inner = field.message_type
            if inner is None:
                continue
            if inner.full_name == target:
                return True
            if inner.full_name not in seen:
                seen.add(inner.full_name)
                waiting.append(inner)
    return False
