"""Footprint of a layer sequence: the size of its weights in bytes, and how many of these bytes a run reads."""

from costmodel.ir.sequence import LayerSequence, weight_indices

__all__ = ["read_bytes", "weight_bytes"]

# Positions of the inputs that are lookup tables, by operator.
_TABLES = {
    "Gather": (0,), "GatherElements": (0,), "GatherND": (0,), "GatherBlockQuantized": (0,),
    "EmbedLayerNormalization": (2, 3, 4),
}  # fmt: skip


def weight_bytes(sequence: LayerSequence) -> int:
    """Returns the total size of the weights of a sequence in bytes."""
    return sum(sequence.values[index].type.nbytes for index in weight_indices(sequence))


def read_bytes(sequence: LayerSequence) -> int:
    """Returns how many bytes of weights one run of a sequence reads.

    Weights are read in full, except lookup tables, of which only the rows that the run looks up count.
    """
    weights = weight_indices(sequence)
    if not weights:
        return 0
    looked_up = {
        layer.inputs[slot]: sum(sequence.values[index].type.nbytes for index in layer.outputs if index >= 0)
        for layer in sequence.layers
        for slot in _TABLES.get(layer.op_type, ())
    }
    sizes = {index: sequence.values[index].type.nbytes for index in weights}
    return sum(min(nbytes, looked_up.get(index, nbytes)) for index, nbytes in sizes.items())
