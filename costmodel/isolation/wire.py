"""A decomposition as JSON: each different sequence once, and where it stands."""

from collections.abc import Mapping
from typing import Any

from costmodel.decomposition import Decomposition, Piece
from costmodel.sequence import LayerSequence

__all__ = ["decomposition_from_dict", "decomposition_to_dict"]


def decomposition_to_dict(cut: Decomposition) -> dict[str, Any]:
    """Read back by `decomposition_from_dict`."""
    place = {signature: number for number, signature in enumerate(cut.unique)}
    return {
        "model": cut.model,
        "granularity": cut.granularity,
        "sequences": [sequence.text for sequence in cut.unique.values()],
        "pieces": [[place[piece.sequence.signature], piece.layers, piece.needs] for piece in cut.pieces],
    }


def decomposition_from_dict(data: Mapping[str, Any]) -> Decomposition:
    """What `decomposition_to_dict` wrote down.

    Raises:
        ValueError: It is not that.
    """
    try:
        sequences = [LayerSequence.from_text(text) for text in data["sequences"]]
        pieces = tuple(
            Piece(sequences[number], tuple(map(str, layers)), tuple(map(int, needs)))
            for number, layers, needs in data["pieces"]
        )
        return Decomposition(str(data["model"]), int(data["granularity"]), pieces)
    except (KeyError, TypeError, IndexError) as error:
        raise ValueError(f"not a decomposition: {error}") from error
