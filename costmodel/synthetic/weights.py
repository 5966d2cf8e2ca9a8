"""Writes synthetic weights to memory, as far as a run reads them."""

from collections.abc import Mapping

import numpy as np

from costmodel.ir.graph import TensorType
from costmodel.ir.sequence import LayerSequence
from costmodel.synthetic.values import synthetic_tensor, synthetic_value, weight_start

__all__ = ["write_weight"]


def write_weight(sequence: LayerSequence, index: int, inputs: Mapping[int, np.ndarray], out: np.ndarray) -> None:
    """Writes synthetic values to the memory of a weight; in an embedding table, only to the rows that are looked up.

    The other rows of a table keep the values that the memory had. No run reads them, and writing a table of 200 MB
    takes longer than everything else that a lookup needs.

    Args:
        sequence: Sequence in the layout in which it will run.
        index: Index of the weight.
        inputs: Values of the inputs of the sequence, by index.
        out: Memory of the weight, an array of its type and shape.
    """
    ids = inputs.get(_ids_of_table(sequence, index))
    if ids is None:
        synthetic_value(sequence, index, out=out)
        return
    rows = np.unique(ids)
    kind = TensorType(sequence.values[index].type.dtype, (len(rows), *out.shape[1:]))
    out[rows] = synthetic_tensor(kind, start=weight_start(index))


def _ids_of_table(sequence: LayerSequence, index: int) -> int:
    """Returns the index of the ids with which the only layer looks up rows of a weight; -1 if it is no table."""
    (layer, *others) = sequence.layers
    if others or (layer.op_type, layer.domain) != ("Gather", "") or layer.inputs[0] != index:
        return -1
    return layer.inputs[1] if layer.attributes.get("axis", {"i": 0})["i"] == 0 else -1
