"""The cheapest cover: models as sequences that need the least new benchmarking time, wherever they begin and end.

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
    """The cover of one model that needs the least new benchmarking time, and among such the fewest sequences.

    Args:
        model: Name, for the result.
        graph: Layers in execution order.
        granularity: The most layers in a window, unless they can only run together; at least 1.
        price: Asked once, for all windows.
    """
    (cover,) = corpus_cover({model: graph}, granularity, price)
    return cover


def corpus_cover(graphs: Mapping[str, LayerGraph], granularity: int, price: Price) -> list[Decomposition]:
    """The covers of several models that together need the least new benchmarking time, then the fewest sequences.

    Time is that of the different sequences, each is benchmarked once. Where none is needed twice the covers are optimal
    (dynamic programming over the layers). With repeats that is a hard problem: the price of a sequence is shared among
    its uses, and what is used anyway is free to be used again, as often as that is better. It is never more time than
    at the paper's fixed places, or for single layers.

    Args:
        graphs: Layers of each model, by its name.
        granularity: As in `cheapest_cover`.
        price: Asked once, for all windows of all models.
    """
    cutters = {model: Cutter(graph) for model, graph in graphs.items()}
    fixed: list[Window] = []
    single: list[Window] = []
    sequences: dict[Window, LayerSequence] = {}
    units = 0  # one model behind the other, and no window across
    for cutter in cutters.values():
        fixed += _moved(fixed_cut(cutter, granularity), units)
        single += _moved(fixed_cut(cutter, 1), units)
        windows = list(cutter.windows(granularity))
        sequences.update(zip(_moved(windows, units), map(cutter.sequence, windows), strict=True))
        units += cutter.units
    signatures = {window: sequence.signature for window, sequence in sequences.items()}
    prices = price({sequence.signature: sequence for sequence in sequences.values()})

    def cost(windows: list[Window]) -> tuple[float, int]:
        return math.fsum(prices[signature] for signature in {signatures[w] for w in windows}), len(windows)

    def cheapest(price_of: Callable[[str], float]) -> list[Window]:
        found = {signature: price_of(signature) for signature in prices}
        return _shortest_path(units, {window: found[signature] for window, signature in signatures.items()})

    def shared_among(uses: Counter[str]) -> list[Window]:
        return cheapest(lambda signature: prices[signature] / max(1, uses[signature]))

    def improved(windows: list[Window]) -> list[Window]:
        uses = Counter(signatures[window] for window in windows)
        once_more = cheapest(lambda signature: 0.0 if signature in uses else prices[signature])
        better = min(shared_among(uses), once_more, key=cost)
        return improved(better) if cost(better) < cost(windows) else windows

    starts = (fixed, single, shared_among(Counter()), shared_among(Counter(signatures.values())))
    best = min(map(improved, starts), key=cost)
    covers, begin = [], 0
    for model, cutter in cutters.items():
        own = _moved([window for window in best if begin <= window[0] < begin + cutter.units], -begin)
        covers.append(decomposition_of(model, granularity, cutter, own, CHEAPEST))
        begin += cutter.units
    return covers


def _moved(windows: list[Window], units: int) -> list[Window]:
    return [(first + units, last + units) for first, last in windows]


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
