"""Benchmarking time to equal precision: whole models against unique layers, from the raw times in a store.

    python benchmarks/precision.py SYSTEM [CORPUS]

For every model the runs that its end-to-end latency needs until its standard error is 1%; for the unique layers the
runs that bring the standard error of each constructed latency to 1% in the least time. Each network runs once before it
is timed, and at least twice. Loading is not counted on either side.
"""

import math
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush

import numpy as np

from costmodel.home import find_home
from costmodel.measurement import Measurement, quiet_latency_us
from costmodel.reproduction.construction import Construction, constructions, summarise
from costmodel.store import Store
from costmodel.training.corpus import corpus_models

TARGET = 0.01
FEWEST = 2
SLOWEST = 3
MEDIAN_ERROR = 1.2533  # standard error of a median over that of a mean, for normal noise


def spread(measurement: Measurement) -> float:
    """Robust standard deviation of one run, as a share of its time."""
    times = np.asarray(measurement.times_us)
    centre = np.median(times)
    return float(1.4826 * np.median(np.abs(times - centre)) / centre)


def runs(of_one: float, error: float) -> int:
    """Runs until the median's standard error is `error`, if one run has `of_one`."""
    return max(FEWEST, math.ceil((MEDIAN_ERROR * of_one / error) ** 2))


def time_of_models_s(found: Sequence[Construction], wholes: Mapping[str, Measurement]) -> float:
    """All models end to end, each until it is known."""
    return sum(item.end_to_end_us * (1 + runs(spread(wholes[item.model]), TARGET)) for item in found) / 1e6


def time_of_layers_s(found: Sequence[Construction], layers: Mapping[str, Measurement]) -> tuple[float, float]:
    """All unique layers until every model is known, each run where it buys most, and the mean runs of a layer."""
    times_us = {s: quiet_latency_us(layers[s].times_us) for item in found for s in item.signatures}
    taken = dict.fromkeys(times_us, FEWEST)
    for item in found:
        # What a layer adds to the variance of this model's sum, if it is run once, in squared shares of the sum.
        of_one = {
            s: (count * layers[s].latency_us * MEDIAN_ERROR * spread(layers[s]) / item.sequential_us) ** 2
            for s, count in Counter(item.signatures).items()
        }
        gains = [(-variance / taken[s] / (taken[s] + 1) / times_us[s], s) for s, variance in of_one.items()]
        heapify(gains)
        variance = sum(of_one[s] / taken[s] for s in of_one)
        while variance > TARGET**2:
            s = heappop(gains)[1]
            more = max(1, taken[s] // 8)  # in steps: some layers need thousands of runs, which take no time
            variance -= of_one[s] / taken[s] - of_one[s] / (taken[s] + more)
            taken[s] += more
            heappush(gains, (-of_one[s] / taken[s] / (taken[s] + 1) / times_us[s], s))
    return sum(times_us[s] * (1 + taken[s]) for s in taken) / 1e6, sum(taken.values()) / len(taken)


def main(system: str, corpus: str = "dlbricks") -> None:
    """Print both times and their ratio."""
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
