"""Measures repeatability: compares measurements of the same layers and models in two stores, made hours apart.

    python benchmarks/repeatability.py SYSTEM --first sqlite:///first.db --second sqlite:///second.db

Prints the mean relative difference (the noise floor of any predictor) and the shares within 5% and 10%; then the same
with every measurement divided by the time of the reference kernel between its runs.
"""

import argparse
from collections.abc import Iterable
from itertools import pairwise
from statistics import median

import numpy as np

from costmodel.measure.measurement import Measurement
from costmodel.store.store import Store

SIZES_US = (0.0, 2.0, 5.0, 20.0, 100.0, float("inf"))


def latencies(measurements: Iterable[Measurement]) -> dict[str, tuple[float, float]]:
    """Returns for each signature the medians over its measurements of its latency and of the reference kernel's."""
    found: dict[str, list[tuple[float, float]]] = {}
    for measurement in measurements:
        if not measurement.observed:
            pair = (measurement.latency_us, median(measurement.reference_us))
            found.setdefault(measurement.signature, []).append(pair)
    return {signature: (median(a for a, _ in of), median(b for _, b in of)) for signature, of in found.items()}


def line(name: str, ratios: np.ndarray) -> str:
    """Formats a row of the table."""
    errors = np.abs(ratios - 1)
    return (
        f"{name:32s}{len(ratios):8d}{np.exp(np.log(ratios).mean()):9.3f}{errors.mean():8.1%}{np.median(errors):8.1%}"
        f"{(errors <= 0.05).mean():7.0%}{(errors <= 0.10).mean():7.0%}"
    )


def main() -> None:
    """Compares two stores."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("system")
    parser.add_argument("--first", required=True)
    parser.add_argument("--second", required=True)
    arguments = parser.parse_args()
    stores = [Store(arguments.first), Store(arguments.second)]
    first, second = (latencies(store.measurements(arguments.system)) for store in stores)
    wholes = {model.whole for store in stores for model in store.models()}
    both = sorted(first.keys() & second.keys())
    print(f"{arguments.system}, measured twice: second over first")
    print(f"{'':32s}{'number':>8s}{'geomean':>9s}{'mean':>8s}{'median':>8s}{'in 5%':>7s}{'in 10%':>7s}")
    for name, wanted in (("models end to end", True), ("layers", False)):
        pairs = np.array([(*first[s], *second[s]) for s in both if (s in wholes) == wanted])
        ratios, drift = pairs[:, 2] / pairs[:, 0], pairs[:, 3] / pairs[:, 1]
        print(line(name, ratios))
        print(line(f"{name}, over reference", ratios / drift))
        if not wanted:
            for least, most in pairwise(SIZES_US):
                within = (pairs[:, 0] >= least) & (pairs[:, 0] < most)
                if within.any():
                    print(line(f"  {least:g} to {most:g} us", ratios[within]))
    low, middle, high = np.quantile(drift, (0.05, 0.5, 0.95))
    print(f"reference kernel, second over first: {middle:.3f} (median), {low:.3f} to {high:.3f}")


if __name__ == "__main__":
    main()
