"""The cheapest cover: a model as sequences that need the least new benchmarking time, wherever they begin and end.

DLBricks cuts at fixed places, and names sequences that may overlap as future work. A sequence that another model has is
then missed when it lies across a cut. Here every window is a candidate: a run of consecutive layers that is runnable by
itself. A cover is windows that hold each layer exactly once, in execution order.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping

from costmodel.cutter import Cutter, Window
from costmodel.decomposition import CHEAPEST, Decomposition, decomposition_of, fixed_cut
from costmodel.graph import LayerGraph
from costmodel.sequence import LayerSequence

__all__ = ["Price", "cheapest_cover", "corpus_cover"]

# What benchmarking each of several sequences would take, by signature, in any unit of time; 0 where it is measured.
Price = Callable[[Mapping[str, LayerSequence]], Mapping[str, float]]


def cheapest_cover(model: str, graph: LayerGraph, granularity: int, price: Price) -> Decomposition:
    """The cover that needs the least new benchmarking time, and among such the fewest sequences.

    Time is that of the different sequences, each is benchmarked once. For a model without repeats the cover is optimal
    (dynamic programming over its layers). With repeats that is a hard problem: prices are shared among the uses of a
    sequence, as often as that brings the time down. It is never more than at the paper's fixed places.

    Args:
        model: Name, for the result.
        graph: Layers in execution order.
        granularity: The most layers in a window, unless they can only run together; at least 1.
        price: Asked once, for all windows.
    """
    cutter = Cutter(graph)
    fixed = fixed_cut(cutter, granularity)
    sequences = {window: cutter.sequence(window) for window in cutter.windows(granularity)}
    signatures = {window: sequence.signature for window, sequence in sequences.items()}
    prices = price({sequence.signature: sequence for sequence in sequences.values()})

    def cost(windows: list[Window]) -> tuple[float, int]:
        return math.fsum(prices[signature] for signature in {signatures[w] for w in windows}), len(windows)

    def shared_among(uses: Counter[str]) -> list[Window]:
        shared = {signature: prices[signature] / max(1, uses[signature]) for signature in prices}
        return _shortest_path(cutter.units, {window: shared[signature] for window, signature in signatures.items()})

    best = min(fixed, shared_among(Counter()), shared_among(Counter(signatures.values())), key=cost)
    while cost(better := shared_among(Counter(signatures[window] for window in best))) < cost(best):
        best = better
    return decomposition_of(model, granularity, cutter, best, CHEAPEST)


def _shortest_path(units: int, prices: Mapping[Window, float]) -> list[Window]:
    """Windows from the first unit to the last with the least sum of prices, and among such the fewest.

    Args:
        units: How many there are.
        prices: Of every window, in order of where they start; every unit by itself is one.
    """
    # Up to each unit: price, number of windows, where the last of them starts.
    best: list[tuple[float, int, int]] = [(0.0, 0, 0)] + [(math.inf, 0, 0)] * units
    for (first, last), price in prices.items():
        spent, count, _ = best[first]
        best[last] = min(best[last], (spent + price, count + 1, first))
    path = []
    last = units
    while last > 0:
        first = best[last][2]
        path.append((first, last))
        last = first
    return path[::-1]


def corpus_cover(graphs: Mapping[str, LayerGraph], granularity: int, price: Price) -> list[Decomposition]:
    """Covers of several models that are benchmarked one after the other: what those before need costs no more time.

    Args:
        graphs: Layers of each model, by its name.
        granularity: As in `cheapest_cover`.
        price: Asked once for each model.
    """
    chosen: set[str] = set()

    def more(windows: Mapping[str, LayerSequence]) -> dict[str, float]:
        return {signature: 0.0 if signature in chosen else time for signature, time in price(windows).items()}

    covers = []
    for model, graph in graphs.items():
        cover = cheapest_cover(model, graph, granularity, more)
        chosen.update(cover.unique)
        covers.append(cover)
    return covers
