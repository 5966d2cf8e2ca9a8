"""Records of a newer costmodel: reading the fields that are known here, and keeping those that are not."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

__all__ = ["known_fields", "unknown_fields"]


def known_fields(cls: type, data: Mapping[str, Any]) -> dict[str, Any]:
    """The entries of `data` that are fields of the dataclass `cls`."""
    names = {field.name for field in fields(cls)}
    return {name: value for name, value in data.items() if name in names}


def unknown_fields(cls: type, data: Mapping[str, Any]) -> dict[str, Any]:
    """The entries of `data` that are no fields of the dataclass `cls`."""
    names = {field.name for field in fields(cls)}
    return {name: value for name, value in data.items() if name not in names}
