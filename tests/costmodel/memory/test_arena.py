"""The simulated arena: how regions grow, and which free chunk is taken."""

import pytest

from costmodel.memory.arena import Arena
from costmodel.memory.heap import Heap

MB = 1 << 20


def _regions(*sizes: int) -> list[int]:
    """Returns the region of each of several chunks, of which none is freed."""
    arena = Arena(Heap())
    return [arena.allocate(size).region for size in sizes]


def test_regions_double() -> None:
    """Regions of 1, 2 and 4 MiB take one, two and four chunks of 1 MiB."""
    assert _regions(*[MB] * 7) == [0, 1, 1, 2, 2, 2, 2]


def test_a_region_that_a_large_chunk_has_enlarged_is_not_doubled() -> None:
    """After a region of 4 MiB for a chunk of 3 MiB, the next region has 4 MiB too."""
    assert _regions(3 * MB, 2 * MB, 2 * MB, 2 * MB) == [0, 1, 1, 2]


def test_freed_chunks_coalesce() -> None:
    """Two freed neighbours make room for a chunk of the size of both."""
    arena = Arena(Heap())
    chunks = [arena.allocate(MB) for _ in range(7)]
    arena.free(chunks[1])
    arena.free(chunks[2])
    assert arena.allocate(2 * MB).region == chunks[1].region


def test_of_equal_chunks_the_one_at_the_lowest_address_is_taken() -> None:
    """Regions with pages of their own are mapped downwards, so the later of two is preferred."""
    arena = Arena(Heap())
    chunks = [arena.allocate(size * MB) for size in (64, 64)]
    for chunk in chunks:
        arena.free(chunk)
    assert arena.allocate(64 * MB).region == chunks[-1].region


def test_a_region_costs_what_is_written_and_its_index() -> None:
    """Of a region of 128 MiB with one chunk of 65 MiB, the chunk and an index of 4 MiB are resident."""
    heap = Heap()
    Arena(heap).allocate(65 * MB)
    assert heap.resident_bytes == pytest.approx(69 * MB, rel=0.01)
