"""Compares statistics of the raw times of layers and models, and numbers of laps, from the times in a store.

    python benchmarks/statistic.py SYSTEM

Prints the table of docs/adr/0005 on statistics, for all models that are measured end to end and in layers.
"""

import sys
from collections.abc import Callable, Iterable, Sequence
from statistics import median

import numpy as np

from costmodel.measure.measurement import MIN_LATENCY_US, Measurement
from costmodel.paths import find_home
from costmodel.store.store import Store, StoredModel

Statistic = Callable[[np.ndarray], float]


def mean_below(factor: float) -> Statistic:
    """Returns the statistic that is the mean of the runs of at most `factor` times the median."""
    return lambda times: float(times[times <= factor * np.median(times)].mean())


MEDIAN: Statistic = lambda times: float(np.median(times))  # noqa: E731
STATISTICS: dict[str, tuple[Statistic, Statistic]] = {  # of a layer, of a model
    "median, median": (MEDIAN, MEDIAN),
    "quantile 0.2, the same": (lambda t: float(np.quantile(t, 0.2)), lambda t: float(np.quantile(t, 0.2))),
    "mean, mean": (lambda t: float(t.mean()), lambda t: float(t.mean())),
    "mean, median": (lambda t: float(t.mean()), MEDIAN),
    "mean below 3 medians, median": (mean_below(3.0), MEDIAN),
    "mean below 2 medians, median": (mean_below(2.0), MEDIAN),
    "mean below 1.5 medians, median": (mean_below(1.5), MEDIAN),
    "mean below 2 medians, the same": (mean_below(2.0), mean_below(2.0)),
}
CHOSEN = "mean below 2 medians, median"
PASSES = (1, 2, 3, 4, 6, 8, 12, 16, 24)


def ratios(
    models: Iterable[StoredModel],
    measured: dict[str, list[Measurement]],
    statistics: tuple[Statistic, Statistic],
    passes: int = max(PASSES),
) -> np.ndarray:
    """Returns the ratio of constructed to end-to-end latency of each model."""

    def latency_us(signature: str, of: Statistic, *, whole: bool) -> float:
        found = []
        for measurement in measured[signature]:
            times = np.array([time for of_pass in measurement.pass_times_us[:passes] for time in of_pass])
            found.append(of(times) if whole else max(MIN_LATENCY_US, of(times) - measurement.overhead_us))
        return median(found)

    layers = {signature for model in models for signature in (segment.signature for segment in model.segments)}
    known = {signature: latency_us(signature, statistics[0], whole=False) for signature in layers}
    return np.array([
        sum(known[segment.signature] for segment in model.segments) / latency_us(model.whole, statistics[1], whole=True)
        for model in models
    ])  # fmt: skip


def line(label: str, found: np.ndarray, seconds: float | None = None) -> str:
    """Formats one row of the table."""
    off = np.abs(found - 1)
    took = "" if seconds is None else f"{seconds:9.0f}"
    return (
        f"{label:34} {np.exp(np.log(found).mean()):8.3f} {np.mean(off <= 0.05):9.0%} {np.mean(off <= 0.1):5.0%} "
        f"{found.min():6.2f} {found.max():6.2f}{took}"
    )


def main(arguments: Sequence[str]) -> None:
    """Prints the tables."""
    (system,) = arguments
    store = Store(find_home().store_url, create=False)
    measured: dict[str, list[Measurement]] = {}
    for measurement in store.measurements(system):
        measured.setdefault(measurement.signature, []).append(measurement)
    models = [
        model
        for model in store.models()
        if model.granularity == 1
        and {model.whole, *(segment.signature for segment in model.segments)} <= measured.keys()
    ]
    head = f"{'geomean':>8} {'within 5%':>9} {'10%':>5} {'range':>13}"
    print(f"{system}, {len(models)} models\n\n{'layers, models':34} {head}")
    for name, statistics in STATISTICS.items():
        print(line(name, ratios(models, measured, statistics)))
    print(f"\n{'passes, ' + CHOSEN:34} {head}  seconds")
    for passes in PASSES:
        seconds = sum(sum(map(sum, m.pass_times_us[:passes])) for same in measured.values() for m in same) / 1e6
        print(line(str(passes), ratios(models, measured, STATISTICS[CHOSEN], passes), seconds))


if __name__ == "__main__":
    main(sys.argv[1:])
