"""A bounded memory of what was used last."""

from collections.abc import Callable, Hashable
from threading import Lock
from typing import Generic, TypeVar

__all__ = ["Recent"]

Key = TypeVar("Key", bound=Hashable)
Kept = TypeVar("Kept")


def _one(_: object) -> int:
    return 1


class Recent(Generic[Key, Kept]):
    """Keeps what was used last, up to a size; threads may share it.

    Two generations stand for an order of use, which would have to be kept up at each look-up: what is found in the
    older one moves to the younger, and when that has half of the size the older one is dropped.
    """

    def __init__(self, most: int, size: Callable[[Kept], int] = _one) -> None:
        """Empty.

        Args:
            most: The sum of sizes that is kept, about.
            size: Of what is kept.
        """
        self._half = max(1, most // 2)
        self._size = size
        self._lock = Lock()
        self._young: dict[Key, Kept] = {}
        self._old: dict[Key, Kept] = {}
        self._young_size = 0

    def __len__(self) -> int:
        """Number of things kept."""
        return len(self._young.keys() | self._old.keys())

    def get(self, key: Key) -> Kept | None:
        """What was kept under a key; None if nothing was, or no longer is."""
        found = self._young.get(key)
        if found is None and (found := self._old.get(key)) is not None:
            self.put(key, found)
        return found

    def put(self, key: Key, kept: Kept) -> None:
        """Keep something that is not None."""
        size = self._size(kept)
        with self._lock:
            if key in self._young:
                self._young_size -= self._size(self._young[key])
            elif self._young and self._young_size + size > self._half:
                self._old, self._young, self._young_size = self._young, {}, 0
            self._young[key] = kept
            self._young_size += size
