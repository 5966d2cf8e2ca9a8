"""Cheapest cover: cuts models into the sequences that need the least new benchmarking time.

The DLBricks paper cuts at fixed positions and leaves overlapping sequences to future work; a sequence that two models
share is then missed if it crosses a cut. Here every window (a run of consecutive layers that can run in isolation) is a
candidate. A cover is a list of windows that contain each layer exactly once, in execution order.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping

from costmodel.ir.graph import LayerGraph
from costmodel.ir.sequence import LayerSequence
from costmodel.partition.cutter import Cutter, Window
from costmodel.partition.decomposition import CHEAPEST, Decomposition, decomposition_of, fixed_cut

__all__ = ["Price", "cheapest_cover", "corpus_cover"]

# Returns the time that benchmarking each sequence would take, by signature, in any unit; 0 if it is measured already.
Price = Callable[[Mapping[str, LayerSequence]], Mapping[str, float]]


def cheapest_cover(model: str, graph: LayerGraph, granularity: int, price: Price) -> Decomposition:
    """Returns the cover of one model with the least new benchmarking time and, among those, the fewest sequences.

    Args:
        model: Name of the model.
        graph: Layers of the model in execution order.
        granularity: The most layers in a window, at least 1; only an atomic group may have more.
        price: Returns the benchmarking time of each given sequence; called once, for the sequences of all windows.
    """
    (cover,) = corpus_cover({model: graph}, granularity, price)
    return cover


def corpus_cover(graphs: Mapping[str, LayerGraph], granularity: int, price: Price) -> list[Decomposition]:
    """Returns covers of several models that together need little new benchmarking time, with few sequences.

    The time is the sum over distinct sequences, because each is benchmarked once. If no sequence occurs twice, the
    covers are optimal (dynamic programming over the layers). With repeats the problem is hard, and covers are improved
    step by step: the next covers are computed with the price of each sequence divided by its number of uses, or with
    sequences in use free of charge, as long as either lowers the time. The time is never more than with the fixed cuts
    of the DLBricks paper or with single layers.

    Args:
        graphs: Layers of each model, by the name of the model.
        granularity: The most layers in a window, at least 1; only an atomic group may have more.
        price: Returns the benchmarking time of each given sequence; called once, for the sequences of all windows.
    """
    cutters = {model: Cutter(graph) for model, graph in graphs.items()}
    fixed: list[Window] = []
    single: list[Window] = []
    sequences: dict[Window, LayerSequence] = {}
    units = 0  # units of all models are numbered consecutively; no window spans two models
    for cutter in cutters.values():
        fixed += _shifted(fixed_cut(cutter, granularity), units)
        single += _shifted(fixed_cut(cutter, 1), units)
        windows = list(cutter.windows(granularity))
        sequences.update(zip(_shifted(windows, units), map(cutter.sequence, windows), strict=True))
        units += cutter.units
    signatures = {window: sequence.signature for window, sequence in sequences.items()}
    prices = price({sequence.signature: sequence for sequence in sequences.values()})

    def cost(windows: list[Window]) -> tuple[float, int]:
        return math.fsum(prices[signature] for signature in {signatures[w] for w in windows}), len(windows)

    def cheapest(price_of: Callable[[str], float]) -> list[Window]:
        current = {signature: price_of(signature) for signature in prices}
        return _shortest_path(units, {window: current[signature] for window, signature in signatures.items()})

    def shared_among(uses: Counter[str]) -> list[Window]:
        return cheapest(lambda signature: prices[signature] / max(1, uses[signature]))

    def improved(windows: list[Window]) -> list[Window]:
        uses = Counter(signatures[window] for window in windows)
        reused = cheapest(lambda signature: 0.0 if signature in uses else prices[signature])
        better = min(shared_among(uses), reused, key=cost)
        return improved(better) if cost(better) < cost(windows) else windows

    starts = (fixed, single, shared_among(Counter()), shared_among(Counter(signatures.values())))
    best = min(map(improved, starts), key=cost)
    covers, begin = [], 0
    for model, cutter in cutters.items():
        own = _shifted([window for window in best if begin <= window[0] < begin + cutter.units], -begin)
        covers.append(decomposition_of(model, granularity, cutter, own, CHEAPEST))
        begin += cutter.units
    return covers


def _shifted(windows: list[Window], units: int) -> list[Window]:
    """Returns the windows with both ends moved by a number of units (single layers or atomic groups)."""
    return [(first + units, last + units) for first, last in windows]


def _shortest_path(units: int, prices: Mapping[Window, float]) -> list[Window]:
    """Returns the consecutive windows over all units with the least total price and, at that price, the fewest windows.

    Args:
        units: Number of units (single layers or atomic groups).
        prices: Price of every possible window, ordered by its first unit; each single unit must be such a window.
    """
    # For each number of leading units: least price, number of windows, start of the last window.
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
