"""Benchmarking time to equal precision: whole models against unique layers, from the raw times in a store.

    python benchmarks/precision.py SYSTEM [CORPUS]

For every model the runs that its end-to-end latency needs until its standard error is 1%; for every unique layer the
runs that all models need of it until the standard error of each constructed latency is 1%. Each network runs once
before it is timed, and at least twice. Loading is not counted on either side.
"""

import math
import sys
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from costmodel.home import find_home
from costmodel.measurement import Measurement, quiet_latency_us
from costmodel.reproduction.construction import Construction, constructions, measured, summarise
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
    """All unique layers until every model is known, and the precision of one layer that this takes."""
    spreads = {signature: spread(measurement) for signature, measurement in layers.items()}
    low, high = 1e-4, 1.0
    while high / low > 1.01:  # the coarsest precision of a layer that is fine enough for every model
        error = math.sqrt(low * high)
        if all(constructed_error(item, layers, spreads, error) <= TARGET for item in found):
            low = error
        else:
            high = error
    unique = {signature for item in found for signature in item.signatures}
    return sum(quiet_latency_us(layers[s].times_us) * (1 + runs(spreads[s], low)) for s in unique) / 1e6, low


def constructed_error(
    item: Construction, layers: Mapping[str, Measurement], spreads: Mapping[str, float], error: float
) -> float:
    """Standard error of a constructed latency whose layers have runs for `error` each."""
    squares = [
        (count * layers[s].latency_us * MEDIAN_ERROR * spreads[s]) ** 2 / runs(spreads[s], error)
        for s, count in Counter(item.signatures).items()
    ]
    return math.sqrt(sum(squares)) / item.sequential_us


def main(system: str, corpus: str = "dlbricks") -> None:
    """Print both times and their ratio."""
    store = Store(find_home().store_url, create=False)
    measurements = measured(store, system)
    stored = [model for model in store.models() if model.granularity == 1]
    found = constructions(stored, measurements, [model.name for model in corpus_models(corpus)])
    wholes = {model.name: measurements[model.whole] for model in stored if model.whole in measurements}
    models_s = time_of_models_s(found, wholes)
    layers_s, error = time_of_layers_s(found, measurements)
    print(f"{system}, {corpus}: {len(found)} models to a standard error of {TARGET:.0%}")
    print(f"end to end      {models_s:8.1f} s")
    print(f"unique layers   {layers_s:8.1f} s, each to {error:.1%}")
    print(f"ratio           {models_s / layers_s:8.1f}")
    rest = sorted(found, key=lambda item: -item.end_to_end_us)[SLOWEST:]
    ratio = time_of_models_s(rest, wholes) / time_of_layers_s(rest, measurements)[0]
    print(f"ratio without the {SLOWEST} slowest models {ratio:.1f}")
    speedups = [summarise(items, measurements).speedup for items in (found, rest)]
    print("speed-up by the paper's definition {:.1f}, without these models {:.1f}".format(*speedups))


if __name__ == "__main__":
    main(*sys.argv[1:])
