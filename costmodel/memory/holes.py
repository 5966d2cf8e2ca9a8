"""Keeps the holes of a heap as malloc of the GNU C library does: unsorted, or in bins by their size.

A bin below 1 KB has holes of one size, the oldest first to be used; one above has a range of sizes.
"""

from bisect import bisect_left, bisect_right
from collections import OrderedDict

__all__ = ["LEAST_LARGE", "Holes"]

# A smaller hole is in a bin of its size.
LEAST_LARGE = 1024
_FIRST_LARGE_BIN = LEAST_LARGE >> 4
# Of the large bins: by how many bits a size is shifted, up to which result, and what is added to it.
_LARGE_BINS = ((6, 48, 48), (9, 20, 91), (12, 10, 110), (15, 4, 119), (18, 2, 124))
_LAST_BIN = 126
_UNSORTED = 0


def _bin(nbytes: int) -> int:
    """Returns the number of the bin for holes of a size."""
    if nbytes < LEAST_LARGE:
        return nbytes >> 4
    for shift, most, first in _LARGE_BINS:
        if nbytes >> shift <= most:
            return first + (nbytes >> shift)
    return _LAST_BIN


class Holes:
    """The holes of a heap.

    Attributes:
        sizes: Size of each hole in bytes, by start.
        starts: Start of each hole, by end.
        unsorted: Starts of the holes that are in no bin yet; the next one to sort is the first.
    """

    def __init__(self) -> None:
        """Makes a heap without holes."""
        self.sizes: dict[int, int] = {}
        self.starts: dict[int, int] = {}
        self.unsorted: OrderedDict[int, None] = OrderedDict()
        self._bins: dict[int, int] = {}  # number of the bin of each hole, by start
        self._small: dict[int, OrderedDict[int, None]] = {}  # holes of each small bin, the next one to use first
        self._large: dict[int, list[int]] = {}  # holes of each large bin, from the largest to the smallest
        self._filled = 0  # bit mask of the bins that have holes

    def add(self, start: int, nbytes: int) -> None:
        """Adds a hole, which is unsorted at first."""
        self.sizes[start] = nbytes
        self.starts[start + nbytes] = start
        self._bins[start] = _UNSORTED
        self.unsorted[start] = None

    def remove(self, start: int) -> int:
        """Removes a hole; returns its size."""
        size = self.sizes.pop(start)
        del self.starts[start + size]
        number = self._bins.pop(start)
        if number == _UNSORTED:
            del self.unsorted[start]
            return size
        if number < _FIRST_LARGE_BIN:
            small = self._small[number]
            del small[start]
            left = len(small)
        else:
            large = self._large[number]
            large.remove(start)
            left = len(large)
        if not left:
            self._filled &= ~(1 << number)
        return size

    def sort(self, start: int) -> None:
        """Puts an unsorted hole into the bin of its size."""
        del self.unsorted[start]
        size = self.sizes[start]
        number = self._bins[start] = _bin(size)
        if number < _FIRST_LARGE_BIN:
            self._small.setdefault(number, OrderedDict())[start] = None
        else:
            self._put(self._large.setdefault(number, []), start, size)
        self._filled |= 1 << number

    def oldest_of(self, nbytes: int) -> int | None:
        """Returns the sorted hole of exactly a size below 1 KB that is to be used first; None if there is none."""
        holes = self._small.get(nbytes >> 4)
        return next(iter(holes)) if holes else None

    def smallest_sufficient(self, nbytes: int) -> int | None:
        """Returns the smallest sorted hole of at least a size; None if there is none.

        It has to be larger than a request below 1 KB, for which `oldest_of` is asked first.
        """
        number = _bin(nbytes)
        if number >= _FIRST_LARGE_BIN:
            holes = self._large.get(number)
            if holes and self.sizes[holes[0]] >= nbytes:
                _, behind = self._places_of(holes, nbytes)
                first, behind = self._places_of(holes, self.sizes[holes[behind - 1]])
                return holes[min(first + 1, behind - 1)]
        higher = self._filled >> (number + 1)
        if not higher:
            return None
        number += (higher & -higher).bit_length()
        return next(iter(self._small[number])) if number < _FIRST_LARGE_BIN else self._large[number][-1]

    def _put(self, holes: list[int], start: int, nbytes: int) -> None:
        """Puts a hole into a large bin; of holes of one size, the oldest comes first and the newest second."""
        first, behind = self._places_of(holes, nbytes)
        holes.insert(min(first + 1, behind), start)

    def _places_of(self, holes: list[int], nbytes: int) -> tuple[int, int]:
        """Returns where the holes of a size are in a large bin, or would be: the first place, and that behind them."""

        def key(hole: int) -> int:
            return -self.sizes[hole]

        return bisect_left(holes, -nbytes, key=key), bisect_right(holes, -nbytes, key=key)
