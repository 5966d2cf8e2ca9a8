"""A bounded cache that threads may share."""

from collections.abc import Callable, Hashable
from threading import Lock
from typing import Generic, TypeVar

from cachetools import LRUCache

__all__ = ["BoundedCache"]

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class BoundedCache(Generic[Key, Value]):
    """A cache of limited size that drops what was not used for longest; threads may share it."""

    def __init__(self, max_size: int, size_of: Callable[[Value], int] | None = None) -> None:
        """Creates an empty cache.

        Args:
            max_size: Largest sum of the sizes of the values.
            size_of: Gives the size of a value; by default each has the size 1.
        """
        self._cache: LRUCache[Key, Value] = LRUCache(max_size, getsizeof=size_of)
        self._lock = Lock()

    def __len__(self) -> int:
        """Number of values."""
        return len(self._cache)

    def get(self, key: Key) -> Value | None:
        """Returns the value of a key; None if there is none, or it was dropped."""
        with self._lock:
            return self._cache.get(key)

    def put(self, key: Key, value: Value) -> None:
        """Stores a value, unless it alone is larger than the cache."""
        with self._lock:
            try:
                self._cache[key] = value
            except ValueError:  # too large
                self._cache.pop(key, None)
