"""A cache of limited size that several threads may use at once."""

from collections.abc import Callable, Hashable
from threading import Lock
from typing import Generic, TypeVar

from cachetools import LRUCache

__all__ = ["BoundedCache"]

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class BoundedCache(Generic[Key, Value]):
    """A cache of limited size that drops the least recently used values first; several threads may use it at once."""

    def __init__(self, max_size: int, size_of: Callable[[Value], int] | None = None) -> None:
        """Creates an empty cache.

        Args:
            max_size: Limit on the sum of the sizes of all cached values.
            size_of: Returns the size of a value, in the unit of `max_size`; by default every value has the size 1.
        """
        self._cache: LRUCache[Key, Value] = LRUCache(max_size, getsizeof=size_of)
        self._lock = Lock()

    def __len__(self) -> int:
        """Returns the number of cached values."""
        return len(self._cache)

    def get(self, key: Key) -> Value | None:
        """Returns the value stored under `key`; None if none was stored or it was dropped."""
        with self._lock:
            return self._cache.get(key)

    def put(self, key: Key, value: Value) -> None:
        """Replaces the value stored under `key`; a value that alone exceeds the limit of the cache is not stored."""
        with self._lock:
            try:
                self._cache[key] = value
            except ValueError:  # too large
                self._cache.pop(key, None)
