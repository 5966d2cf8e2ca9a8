"""Conflicts in the level 1 cache of a kernel that writes blocks of channels as rows of single channels.

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

__all__ = ["conflicting_writes"]

# The level 1 data caches of x86 processors: sets, and at least so many lines in each.
_LINE_BYTES, _SETS, _WAYS = 64, 64, 8
# With more channels, oneDNN goes over them in another order.
_MOST_ROWS = 64
# Images have a batch, channels and two axes; tokens are reordered without conflicts.
_LEAST_RANK = 4


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
