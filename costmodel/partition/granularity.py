"""Chooses a granularity for each model by expected error and measuring time.

The fewer the cuts, the smaller the error of the summed latencies, because the measurement of a long sequence includes
the effects of its layers on each other. But long sequences recur less often than single layers, so that more of them
have to be measured. The best granularity depends on the model, on what is measured already, and on the time available
for more measurements.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from costmodel.ir.graph import LayerGraph
from costmodel.partition.decomposition import Decomposition, Segment, decompose, whole_model

__all__ = [
    "AUTO",
    "GRANULARITIES",
    "NO_ESTIMATE",
    "Granularity",
    "GranularityChoice",
    "candidates",
    "choose_granularities",
    "is_whole",
]

Granularity = int | Literal["auto"]
AUTO: Literal["auto"] = "auto"
GRANULARITIES = (1, 2, 3, 5, 10)
# Expected error assigned to a model without an estimate: as bad as an estimate that is wrong by a factor of e.
NO_ESTIMATE = 1.0


@dataclass(frozen=True, slots=True)
class GranularityChoice:
    """A granularity at which the latency of a model can be estimated, with its expected error and measuring time.

    Attributes:
        granularity: The most layers in a sequence.
        error: Expected |log(estimate / latency)|.
        seconds: Further measuring time in seconds that the estimate requires; 0 if it requires none.
        measured: Whether all sequences are measured after that time; if not, the costs of the rest are predicted.
    """

    granularity: int
    error: float
    seconds: float
    measured: bool = True


def candidates(model: str, graph: LayerGraph) -> tuple[Decomposition, ...]:
    """Returns the candidate decompositions of a model: one for each of `GRANULARITIES`, and last the whole model.

    A decomposition with the same sequences as a finer one is left out. The granularity of the whole model is the number
    of its layers.

    Args:
        model: Name of the model.
        graph: Layers of the model.
    """
    cuts: list[Decomposition] = []
    for granularity in GRANULARITIES:
        if granularity == 1 or granularity < len(graph.layers):
            cut = decompose(model, graph, granularity)
            if not cuts or not (is_whole(cut) or any(cut.counts == finer.counts for finer in cuts)):
                cuts.append(cut)
    if not is_whole(cuts[0]):
        names = tuple(layer.name for layer in graph.layers)
        cuts.append(Decomposition(model, len(names), (Segment(whole_model(graph), names, ()),), memory=cuts[0].memory))
    return tuple(cuts)


def is_whole(cut: Decomposition) -> bool:
    """Returns whether a model is not cut at all, so that its latency is measured and not constructed."""
    return len(cut.segments) == 1


def choose_granularities(
    options: Mapping[str, Sequence[GranularityChoice]], budget_s: float
) -> dict[str, GranularityChoice | None]:
    """Chooses a granularity for each model, so that expected errors are small and the total time is within a budget.

    Each model begins with the best of its options that need no time. Then, greedily, the model and option with the
    largest reduction of expected error per additional second are chosen, until no reduction fits the budget. A larger
    budget never increases the sum of the expected errors.

    Args:
        options: Options (granularities with their expected error) of each model, by the name of the model.
        budget_s: Time for all models together in seconds.

    Returns:
        One option for each model, by name; None if every option of the model needs time and none fits the budget.
    """
    chosen: dict[str, GranularityChoice | None] = {
        model: min((o for o in of_model if o.seconds <= 0), key=lambda o: (o.error, -o.granularity), default=None)
        for model, of_model in options.items()
    }
    while step := _best_step(options, chosen, budget_s):
        model, option = step
        chosen[model] = option
    return chosen


def _best_step(
    options: Mapping[str, Sequence[GranularityChoice]], chosen: Mapping[str, GranularityChoice | None], budget_s: float
) -> tuple[str, GranularityChoice] | None:
    """Returns the model and option within the budget that reduce expected error most per additional second, if any."""
    spent_s = math.fsum(option.seconds for option in chosen.values() if option is not None)
    best, best_rate = None, 0.0
    for model, of_model in options.items():
        current = chosen[model]
        for option in of_model:
            gain = _capped_error(current) - _capped_error(option)
            more_s = option.seconds - (0.0 if current is None else current.seconds)
            if gain <= 0 or spent_s + more_s > budget_s:
                continue
            rate = gain / more_s if more_s > 0 else math.inf
            if rate > best_rate:
                best, best_rate = (model, option), rate
    return best


def _capped_error(option: GranularityChoice | None) -> float:
    """Returns the expected error of an option, limited to `NO_ESTIMATE`; `NO_ESTIMATE` if there is no option."""
    return NO_ESTIMATE if option is None else min(option.error, NO_ESTIMATE)
