"""Describes the members of JSON objects in the OpenAPI document by the docstrings of the Python types behind them."""

import inspect
import re
from collections.abc import Iterator
from dataclasses import is_dataclass
from typing import Any, get_args, get_type_hints

from pydantic import BaseModel
from typing_extensions import is_typeddict

__all__ = ["describe_members"]

_HEADING = "\n\nAttributes:\n"
# An entry of an Attributes section: a name, and a text that continues in lines with more indentation.
_ENTRY = re.compile(r"^    (\w+): (.*(?:\n {5,}.*)*)", re.MULTILINE)


def describe_members(components: dict[str, Any], kind: Any) -> None:
    """Moves the Attributes sections of docstrings from the descriptions of schemas to the members of the schemas.

    Members that already have a description keep it.

    Args:
        components: Schemas of the OpenAPI document by name; they are changed in place.
        kind: Python type of a JSON document; the types of its members are described as well.
    """
    for cls in _classes(kind):
        schema = components.get(cls.__name__)
        if schema is None or "properties" not in schema:
            continue
        schema["description"] = schema.get("description", "").partition(_HEADING)[0]
        for name, text in _attributes(cls).items():
            if name in schema["properties"]:
                schema["properties"][name].setdefault("description", text)


def _classes(kind: Any) -> Iterator[type]:
    """Yields the dataclasses, typed dictionaries and pydantic models that a type consists of, members included."""
    for argument in get_args(kind):
        yield from _classes(argument)
    if isinstance(kind, type) and (is_dataclass(kind) or is_typeddict(kind) or issubclass(kind, BaseModel)):
        yield kind
        for hint in get_type_hints(kind).values():
            yield from _classes(hint)


def _attributes(cls: type) -> dict[str, str]:
    """Returns the descriptions of a class's attributes, inherited ones included, from Attributes sections.

    None is replaced by null, as JSON calls it.
    """
    found: dict[str, str] = {}
    for base in getattr(cls, "__orig_bases__", cls.__bases__):  # a typed dictionary inherits from dict only
        if isinstance(base, type):
            found |= _attributes(base)
    section = inspect.cleandoc(cls.__doc__ or "").partition(_HEADING)[2]
    return found | {name: re.sub(r"\bNone\b", "null", " ".join(text.split())) for name, text in _ENTRY.findall(section)}
