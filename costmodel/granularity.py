"""Granularity chosen for each model: the fewer the cuts, the smaller the error of the sum.

A long sequence holds what its layers do to each other. But it repeats less often than they do, and has to be measured.
So the best granularity depends on the model, on what is measured already, and on the time that there is for more.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from costmodel.decomposition import Decomposition, Piece, decompose, whole_model
from costmodel.graph import LayerGraph

__all__ = ["AUTO", "GRANULARITIES", "NO_ESTIMATE", "Granularity", "Option", "candidates", "choose", "is_whole"]

Granularity = int | Literal["auto"]
AUTO: Literal["auto"] = "auto"
GRANULARITIES = (1, 2, 3, 5, 10)
# What no estimate counts as beside expected errors: an estimate that is wrong by a factor of e is worth as little.
NO_ESTIMATE = 1.0


@dataclass(frozen=True, slots=True)
class Option:
    """One way to know the latency of a model.

    Attributes:
        granularity: The most layers in a sequence.
        error: Expected |log(estimate / latency)|.
        seconds: What measuring takes until this is possible; 0 if it is possible now.
        measured: Whether all of its sequences are measured then; if not, the others are predicted.
    """

    granularity: int
    error: float
    seconds: float
    measured: bool = True


def candidates(model: str, graph: LayerGraph) -> tuple[Decomposition, ...]:
    """The ways to cut a model among which to choose, by granularity: `GRANULARITIES`, and last not at all.

    One that cuts as a finer one does is left out. The model as a whole has the number of its layers as granularity.

    Args:
        model: Its name.
        graph: Its layers.
    """
    found: list[Decomposition] = []
    for granularity in GRANULARITIES:
        if granularity == 1 or granularity < len(graph.layers):
            cut = decompose(model, graph, granularity)
            if not found or not (is_whole(cut) or any(cut.counts == finer.counts for finer in found)):
                found.append(cut)
    if not is_whole(found[0]):
        names = tuple(layer.name for layer in graph.layers)
        found.append(Decomposition(model, len(names), (Piece(whole_model(graph), names, ()),)))
    return tuple(found)


def is_whole(cut: Decomposition) -> bool:
    """Whether a model is not cut at all, so that its latency is measured and not constructed."""
    return len(cut.pieces) == 1


def choose(options: Mapping[str, Sequence[Option]], budget_s: float) -> dict[str, Option | None]:
    """What to measure of each model, so that the expected errors are small and the time is enough for all.

    Each model begins with the best that needs no time. Then the budget goes, step by step, where a second buys most:
    to the model and the option that lower an expected error most for the seconds that they take more. With a larger
    budget the sum of the expected errors is never larger.

    Args:
        options: Of each model.
        budget_s: Seconds for all models together.

    Returns:
        One option for each model; None where there is no estimate without measuring, and nothing fits.
    """
    chosen: dict[str, Option | None] = {
        model: min((o for o in of_model if o.seconds <= 0), key=lambda o: (o.error, -o.granularity), default=None)
        for model, of_model in options.items()
    }
    while step := _best_step(options, chosen, budget_s):
        model, option = step
        chosen[model] = option
    return chosen


def _best_step(
    options: Mapping[str, Sequence[Option]], chosen: Mapping[str, Option | None], budget_s: float
) -> tuple[str, Option] | None:
    spent_s = math.fsum(option.seconds for option in chosen.values() if option is not None)
    best, most = None, 0.0
    for model, of_model in options.items():
        now = chosen[model]
        for option in of_model:
            gain = _worth(now) - _worth(option)
            more_s = option.seconds - (0.0 if now is None else now.seconds)
            if gain <= 0 or spent_s + more_s > budget_s:
                continue
            rate = gain / more_s if more_s > 0 else math.inf
            if rate > most:
                best, most = (model, option), rate
    return best


def _worth(option: Option | None) -> float:
    return NO_ESTIMATE if option is None else min(option.error, NO_ESTIMATE)
