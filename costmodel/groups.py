"""Groups: what is loaded together and takes turns while it is timed."""

from collections.abc import Iterable
from dataclasses import dataclass

from costmodel.model import Model
from costmodel.network import weight_indices
from costmodel.sequence import LayerSequence

__all__ = ["Group", "grouped", "weight_bytes"]

_MOST_LOADED = 256
_MOST_BYTES = 2 << 30


@dataclass(frozen=True, slots=True)
class Group:
    """The sequences of a model, or some of no model in particular.

    Those of a model are each other's surroundings: all take turns as soon as one of them is to be measured.

    Attributes:
        label: What to call it while it is measured; the name of the model.
        sequences: In the order of their model.
        whole: The model as one sequence, to be timed end to end in the same turns; None where it is not wanted.
        model: That model.
        footprint_bytes: Weights of the whole model; None where there is no model, and caches are taken as cold.
    """

    label: str
    sequences: tuple[LayerSequence, ...]
    whole: LayerSequence | None = None
    model: Model | None = None
    footprint_bytes: int | None = None


def grouped(
    sequences: Iterable[LayerSequence], *, most_loaded: int = _MOST_LOADED, most_bytes: int = _MOST_BYTES
) -> list[Group]:
    """Groups of sequences that are of no model in particular, each small enough to be loaded at once.

    Args:
        sequences: In their order.
        most_loaded: Sequences in a group.
        most_bytes: Weights in a group that has more than one sequence.
    """
    parts: list[list[LayerSequence]] = []
    nbytes = 0
    for sequence in sequences:
        weights = weight_bytes(sequence)
        if not parts or len(parts[-1]) == most_loaded or nbytes + weights > most_bytes:
            parts.append([])
            nbytes = 0
        parts[-1].append(sequence)
        nbytes += weights
    return [Group(part[0].kind, tuple(part)) for part in parts]


def weight_bytes(sequence: LayerSequence) -> int:
    """Bytes of the weights of a sequence."""
    return sum(sequence.values[index].type.nbytes for index in weight_indices(sequence))
