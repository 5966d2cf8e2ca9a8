"""Lists in pages: each says where the next one begins."""

from collections.abc import Callable, Sequence
from typing import Annotated, TypeVar

from fastapi import Query

__all__ = ["Limit", "page_of"]

Limit = Annotated[int, Query(ge=1, le=1000, description="The most entries of a page.")]

_Entry = TypeVar("_Entry")


def page_of(
    entries: Sequence[_Entry], key: Callable[[_Entry], str], limit: int, after: str | None
) -> tuple[Sequence[_Entry], str | None]:
    """One page of a list that is sorted by a key.

    Args:
        entries: The whole list.
        key: What it is sorted by; each entry has another one.
        limit: The most entries of a page.
        after: Key of the last entry of the page before; None for the first page.

    Returns:
        The entries, and what to ask the next page for; None on the last one.
    """
    rest = [entry for entry in entries if after is None or key(entry) > after]
    page = rest[:limit]
    return page, key(page[-1]) if len(rest) > limit else None
