"""How much memory layer sequences and models touch: the weights that a run reads, and the other tensors."""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from costmodel.ir.fused import expand
from costmodel.ir.graph import Layer, LayerGraph
from costmodel.ir.sequence import LayerSequence, weight_indices

__all__ = ["COLD", "Footprint", "activation_bytes", "model_read_bytes", "read_bytes", "shared_bytes", "weight_bytes"]

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


def shared_bytes(graph: LayerGraph, segments: Iterable[Sequence[Layer]]) -> int:
    """Returns how many bytes of a model's weights its segments read again because several of them share weights.

    Examples are ALBERT, whose blocks all have the same weights, and a decoder whose steps are unrolled.

    Args:
        graph: Layers of the model.
        segments: Layers of each segment.
    """
    reads: dict[str, list[float]] = {}
    for layers in segments:
        of_segment: dict[str, float] = {}
        for layer in layers:
            made = sum(graph.types[name].nbytes for name in layer.outputs if name)
            for slot, name in enumerate(layer.inputs):
                if name in graph.constants and graph.constants[name] is None:
                    looked_up = slot in _TABLES.get(layer.op_type, ())
                    of_segment[name] = of_segment.get(name, 0) + (made if looked_up else math.inf)
        for name, nbytes in of_segment.items():
            reads.setdefault(name, []).append(min(nbytes, graph.types[name].nbytes))
    return int(sum(max(0.0, sum(each) - graph.types[name].nbytes) for name, each in reads.items()))


def model_read_bytes(sequences: Iterable[LayerSequence], whole: LayerSequence) -> int:
    """Returns how many bytes of weights one run of a model reads, those that its layers share once.

    Args:
        sequences: Sequences of the model, repetitions included.
        whole: The model as one sequence.
    """
    return min(sum(map(read_bytes, sequences)), read_bytes(whole))


def read_bytes(sequence: LayerSequence) -> int:
    """Returns how many bytes of weights one run of a sequence reads.

    Weights are read in full, except lookup tables, of which only the rows that the run looks up count.
    """
    sequence = expand(sequence)
    weights = weight_indices(sequence)
    if not weights:
        return 0
    read: dict[int, float] = {}
    for layer in sequence.layers:
        made = sum(sequence.values[index].type.nbytes for index in layer.outputs if index >= 0)
        for slot, index in enumerate(layer.inputs):
            read[index] = read.get(index, 0) + (made if slot in _TABLES.get(layer.op_type, ()) else math.inf)
    return int(sum(min(sequence.values[index].type.nbytes, read.get(index, math.inf)) for index in weights))
