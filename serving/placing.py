"""What the layers of a model cost among each other, by what each costs alone."""

from collections.abc import Sequence

import numpy as np

from costmodel.composition import Cost
from costmodel.decomposition import Piece
from costmodel.in_place import InPlace

__all__ = ["placed"]


def placed(
    pieces: Sequence[Piece], costs: Sequence[Cost | None], measured: InPlace, predicted: InPlace, pressure: float
) -> list[Cost | None]:
    """The costs of a model's pieces in their place.

    A piece of several layers keeps its cost, since whole models have told of single ones only; so does a model of one
    piece, which is that piece.

    Args:
        pieces: Of the model, in execution order.
        costs: Of each alone; None where there is none.
        measured: What measured costs become.
        predicted: What predicted ones become.
        pressure: That of the model's weights, see `costmodel.in_place.pressure`.
    """
    result = list(costs)
    if len(pieces) == 1:
        return result
    rows: dict[bool, list[int]] = {True: [], False: []}
    for row, (piece, cost) in enumerate(zip(pieces, costs, strict=True)):
        if cost is not None and len(piece.layers) == 1:
            rows[cost.source == "measured"].append(row)
    for is_measured, in_place in ((True, measured), (False, predicted)):
        alone = [(row, cost) for row in rows[is_measured] if (cost := costs[row]) is not None]
        latencies_us = np.array([cost.latency_us for _, cost in alone])
        factors = in_place.factors(latencies_us, [cost.kind for _, cost in alone], pressure)
        for (row, cost), factor in zip(alone, factors.tolist(), strict=True):
            result[row] = cost.scaled(factor)
    return result
