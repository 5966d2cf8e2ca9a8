"""Memory for synthetic tensors that is laid out as ONNX Runtime lays out the tensors of a model.

Each tensor begins at a multiple of 64 bytes, so that no vector register is loaded from two cache lines, and lies in
ordinary memory pages. Arrays of numpy begin anywhere: large ones 16 bytes after the start of a page, and in huge pages
(docs/adr/0005).

Memory that is no longer used is kept for later tensors, because writing to memory for the first time takes ten times as
long as writing to it again: the operating system has to provide each page (docs/adr/0027).
"""

import math
import mmap
import weakref
from collections.abc import Sequence
from contextlib import suppress

import numpy as np

__all__ = ["ALIGNMENT_BYTES", "aligned_arrays", "aligned_copies", "is_aligned"]

ALIGNMENT_BYTES = 64
_MOST_KEPT_BYTES = 1 << 30
_kept: dict[int, list[mmap.mmap]] = {}


def is_aligned(array: np.ndarray) -> bool:
    """Returns whether an array begins at a multiple of `ALIGNMENT_BYTES`."""
    return array.ctypes.data % ALIGNMENT_BYTES == 0


def aligned_arrays(types: Sequence[tuple[np.dtype, tuple[int, ...]]]) -> list[np.ndarray]:
    """Returns arrays with arbitrary values, one after the other in one block of ordinary memory pages.

    Args:
        types: Type of the elements and shape of each array.
    """
    sizes = [dtype.itemsize * math.prod(shape) for dtype, shape in types]
    starts = np.cumsum([0, *(-(-size // ALIGNMENT_BYTES) * ALIGNMENT_BYTES for size in sizes)]).tolist()
    block = _block(starts[-1])
    return [
        block[start : start + size].view(dtype).reshape(shape)
        for start, size, (dtype, shape) in zip(starts, sizes, types, strict=False)
    ]


def aligned_copies(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Returns copies of arrays, one after the other in one block of ordinary memory pages."""
    copies = aligned_arrays([(array.dtype, array.shape) for array in arrays])
    for copy, array in zip(copies, arrays, strict=True):
        copy[...] = array
    return copies


def _block(nbytes: int) -> np.ndarray:
    """Returns at least `nbytes` of memory, which is kept for later blocks once no array uses it any more."""
    step = max(mmap.PAGESIZE, 1 << max(0, nbytes.bit_length() - 3))  # few different sizes, so that kept memory fits
    size = max(1, -(-nbytes // step)) * step
    try:
        memory = _kept[size].pop()
    except (KeyError, IndexError):
        memory = _ordinary_pages(size)
    block = np.frombuffer(memory, np.uint8)
    weakref.finalize(block, _keep, memory).atexit = False
    return block


def _ordinary_pages(size: int) -> mmap.mmap:
    """Returns `size` bytes of memory in ordinary pages, also where the system prefers huge ones."""
    if not hasattr(mmap, "MADV_NOHUGEPAGE"):
        return mmap.mmap(-1, size)
    # Private pages, unlike shared ones, are not provided through a file system, which takes half as long again.
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):  # a kernel without huge pages
        memory.madvise(mmap.MADV_NOHUGEPAGE)
    return memory


def _keep(memory: mmap.mmap) -> None:
    if sum(size * len(blocks) for size, blocks in _kept.items()) + len(memory) <= _MOST_KEPT_BYTES:
        _kept.setdefault(len(memory), []).append(memory)
