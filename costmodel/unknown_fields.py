"""Splits records that a newer version of costmodel wrote into known fields, which are read, and unknown ones."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

__all__ = ["known_fields", "unknown_fields"]


def known_fields(cls: type, data: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the entries of the record `data` whose names are fields of the dataclass `cls`."""
    names = {field.name for field in fields(cls)}
    return {name: value for name, value in data.items() if name in names}


def unknown_fields(cls: type, data: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the entries of the record `data` whose names are not fields of the dataclass `cls`."""
    names = {field.name for field in fields(cls)}
    return {name: value for name, value in data.items() if name not in names}
