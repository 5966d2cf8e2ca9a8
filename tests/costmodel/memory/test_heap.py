"""The simulated heap: the rules of glibc's allocator, on sequences of blocks that it served, and on hand-made ones."""

import csv
from itertools import pairwise
from pathlib import Path
from random import Random

import hypothesis.strategies as st
import pytest
from hypothesis import given

from costmodel.memory.heap import Block, Heap

KB, MB = 1 << 10, 1 << 20


def test_a_large_block_has_pages_of_its_own() -> None:
    """A block above the threshold is returned when it is freed."""
    heap = Heap()
    heap.free(heap.allocate(4 * MB))
    assert heap.resident_bytes == 0
    assert 4 * MB <= heap.peak_bytes < 4.1 * MB


def test_freeing_a_large_block_raises_the_threshold() -> None:
    """Later blocks of the size of a freed one lie on the heap, where a live block behind them keeps their pages."""
    heap = Heap()
    heap.free(heap.allocate(4 * MB))
    block, _ = heap.allocate(3 * MB), heap.allocate(100 * KB)
    heap.free(block)
    assert heap.resident_bytes >= 3 * MB


def test_less_than_the_threshold_at_the_end_is_kept() -> None:
    """Free memory at the end stays up to 128 KiB at first, and up to twice the threshold once that was raised."""
    heap = Heap()
    heap.free(heap.allocate(100 * KB, aligned=False))
    assert heap.resident_bytes >= 100 * KB
    blocks = [heap.allocate(100 * KB, aligned=False) for _ in range(2)]
    for block in reversed(blocks):
        heap.free(block)
    assert heap.resident_bytes <= 132 * KB
    heap.free(heap.allocate(300 * KB))
    blocks = [heap.allocate(150 * KB, aligned=False) for _ in range(2)]
    for block in reversed(blocks):
        heap.free(block)
    assert heap.resident_bytes >= 300 * KB


def test_small_blocks_are_resident() -> None:
    """A thousand small blocks take their memory, too."""
    heap = Heap()
    for _ in range(1000):
        heap.unaligned(100)
    assert heap.resident_bytes == 1000 * 112


def test_many_holes_of_one_size_are_served_quickly() -> None:
    """Ten thousand equal holes, as a model with as many equal weights leaves, take steps that grow as a logarithm."""
    heap = Heap()
    starts = [(heap.unaligned(2000), heap.unaligned(24))[0] for _ in range(10_000)]
    for start in starts:
        heap.release(start)
    assert {heap.unaligned(2000) for _ in starts} == set(starts)


def test_the_threshold_has_a_limit() -> None:
    """Freeing a block of more than 32 MiB raises nothing: the next one of 3 MiB has pages of its own."""
    heap = Heap()
    heap.free(heap.allocate(40 * MB))
    block, _ = heap.allocate(3 * MB), heap.allocate(100 * KB)
    heap.free(block)
    assert heap.resident_bytes < MB


def test_free_memory_at_the_end_is_returned() -> None:
    """What is free at the end of the heap is returned if it exceeds twice the threshold."""
    heap = Heap()
    blocks = [heap.allocate(100 * KB, aligned=False) for _ in range(10)]
    for block in reversed(blocks):
        heap.free(block)
    assert heap.resident_bytes < 400 * KB
    assert heap.peak_bytes >= 1000 * KB


def test_blocks_lie_where_the_c_library_puts_them() -> None:
    """Each of 1,344 blocks of random sizes, allocated and freed at random, has the address that glibc gave it."""
    heap = Heap()
    heap.fill(0x290, {})  # the cache of the thread, which the library makes first
    first = None
    live: list[int] = []
    with (Path(__file__).parent / "glibc_addresses.csv").open(newline="") as file:
        calls = list(csv.reader(file))
    for call, number, place in calls:
        if call == "f":
            heap.release(live[int(number)])
            live[int(number)] = live[-1]
            live.pop()
            continue
        start = heap.unaligned(int(number)) if call == "m" else heap.aligned(int(number))
        first = start if first is None else first
        assert place == ("pages" if start < 0 else str(start - first))
        live.append(start)


@pytest.mark.parametrize(("settled", "blocks"), [(False, 1), (True, 2)])
def test_an_aligned_block_reuses_a_hole_unless_a_small_block_is_in_it(settled: bool, blocks: int) -> None:
    """A small block that settles in the piece before an aligned block makes its hole too small for the next one."""
    heap = Heap()
    heap.fill(80, dict.fromkeys(range(32, 128, 16), 7))  # a piece of 80 bytes is cut off, for which the cache is full
    first = heap.allocate(100 * KB)
    for _ in range(8 if settled else 7):
        heap.unaligned(72)
    heap.allocate(KB)
    heap.free(first)
    before = heap.resident_bytes
    heap.allocate(100 * KB)
    assert heap.resident_bytes - before == pytest.approx((blocks - 1) * 100 * KB, abs=2 * KB)


def test_a_smaller_block_takes_the_smallest_sufficient_hole() -> None:
    """The larger hole stays whole, so that a large block fits into it later."""
    heap = Heap()
    large, _, small, _ = (heap.allocate(size) for size in (100 * KB, KB, 50 * KB, KB))
    heap.free(large)
    heap.free(small)
    before = heap.resident_bytes
    heap.allocate(40 * KB, aligned=False)
    heap.allocate(100 * KB, aligned=False)
    assert heap.resident_bytes == before


def test_neighbouring_holes_coalesce() -> None:
    """Two freed neighbours make room for a block of the size of both."""
    heap = Heap()
    first, second, _ = (heap.allocate(50 * KB, aligned=False) for _ in range(3))
    heap.free(first)
    heap.free(second)
    before = heap.resident_bytes
    heap.allocate(100 * KB, aligned=False)
    assert heap.resident_bytes == before


def test_only_touched_pages_are_resident() -> None:
    """A block that is not written takes no memory until it is touched."""
    heap = Heap()
    block = heap.allocate(4 * MB, touch=False)
    assert heap.resident_bytes == 0
    heap.touch(block, MB)
    assert heap.resident_bytes == heap.touched_bytes == MB


@given(sizes=st.lists(st.integers(1, 3 * MB), min_size=1, max_size=40), freed=st.randoms())
def test_blocks_never_overlap_and_memory_adds_up(sizes: list[int], freed: Random) -> None:
    """Live blocks are disjoint, and at least their bytes are resident."""
    heap = Heap()
    live: list[tuple[Block, int]] = []
    for size in sizes:
        live.append((heap.allocate(size), size))
        if freed.random() < 0.5:
            heap.free(live.pop(freed.randrange(len(live)))[0])
        on_heap = sorted((block.start, block.nbytes) for block, _ in live if block.start >= 0)
        assert all(start + nbytes <= after for (start, nbytes), (after, _) in pairwise(on_heap))
        assert sum(size for _, size in live) <= heap.resident_bytes <= heap.peak_bytes <= heap.touched_bytes
