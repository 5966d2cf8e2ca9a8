"""Simulates the large allocations of the C library (glibc malloc), to find how much memory becomes resident.

A block above a threshold gets pages of its own, which are returned when it is freed. Smaller blocks lie side by side on
the heap: a freed one leaves a hole, which stays resident and holds only blocks that fit into it. Freeing a block with
pages of its own raises the threshold to its size, up to 32 MiB.
"""

from bisect import bisect, insort
from dataclasses import dataclass, field

__all__ = ["Block", "Heap"]

_INITIAL_THRESHOLD = 128 << 10
_LARGEST_THRESHOLD = 32 << 20
_HEADER = 16
_PAGE = 4096
# An aligned block is cut out of a free range that exceeds it by so many bytes; on average this much of them is lost.
_ALIGNED_MARGIN = 112
_ALIGNED_LOSS = 64


@dataclass(frozen=True, slots=True)
class Block:
    """An allocated block.

    Attributes:
        start: Position on the heap; a unique negative number if the block has pages of its own.
        nbytes: Size in bytes, including alignment.
        reused_bytes: Bytes that were resident before the block was allocated, because it lies in a hole.
    """

    start: int
    nbytes: int
    reused_bytes: int


@dataclass
class Heap:
    """The blocks of a process.

    Attributes:
        resident_bytes: Memory that is resident now, in bytes.
        peak_bytes: Maximum of `resident_bytes` so far.
    """

    resident_bytes: int = 0
    peak_bytes: int = 0
    _threshold: int = _INITIAL_THRESHOLD
    _top: int = 0  # end of the heap in use; pages between it and `_touched` are resident but free
    _touched: int = 0
    _mapped: int = 0
    _holes: list[tuple[int, int]] = field(default_factory=list)  # (start, size), by start

    def allocate(self, nbytes: int, *, aligned: bool = True, touch: bool = True) -> Block:
        """Returns a new block.

        Args:
            nbytes: Size in bytes.
            aligned: Whether the block is aligned to 64 bytes, as tensors are.
            touch: Whether all of the block is written at once; if not, `touch` says later how much of it is.
        """
        size = nbytes + (_ALIGNED_LOSS if aligned else _HEADER)
        if size >= self._threshold:
            self._mapped += 1
            block = Block(-self._mapped, -(-(size + _HEADER) // _PAGE) * _PAGE, 0)
        else:
            block = self._on_heap(size, nbytes + (_ALIGNED_MARGIN if aligned else _HEADER))
        if touch:
            self.touch(block.nbytes - block.reused_bytes)
        return block

    def _on_heap(self, size: int, required: int) -> Block:
        fitting = [hole for hole in self._holes if hole[1] >= required]
        if fitting:
            start, room = best = min(fitting, key=lambda hole: (hole[1], hole[0]))
            self._holes.remove(best)
            if room > size:
                insort(self._holes, (start + size, room - size))
            return Block(start, size, size)
        start = self._top
        self._top += size
        reused = max(0, min(self._touched, self._top) - start)
        self._touched = max(self._touched, self._top)
        return Block(start, size, reused)

    def touch(self, nbytes: int) -> None:
        """Makes `nbytes` more bytes of allocated blocks resident."""
        self.resident_bytes += nbytes
        self.peak_bytes = max(self.peak_bytes, self.resident_bytes)

    def free(self, block: Block) -> None:
        """Frees a block that was touched completely."""
        if block.start < 0:
            self.resident_bytes -= block.nbytes
            self._threshold = max(self._threshold, min(block.nbytes, _LARGEST_THRESHOLD))
            return
        start, end = block.start, block.start + block.nbytes
        place = bisect(self._holes, (start, 0))
        if place < len(self._holes) and self._holes[place][0] == end:
            end += self._holes.pop(place)[1]
        if place and sum(self._holes[place - 1]) == start:
            start = self._holes.pop(place - 1)[0]
        if end < self._top:
            insort(self._holes, (start, end - start))
            return
        self._top = start
