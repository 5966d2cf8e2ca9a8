"""Conflicts in caches: of layers that read columns, and of kernels that write channels one by one.

A transposition reads a column: a few bytes of each row, and the next ones of all rows after that. Rows whose distance
is a multiple of some power of two fall into few sets of the level 1 cache and displace each other, so that each line
comes from the next cache several times. On a Zen 4, an element of 4 bytes takes 0.6 ns instead of 0.15 then, and one of
1 byte 0.3 ns instead of 0.07. A reduction that adds up a column takes 2.8 ns for an element instead of 0.85 then, and 2
ns where the lines of the column have room in fewer sets of the level 2 cache than they need.

oneDNN's reorder from a channels-last layout writes one element of each row in turn. A row's cache line is written again
with the next position, unless the other rows have displaced it: rows whose distance is a multiple of some power of two
fall into few sets of the level 1 cache. An element then takes 3 to 6 ns instead of 0.2 to 2 (docs/adr/0029).
"""

import math
from collections import Counter
from collections.abc import Sequence

from costmodel.features.products import Types
from costmodel.ir.graph import ITEM_BYTES, TensorType
from costmodel.ir.sequence import SequenceLayer

__all__ = ["claimed_bytes", "conflicting_writes", "crowding"]

# The level 1 data caches of x86 processors: sets, and at least so many lines in each.
_LINE_BYTES, _SETS, _WAYS = 64, 64, 8
# Of a level 2 cache, at most so many bytes are in one way: 2 MiB in 16 of them.
_LARGEST_WAY_BYTES = 1 << 17
# With more channels, oneDNN goes over them in another order.
_MOST_ROWS = 64
# Images have a batch, channels and two axes; tokens are reordered without conflicts.
_LEAST_RANK = 4


def crowding(rows: int, row_bytes: int) -> float:
    """Returns how crowded a column of a matrix is in the level 1 cache.

    It is 1 if its lines may fall into any set of the cache, or have room in the sets into which they fall, and 64 if
    they all fall into the same one.

    Args:
        rows: Number of rows of the matrix.
        row_bytes: Distance between rows in bytes.
    """
    common = math.gcd(row_bytes, _SETS * _LINE_BYTES)
    sets = _SETS * _LINE_BYTES // max(common, _LINE_BYTES)
    return _SETS / sets if rows > _WAYS * sets else 1.0


def claimed_bytes(rows: int, row_bytes: int) -> int:
    """Returns how many bytes of a cache the lines of a column claim, which fall into some of its sets only.

    Of rows whose distance is a multiple of a larger power of two, fewer lines have room: a row of 1 KiB claims 1 KiB,
    whatever the number of ways of the cache.

    Args:
        rows: Number of rows of the matrix.
        row_bytes: Distance between rows in bytes.
    """
    return rows * max(_LINE_BYTES, math.gcd(row_bytes, _LARGEST_WAY_BYTES))


def conflicting_writes(layer: SequenceLayer, inputs: Types, outputs: Sequence[TensorType]) -> int:
    """Returns how many elements a layer writes in conflict with others: those of its first output, or none.

    A layer that reads blocks of channels and writes a plain tensor contains a reorder. ONNX Runtime's ReorderOutput
    writes whole lines.

    Args:
        layer: The layer.
        inputs: Types of its inputs; None for an absent one.
        outputs: Types of its outputs.
    """
    if not inputs or not outputs or inputs[0] is None or layer.op_type == "ReorderOutput":
        return 0
    data, output = inputs[0], outputs[0]
    if not data.blocked or output.blocked or len(output.shape) < _LEAST_RANK:
        return 0
    rows = output.shape[1]
    if not _WAYS < rows <= _MOST_ROWS:
        return 0
    row_bytes = math.prod(output.shape[2:]) * ITEM_BYTES.get(output.dtype, 0)
    sets = Counter(int(row * row_bytes) // _LINE_BYTES % _SETS for row in range(rows))
    return output.elements if max(sets.values()) > _WAYS else 0
