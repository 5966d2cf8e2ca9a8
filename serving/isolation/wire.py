"""Conversion of decompositions to and from JSON: each distinct sequence once, and the segments that refer to it."""

from collections.abc import Mapping
from typing import Any

from costmodel.ir.sequence import LayerSequence
from costmodel.partition.decomposition import Decomposition, Segment

__all__ = ["decomposition_from_dict", "decomposition_to_dict"]


def decomposition_to_dict(decomposition: Decomposition) -> dict[str, Any]:
    """Returns a decomposition, JSON-serialisable; `decomposition_from_dict` reads it back."""
    index = {signature: number for number, signature in enumerate(decomposition.unique)}
    return {
        "model": decomposition.model,
        "granularity": decomposition.granularity,
        "sequences": [sequence.text for sequence in decomposition.unique.values()],
        "segments": [
            [index[segment.sequence.signature], segment.layers, segment.predecessors]
            for segment in decomposition.segments
        ],
    }


def decomposition_from_dict(data: Mapping[str, Any]) -> Decomposition:
    """Returns the decomposition that `decomposition_to_dict` wrote.

    Raises:
        ValueError: `data` is not a decomposition.
    """
    try:
        sequences = [LayerSequence.from_text(text) for text in data["sequences"]]
        segments = tuple(
            Segment(sequences[number], tuple(map(str, layers)), tuple(map(int, predecessors)))
            for number, layers, predecessors in data["segments"]
        )
        return Decomposition(str(data["model"]), int(data["granularity"]), segments)
    except (KeyError, TypeError, IndexError) as error:
        raise ValueError(f"not a decomposition: {error}") from error
