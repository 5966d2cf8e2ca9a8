"""How much memory layer sequences and models touch: the weights that a run reads, and the other tensors."""

import math
from collections.abc import Iterable
from typing import NamedTuple

from costmodel.ir.fused import expand
from costmodel.ir.sequence import LayerSequence, weight_indices

__all__ = ["COLD", "Footprint", "activation_bytes", "read_bytes", "shared_bytes", "weight_bytes"]

# Positions of the inputs that are lookup tables, by operator.
_TABLES = {
    "Gather": (0,), "GatherElements": (0,), "GatherND": (0,), "GatherBlockQuantized": (0,),
    "EmbedLayerNormalization": (2, 3, 4),
}  # fmt: skip


class Footprint(NamedTuple):
    """How much memory a model touches, which determines what its layers find in the caches.

    Attributes:
        weights: Bytes of weights that one run of the model reads, those that several layers share once.
        activations: Bytes of the other tensors that its layer sequences read and write, each different sequence once,
            as when they are measured in turn.
    """

    weights: float
    activations: float

    @classmethod
    def of(cls, sequences: Iterable[LayerSequence], shared_bytes: int = 0) -> "Footprint":
        """Returns the footprint of a model that consists of the given sequences.

        Args:
            sequences: Sequences of the model, repetitions included.
            shared_bytes: Bytes of weights that the sequences read again because several share them (`shared_bytes`).
        """
        sequences = list(sequences)
        different = {sequence.signature: sequence for sequence in sequences}
        reads = {signature: read_bytes(sequence) for signature, sequence in different.items()}
        return cls(
            float(sum(reads[sequence.signature] for sequence in sequences) - shared_bytes),
            float(sum(map(activation_bytes, different.values()))),
        )


# Footprint of the surroundings of a layer that finds nothing in the caches.
COLD = Footprint(math.inf, 0.0)


def activation_bytes(sequence: LayerSequence) -> int:
    """Returns the total size in bytes of the tensors of a sequence that are not weights."""
    return sum(value.type.nbytes for value in sequence.values if value.role != "constant")


def weight_bytes(sequence: LayerSequence) -> int:
    """Returns the total size of the weights of a sequence in bytes."""
    return sum(sequence.values[index].type.nbytes for index in weight_indices(sequence))


def shared_bytes(separately: int, whole: LayerSequence) -> int:
    """Returns how many bytes of a model's weights its sequences read again because several of them share weights.

    An example is ALBERT, whose blocks all have the same weights, or a decoder whose steps are unrolled.

    Args:
        separately: Bytes of weights that the sequences read, each counted as often as it occurs.
        whole: The model as one sequence.
    """
    return max(0, separately - read_bytes(whole))


def read_bytes(sequence: LayerSequence) -> int:
    """Returns how many bytes of weights one run of a sequence reads.

    Weights are read in full, except lookup tables, of which only the rows that the run looks up count.
    """
    sequence = expand(sequence)
    weights = weight_indices(sequence)
    if not weights:
        return 0
    looked_up: dict[int, int] = {}
    for layer in sequence.layers:
        for slot in _TABLES.get(layer.op_type, ()):
            found = sum(sequence.values[index].type.nbytes for index in layer.outputs if index >= 0)
            looked_up[layer.inputs[slot]] = looked_up.get(layer.inputs[slot], 0) + found
    read_in_full = {
        index
        for layer in sequence.layers
        for slot, index in enumerate(layer.inputs)
        if slot not in _TABLES.get(layer.op_type, ())
    }
    sizes = {index: sequence.values[index].type.nbytes for index in weights}
    return sum(
        nbytes if index in read_in_full else min(nbytes, looked_up.get(index, nbytes))
        for index, nbytes in sizes.items()
    )
