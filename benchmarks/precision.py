"""Compares the benchmarking time of whole models and of unique layers at equal precision, from stored raw times.

    python benchmarks/precision.py SYSTEM [CORPUS]

Whole models are run until the standard error of each end-to-end latency is 1%; unique layers are run such that the
standard error of each constructed latency reaches 1% in the least time. Each network is run once before it is timed,
and is timed at least twice. The time for loading is not counted for either.
"""

import math
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush

import numpy as np

from costmodel.jobs.reproduction.construction import Construction, constructions, summarise
from costmodel.measure.measurement import Measurement
from costmodel.measure.statistics import median_us
from costmodel.paths import find_home
from costmodel.store.store import Store
from costmodel.training.corpus import corpus_models

TARGET = 0.01
FEWEST = 2
SLOWEST = 3
MEDIAN_ERROR = 1.2533  # standard error of a median over that of a mean, for normal noise


def spread(measurement: Measurement) -> float:
    """Robust relative standard deviation of a single run, from the median absolute deviation."""
    times = np.asarray(measurement.times_us)
    centre = np.median(times)
    return float(1.4826 * np.median(np.abs(times - centre)) / centre)


def runs(of_one: float, error: float) -> int:
    """Number of runs after which the relative standard error of the median is `error`.

    Args:
        of_one: Relative standard deviation of a single run.
        error: Relative standard error to reach.
    """
    return max(FEWEST, math.ceil((MEDIAN_ERROR * of_one / error) ** 2))


def time_of_models_s(found: Sequence[Construction], wholes: Mapping[str, Measurement]) -> float:
    """Seconds for running all models end to end until each reaches the target precision."""
    return sum(item.end_to_end_us * (1 + runs(spread(wholes[item.model]), TARGET)) for item in found) / 1e6


def time_of_layers_s(found: Sequence[Construction], layers: Mapping[str, Measurement]) -> tuple[float, float]:
    """Seconds for running all unique layers until every model reaches the target precision, and mean runs of a layer.

    Greedy: the next runs go to the layer that reduces the variance of a model most for its time.
    """
    times_us = {s: median_us(layers[s].times_us) for item in found for s in item.signatures}
    taken = dict.fromkeys(times_us, FEWEST)
    for item in found:
        # Contribution of each layer, if it is run once, to the relative variance of this model's sum.
        of_one = {
            s: (count * layers[s].latency_us * MEDIAN_ERROR * spread(layers[s]) / item.sequential_us) ** 2
            for s, count in Counter(item.signatures).items()
        }
        gains = [(-variance / taken[s] / (taken[s] + 1) / times_us[s], s) for s, variance in of_one.items()]
        heapify(gains)
        variance = sum(of_one[s] / taken[s] for s in of_one)
        while variance > TARGET**2:
            s = heappop(gains)[1]
            more = max(1, taken[s] // 8)  # growing steps, because some tiny layers need thousands of runs
            variance -= of_one[s] / taken[s] - of_one[s] / (taken[s] + more)
            taken[s] += more
            heappush(gains, (-of_one[s] / taken[s] / (taken[s] + 1) / times_us[s], s))
    return sum(times_us[s] * (1 + taken[s]) for s in taken) / 1e6, sum(taken.values()) / len(taken)


def main(system: str, corpus: str = "dlbricks") -> None:
    """Prints both times and their ratio."""
    store = Store(find_home().store_url, create=False)
    timings = store.timings(system)
    measurements = {m.signature: m for m in store.measurements(system, repeats=False)}
    stored = [model for model in store.models() if model.granularity == 1]
    found = constructions(stored, timings, [model.name for model in corpus_models(corpus)])
    wholes = {model.name: measurements[model.whole] for model in stored if model.whole in measurements}
    models_s = time_of_models_s(found, wholes)
    layers_s, runs_of_one = time_of_layers_s(found, measurements)
    print(f"{system}, {corpus}: {len(found)} models to a standard error of {TARGET:.0%}")
    print(f"end to end      {models_s:8.1f} s")
    print(f"unique layers   {layers_s:8.1f} s, {runs_of_one:.0f} runs of each on average")
    print(f"ratio           {models_s / layers_s:8.1f}")
    rest = sorted(found, key=lambda item: -item.end_to_end_us)[SLOWEST:]
    ratio = time_of_models_s(rest, wholes) / time_of_layers_s(rest, measurements)[0]
    print(f"ratio without the {SLOWEST} slowest models {ratio:.1f}")
    speedups = [summarise(items, timings).speedup for items in (found, rest)]
    print("speed-up by the paper's definition {:.1f}, without these models {:.1f}".format(*speedups))


if __name__ == "__main__":
    main(*sys.argv[1:])
