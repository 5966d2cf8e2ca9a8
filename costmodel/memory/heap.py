"""Simulates the C library's allocator (glibc malloc) for large blocks, to find how much memory becomes resident.

Blocks lie side by side on the heap. A freed block coalesces with free neighbours to a hole, which stays resident and
serves later blocks that fit into it, the smallest sufficient hole first. A block that fits into no hole, and that is
larger than a threshold, gets pages of its own, which are returned when it is freed; freeing it raises the threshold to
its size, up to 32 MiB. Free memory at the end of the heap is returned as well when it exceeds twice the threshold.

An aligned block is cut out of a larger one. Small blocks of the process may settle in the pieces before and behind it;
then a later aligned block of the same size does not fit into the hole that this one leaves. Whether they do depends on
details of a process that are not simulated, so it is a parameter.
"""

from bisect import bisect_left, insort
from dataclasses import dataclass, field

__all__ = ["Block", "Heap"]

_INITIAL_THRESHOLD = 128 << 10
_LARGEST_THRESHOLD = 32 << 20
# Free memory that stays at the end of the heap when the rest is returned, and by which the heap grows beyond need.
_TOP_PAD = 128 << 10
_HEADER = 16
# An aligned block is cut out of a block that is so much larger; half of the rest lies before it.
_ALIGNED_MARGIN = 112
# A smaller rest is not split off a block.
_SMALLEST = 32
_PAGE = 4096


@dataclass(frozen=True, slots=True)
class Block:
    """An allocated block.

    Attributes:
        start: Position on the heap; a unique negative number if the block has pages of its own.
        nbytes: Size in bytes, including the header.
        reused_bytes: Bytes that were resident before the block was allocated.
    """

    start: int
    nbytes: int
    reused_bytes: int


@dataclass
class Heap:
    """The blocks of a process.

    Attributes:
        fragmented: Whether small blocks settle beside the aligned ones.
        resident_bytes: Memory that is resident now, in bytes.
        peak_bytes: Maximum of `resident_bytes` so far.
        touched_bytes: Memory that has become resident so far, in bytes; memory that was returned and touched again
            counts twice.
    """

    fragmented: bool = False
    resident_bytes: int = 0
    peak_bytes: int = 0
    touched_bytes: int = 0
    _threshold: int = _INITIAL_THRESHOLD
    _top: int = _HEADER  # end of the blocks; the memory from here to `_end` is free
    _end: int = _HEADER
    _touched: int = _HEADER  # end of the resident part
    _mapped: int = 0
    _holes: list[tuple[int, int]] = field(default_factory=list)  # (size, start), by size
    _size_at: dict[int, int] = field(default_factory=dict)  # size of the hole that starts at a position
    _start_of: dict[int, int] = field(default_factory=dict)  # start of the hole that ends at a position

    def allocate(self, nbytes: int, *, aligned: bool = True, touch: bool = True) -> Block:
        """Returns a new block.

        Args:
            nbytes: Size in bytes.
            aligned: Whether the block is aligned to 64 bytes, as tensors are.
            touch: Whether all of the block is written at once; if not, `touch` says later how much of it is.
        """
        size = -(-(nbytes + _HEADER // 2) // _HEADER) * _HEADER
        required = size + _ALIGNED_MARGIN if aligned else size
        found = self._cut(required)
        if found is None:
            self._mapped += 1
            block = Block(-self._mapped, -(-(required + _HEADER // 2) // _PAGE) * _PAGE, 0)
        else:
            start, length, old = found
            if aligned and self.fragmented:
                start, length = start + _ALIGNED_MARGIN // 2, length - _ALIGNED_MARGIN
            block = Block(start, length, length if old else min(length, max(0, self._touched - start)))
        if touch:
            self.touch(block, block.nbytes - block.reused_bytes)
        return block

    def touch(self, block: Block, nbytes: int) -> None:
        """Makes `nbytes` more bytes of an allocated block resident."""
        self.resident_bytes += nbytes
        self.touched_bytes += nbytes
        self.peak_bytes = max(self.peak_bytes, self.resident_bytes)
        if nbytes and block.start >= 0:
            self._touched = max(self._touched, min(self._top, block.start + block.nbytes))

    def free(self, block: Block) -> None:
        """Frees a block that was touched completely."""
        if block.start < 0:
            self.resident_bytes -= block.nbytes
            if self._threshold < block.nbytes <= _LARGEST_THRESHOLD:
                self._threshold = block.nbytes
            return
        start, end = block.start, block.start + block.nbytes
        if end in self._size_at:
            end += self._remove(end)
        if start in self._start_of:
            start = self._start_of[start]
            self._remove(start)
        if end < self._top:
            self._add(start, end - start)
            return
        self._top = start
        if self._end - start >= 2 * self._threshold:
            self._end = start + _TOP_PAD
            self.resident_bytes -= max(0, self._touched - self._end)
            self._touched = min(self._touched, self._end)

    def _cut(self, size: int) -> tuple[int, int, bool] | None:
        """Takes a block out of the smallest sufficient hole, or else from the end of the heap.

        Returns:
            Start and size of the block, and whether it lay in a hole; None if it needs pages of its own.
        """
        place = bisect_left(self._holes, (size, 0))
        if place < len(self._holes):
            length, start = self._holes[place]
            self._remove(start)
            if length - size >= _SMALLEST:
                self._add(start + size, length - size)
                length = size
            return start, length, True
        if self._end - self._top < size + _SMALLEST:
            if size >= self._threshold:
                return None
            self._end = self._top + size + _TOP_PAD
        start = self._top
        self._top += size
        return start, size, False

    def _add(self, start: int, length: int) -> None:
        insort(self._holes, (length, start))
        self._size_at[start] = length
        self._start_of[start + length] = start

    def _remove(self, start: int) -> int:
        """Removes the hole at `start`; returns its size."""
        length = self._size_at.pop(start)
        del self._start_of[start + length]
        del self._holes[bisect_left(self._holes, (length, start))]
        return length
