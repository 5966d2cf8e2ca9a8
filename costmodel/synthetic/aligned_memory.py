"""Memory for synthetic tensors that is laid out as ONNX Runtime lays out the tensors of a model.

Each tensor begins at a multiple of 64 bytes, so that no vector register is loaded from two cache lines, and lies in
ordinary memory pages. Arrays of numpy begin anywhere: large ones 16 bytes after the start of a page, and in huge pages
(docs/adr/0005).
"""

import mmap
from collections.abc import Sequence

import numpy as np

__all__ = ["ALIGNMENT_BYTES", "aligned_copies", "is_aligned"]

ALIGNMENT_BYTES = 64


def is_aligned(array: np.ndarray) -> bool:
    """Returns whether an array begins at a multiple of `ALIGNMENT_BYTES`."""
    return array.ctypes.data % ALIGNMENT_BYTES == 0


def aligned_copies(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Returns copies of arrays, one after the other in one block of ordinary memory pages."""
    starts = np.cumsum([0, *(-(-array.nbytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES for array in arrays)]).tolist()
    block = np.frombuffer(mmap.mmap(-1, max(1, starts[-1])), np.uint8)
    copies = []
    for start, array in zip(starts, arrays, strict=False):
        copy = block[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
        copy[...] = array
        copies.append(copy)
    return copies
