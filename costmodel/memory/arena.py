"""Simulates the memory arena of ONNX Runtime (a best-fit allocator with coalescing), and its memory patterns."""

from bisect import insort
from collections.abc import Iterable
from dataclasses import dataclass, field

from costmodel.memory.buffers import BufferEvent
from costmodel.memory.heap import Block, Heap

__all__ = ["Arena", "Chunk", "pattern_bytes"]

_ALIGNMENT_BYTES = 256
_FIRST_REGION_BYTES = 1 << 20
# The arena has an index of chunks for each region.
_REGION_BYTES_PER_INDEX_BYTE = 32
_LARGEST_GROWTH_BYTES = 1 << 30
# A chunk that is larger than required by this much or more is split.
_MOST_WASTED_BYTES = 128 << 20


@dataclass
class _Region:
    """Memory that an arena has from the heap.

    Attributes:
        block: Block of the heap.
        nbytes: Size in bytes.
        touched: End of the part that is resident.
        free: Start and size of each free chunk, by start.
    """

    block: Block
    nbytes: int
    touched: int
    free: list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Chunk:
    """An allocated part of an arena: number of its region, its start in the region, and its size in bytes."""

    region: int
    start: int
    nbytes: int


@dataclass
class Arena:
    """An arena on a heap: it takes regions of growing size from the heap, and gives none of them back."""

    heap: Heap
    _regions: list[_Region] = field(default_factory=list)
    _next_bytes: int = _FIRST_REGION_BYTES

    def allocate(self, nbytes: int) -> Chunk:
        """Returns a chunk of at least `nbytes` bytes, from the smallest free chunk that is large enough."""
        size = _aligned(nbytes)
        fitting = [
            (room, number, start)
            for number, region in enumerate(self._regions)
            for start, room in region.free
            if room >= size
        ]
        room, number, start = min(fitting, key=self._preference) if fitting else self._extend(size)
        region = self._regions[number]
        region.free.remove((start, room))
        taken = size if room >= 2 * size or room - size >= _MOST_WASTED_BYTES else room
        if room > taken:
            insort(region.free, (start + taken, room - taken))
        if start + size > region.touched:
            self.heap.touch(region.block, start + size - region.touched)
            region.touched = start + size
        return Chunk(number, start, taken)

    def free(self, chunk: Chunk) -> None:
        """Returns a chunk to the arena, where it coalesces with the free chunks beside it."""
        region = self._regions[chunk.region]
        start, end = chunk.start, chunk.start + chunk.nbytes
        for hole in [hole for hole in region.free if hole[0] + hole[1] == start or hole[0] == end]:
            region.free.remove(hole)
            start, end = min(start, hole[0]), max(end, hole[0] + hole[1])
        insort(region.free, (start, end - start))

    def _preference(self, chunk: tuple[int, int, int]) -> tuple[int, bool, int, int]:
        """Returns the key by which free chunks (size, region, start) are chosen: the smallest, at the lowest address.

        Regions on the heap lie below those with pages of their own, of which a later one lies below an earlier one.
        """
        room, number, start = chunk
        position = self._regions[number].block.start
        return room, position < 0, position, start

    def _extend(self, size: int) -> tuple[int, int, int]:
        """Adds a region with room for `size` bytes; returns the size, number and start of its only chunk."""
        if size <= self._next_bytes:
            nbytes = self._next_bytes
            self._next_bytes = min(2 * nbytes, max(nbytes, _LARGEST_GROWTH_BYTES))
        else:
            while self._next_bytes < size:
                self._next_bytes *= 2
            nbytes = self._next_bytes
        block = self.heap.allocate(nbytes, touch=False)
        self.heap.allocate(nbytes // _REGION_BYTES_PER_INDEX_BYTE, aligned=False)
        self._regions.append(_Region(block, nbytes, min(nbytes, block.reused_bytes), [(0, nbytes)]))
        return nbytes, len(self._regions) - 1, 0


def pattern_bytes(events: Iterable[BufferEvent]) -> int:
    """Returns the size of the block in which ONNX Runtime places all buffers of values from the second run on.

    Each buffer gets the smallest gap that it fits into, between the buffers that are live with it or from the last of
    them to the end of the block so far, or else a place after them.
    """
    live: list[tuple[int, int, int]] = []  # (start, end, buffer), by start
    peak = 0
    for event in events:
        if event.kind != "value":
            continue
        if not event.allocated:
            live = [one for one in live if one[2] != event.buffer]
            continue
        size = _aligned(event.nbytes)
        gaps, end = [], 0
        for start, stop, _ in live:
            if start - end >= size:
                gaps.append((start - end, end))
            end = max(end, stop)
        if peak - end >= size:
            gaps.append((peak - end, end))
        offset = min(gaps)[1] if gaps else end
        insort(live, (offset, offset + size, event.buffer))
        peak = max(peak, offset + size)
    return peak


def _aligned(nbytes: int) -> int:
    return max(_ALIGNMENT_BYTES, -(-nbytes // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES)
