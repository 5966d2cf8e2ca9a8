"""Pagination of lists: each page names the key after which the next page begins."""

from collections.abc import Callable, Sequence
from typing import Annotated, TypeVar

from fastapi import Query

__all__ = ["Limit", "page_of"]

Limit = Annotated[int, Query(ge=1, le=1000, description="Maximum number of entries in a page.")]

_Entry = TypeVar("_Entry")


def page_of(
    entries: Sequence[_Entry], key: Callable[[_Entry], str], limit: int, after: str | None
) -> tuple[Sequence[_Entry], str | None]:
    """Returns one page of a list that is sorted by a key.

    Args:
        entries: The whole list, sorted.
        key: Function that returns the sort key of an entry; no two entries have the same key.
        limit: Maximum number of entries in the page.
        after: Key of the last entry of the previous page; None for the first page.

    Returns:
        The entries of the page, and the value of `after` for the next page (None if this is the last page).
    """
    rest = [entry for entry in entries if after is None or key(entry) > after]
    page = rest[:limit]
    return page, key(page[-1]) if len(rest) > limit else None
