"""Converts decompositions of models to and from JSON-serialisable data.

The data contains each distinct layer sequence once; segments refer to the sequences by position.
"""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from costmodel.ir.sequence import LayerSequence
from costmodel.memory.session import MemoryDemand
from costmodel.partition.decomposition import Decomposition, Segment

__all__ = ["decomposition_from_dict", "decomposition_to_dict"]


def decomposition_to_dict(decomposition: Decomposition) -> dict[str, Any]:
    """Returns a decomposition as JSON-serialisable data, which `decomposition_from_dict` reads."""
    index = {signature: number for number, signature in enumerate(decomposition.unique)}
    return {
        "model": decomposition.model,
        "granularity": decomposition.granularity,
        "sequences": [sequence.text for sequence in decomposition.unique.values()],
        "segments": [
            [index[segment.sequence.signature], segment.layers, segment.predecessors]
            for segment in decomposition.segments
        ],
        "memory": None if decomposition.memory is None else asdict(decomposition.memory),
        "shared_bytes": decomposition.shared_bytes,
    }


def decomposition_from_dict(data: Mapping[str, Any]) -> Decomposition:
    """Returns the decomposition from the data that `decomposition_to_dict` returned.

    Raises:
        ValueError: `data` does not describe a decomposition.
    """
    try:
        sequences = [LayerSequence.from_text(text) for text in data["sequences"]]
        segments = tuple(
            Segment(sequences[number], tuple(map(str, layers)), tuple(map(int, predecessors)))
            for number, layers, predecessors in data["segments"]
        )
        memory = _memory_from_dict(data["memory"])
        shared = int(data["shared_bytes"])
        return Decomposition(str(data["model"]), int(data["granularity"]), segments, memory=memory, shared_bytes=shared)
    except (KeyError, TypeError, IndexError) as error:
        raise ValueError(f"not a decomposition: {error}") from error


def _memory_from_dict(data: Mapping[str, Any] | None) -> MemoryDemand | None:
    if data is None:
        return None
    return MemoryDemand(**{**data, "in_narrow_blocks": _memory_from_dict(data["in_narrow_blocks"])})
