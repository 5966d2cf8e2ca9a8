"""Simulates malloc of the GNU C library 2.36, for a process with one thread, to find how much memory becomes resident.

The heap consists of blocks side by side. A freed block of up to 1,040 bytes is kept in the cache of the thread, which
has room for seven of each size; one of up to 128 bytes that finds no room there is kept as a *fast* block. Both keep
their size. Other freed blocks coalesce with free neighbours to holes; so do fast blocks, once a block of 1 KB or more
is requested, one of 64 KB or more becomes free, or the end of the heap is reached. A hole is first *unsorted*; the next
request that no kept block serves sorts it into the bin of its size, unless it has exactly the size of the request. The
smallest sufficient hole serves a request, and what is left of it is a hole.

A block that fits into no hole lies behind all others, or, if it is larger than a threshold, has pages of its own, which
are returned when it is freed; freeing it raises the threshold to its size, up to 32 MiB. Free memory at the end of the
heap is returned when it exceeds twice the threshold; 128 KiB, until the threshold was raised.

An aligned block is cut out of a larger one, and the pieces before and behind it are freed.

Source: malloc/malloc.c of glibc 2.36; replaying the calls of a process that loads and runs a model of 0.3 GB gives each
of 1.5 million blocks the address that it had (docs/adr/0023).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from costmodel.memory.holes import LEAST_LARGE, Holes

__all__ = ["Block", "Heap"]

_INITIAL_THRESHOLD = 128 << 10
_LARGEST_THRESHOLD = 32 << 20
# Free memory that stays at the end of the heap when the rest is returned, and by which the heap grows beyond need.
_TOP_PAD = 128 << 10
_HEADER = 16
_PAGE = 4096
_ALIGNMENT = 64
# A smaller rest is not split off a block.
_SMALLEST = 32
_MOST_CACHED = 7
_LARGEST_CACHED = 1040
_LARGEST_FAST = 128
# Freeing a block of this size makes the fast blocks coalesce.
_COALESCING_BYTES = 64 << 10


def _block_bytes(nbytes: int) -> int:
    """Returns the size of the block that serves a request, header included."""
    return max(_SMALLEST, (nbytes + 23) & ~15)


@dataclass(frozen=True, slots=True)
class Block:
    """An allocated block.

    Attributes:
        start: Position of its header on the heap; a unique negative number if the block has pages of its own.
        nbytes: Size in bytes, including the header.
        reused_bytes: Bytes that were resident before the block was allocated.
    """

    start: int
    nbytes: int
    reused_bytes: int


class Heap:
    """The blocks of a process.

    Attributes:
        resident_bytes: Memory that is resident now, in bytes.
        peak_bytes: Maximum of `resident_bytes` so far.
        touched_bytes: Memory that has become resident so far, in bytes; memory that was returned and touched again
            counts twice.
    """

    def __init__(self) -> None:
        """Makes an empty heap."""
        self.resident_bytes = self.peak_bytes = self.touched_bytes = 0
        self._threshold = self._surplus = _INITIAL_THRESHOLD
        self._top = 0  # end of the blocks; the memory from here to `_end` is free
        self._end = self._touched = 0  # end of the heap, and of its resident part
        self._sizes: dict[int, int] = {}  # size of each block that has no pages of its own, by start
        self._holes = Holes()
        self._cached: dict[int, list[int]] = {}  # starts of the blocks in the cache, by size
        self._fast: dict[int, list[int]] = {}
        self._last_rest = -1  # what was left when a small block was cut from a larger hole
        self._pages: dict[int, int] = {}  # size of each block that has pages of its own
        self._mapped = 0

    # Blocks that are written, with what becomes resident.

    def allocate(self, nbytes: int, *, aligned: bool = True, touch: bool = True) -> Block:
        """Returns a new block.

        Args:
            nbytes: Size in bytes.
            aligned: Whether the block is aligned to 64 bytes, as tensors are.
            touch: Whether all of the block is written at once; if not, `touch` says later how much of it is.
        """
        start = self.aligned(nbytes) if aligned else self.unaligned(nbytes)
        if start < 0:
            block = Block(start, self._pages[start], 0)
        else:
            size = self._sizes[start]
            block = Block(start, size, min(size, max(0, self._touched - start)))
        if touch:
            self.touch(block, block.nbytes - block.reused_bytes)
        return block

    def touch(self, block: Block, nbytes: int) -> None:
        """Makes `nbytes` more bytes of an allocated block resident."""
        self._became_resident(nbytes)
        if nbytes and block.start >= 0:
            self._touched = max(self._touched, min(self._top, block.start + block.nbytes))

    def _became_resident(self, nbytes: int) -> None:
        self.resident_bytes += nbytes
        self.touched_bytes += nbytes
        self.peak_bytes = max(self.peak_bytes, self.resident_bytes)

    def free(self, block: Block) -> None:
        """Frees a block that was touched completely."""
        if block.start < 0:
            self.resident_bytes -= block.nbytes
        self.release(block.start)

    def fill(self, nbytes: int, cached: Mapping[int, int]) -> None:
        """Does what a process did that is not simulated: its blocks, and what it left in the cache.

        Args:
            nbytes: Size of its blocks, a multiple of 16; they lie behind all others.
            cached: How many blocks of each size are in the cache afterwards; other sizes stay as they are.
        """
        self._take(nbytes)
        for size, number in cached.items():
            self._cached[size] = []
            for _ in range(number):
                self._cached[size].append(self._from_top(size))
                self._from_top(_SMALLEST)  # what keeps it from its neighbours

    # Blocks by their start.

    def unaligned(self, nbytes: int) -> int:
        """Allocates a block; returns its start, negative if it has pages of its own."""
        size = (nbytes + 23) & ~15 if nbytes > 8 else _SMALLEST
        cached = self._cached.get(size)
        if cached:
            return cached.pop()
        return self._take(size)

    def aligned(self, nbytes: int) -> int:
        """Allocates a block whose content is aligned to 64 bytes; returns its start."""
        needed = _block_bytes(nbytes)
        start = self._take(_block_bytes(needed + _ALIGNMENT + _SMALLEST))
        if start < 0:
            return start
        size = self._sizes[start]
        if (start + _HEADER) % _ALIGNMENT:
            moved = (start + _HEADER + _ALIGNMENT - 1) // _ALIGNMENT * _ALIGNMENT - _HEADER
            if moved - start < _SMALLEST:
                moved += _ALIGNMENT
            self._sizes[start] = moved - start
            size -= moved - start
            self._sizes[moved] = size
            self._drop(start)
            start = moved
        if size > needed + _SMALLEST:
            self._sizes[start] = needed
            self._sizes[start + needed] = size - needed
            self._drop(start + needed)
        return start

    def release(self, start: int) -> None:
        """Frees the block that begins at `start`."""
        if start >= 0:
            self._drop(start)
            return
        size = self._pages.pop(start)
        if self._threshold < size <= _LARGEST_THRESHOLD:
            self._threshold, self._surplus = size, 2 * size

    def _drop(self, start: int) -> None:
        size = self._sizes[start]
        if size <= _LARGEST_CACHED:
            cached = self._cached.setdefault(size, [])
            if len(cached) < _MOST_CACHED:
                cached.append(start)
                return
            if size <= _LARGEST_FAST:
                self._fast.setdefault(size, []).append(start)
                return
        if self._coalesce(start) >= _COALESCING_BYTES:
            self._coalesce_fast()
            if self._end - self._top >= self._surplus:
                self._shrink()

    def _coalesce(self, start: int) -> int:
        """Makes a block a hole together with the free memory beside it; returns the size of the whole."""
        size = self._sizes.pop(start)
        before = self._holes.starts.get(start)
        if before is not None:
            size += self._holes.remove(before)
            start = before
        end = start + size
        if end == self._top:
            self._top = start
            return self._end - start
        if end in self._holes.sizes:
            size += self._holes.remove(end)
        self._holes.add(start, size)
        return size

    def _coalesce_fast(self) -> None:
        for size in sorted(self._fast):
            kept = self._fast.pop(size)
            while kept:
                self._coalesce(kept.pop())

    def _shrink(self) -> None:
        """Returns the free memory at the end of the heap but for a rest."""
        surplus = (self._end - self._top - _SMALLEST - 1 - _TOP_PAD) // _PAGE * _PAGE
        if surplus > 0:
            self._end -= surplus
            self.resident_bytes -= max(0, self._touched - self._end)
            self._touched = min(self._touched, self._end)

    def _take(self, size: int) -> int:
        """Returns the start of a block that is not in the cache."""
        small = size < LEAST_LARGE
        if size <= _LARGEST_FAST and (kept := self._fast.get(size)):
            start = kept.pop()
            cached = self._cached.setdefault(size, [])
            while kept and len(cached) < _MOST_CACHED:
                cached.append(kept.pop())
            if not kept:
                del self._fast[size]
            return start
        if small:
            found = self._holes.oldest_of(size)
            if found is not None:
                self._use(found)
                cached = self._cached.setdefault(size, [])
                while len(cached) < _MOST_CACHED and (other := self._holes.oldest_of(size)) is not None:
                    self._use(other)
                    cached.append(other)
                return found
        elif self._fast:
            self._coalesce_fast()
        while True:
            found = self._sort(size, small)
            if found is None and (found := self._holes.smallest_sufficient(size)) is not None:
                self._cut(found, size, small)
            if found is not None:
                return found
            if self._end - self._top >= size + _SMALLEST:
                return self._from_top(size)
            if not self._fast:
                break
            self._coalesce_fast()
        if size >= self._threshold:
            self._mapped += 1
            self._pages[-self._mapped] = -(-(size + _HEADER // 2) // _PAGE) * _PAGE
            return -self._mapped
        self._end += -(-(size + _TOP_PAD + _SMALLEST - (self._end - self._top)) // _PAGE) * _PAGE
        return self._from_top(size)

    def _from_top(self, size: int) -> int:
        start = self._top
        self._sizes[start] = size
        self._top += size
        if size < LEAST_LARGE and self._top > self._touched:  # small blocks are written at once
            self._became_resident(self._top - max(start, self._touched))
            self._touched = self._top
        return start

    def _sort(self, size: int, small: bool) -> int | None:
        """Sorts the unsorted holes; returns the start of a block that one of them is or becomes at once, or None."""
        holes, cached = self._holes, None
        while holes.unsorted:
            start = next(iter(holes.unsorted))
            room = holes.sizes[start]
            if small and start == self._last_rest and len(holes.unsorted) == 1 and room > size + _SMALLEST:
                self._cut(start, size, small)
                return start
            if room != size:
                holes.sort(start)
                continue
            self._use(start)
            if size > _LARGEST_CACHED:
                return start
            cached = self._cached.setdefault(size, [])
            if len(cached) >= _MOST_CACHED:
                return start
            cached.append(start)
        return cached.pop() if cached is not None else None

    def _use(self, start: int) -> None:
        """Makes a block of a whole hole."""
        self._sizes[start] = self._holes.remove(start)

    def _cut(self, start: int, size: int, small: bool) -> None:
        """Makes a block of a hole, but for the rest, if that is large enough to be a hole itself."""
        room = self._holes.remove(start)
        if room - size < _SMALLEST:
            self._sizes[start] = room
            return
        self._sizes[start] = size
        self._holes.add(start + size, room - size)
        if small:
            self._last_rest = start + size
