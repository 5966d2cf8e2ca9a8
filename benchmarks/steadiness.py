"""Compares estimators by how well measurements repeat: the evidence behind the quiet quantile (docs/adr/0003).

    python benchmarks/steadiness.py [--passes 4] [--pause 60] [--models light_squeezenet,light_resnet50]

Measures the layers of a few models several times, minutes apart, and compares for each estimator the measurements:
median and 90% quantile of |ratio - 1| over all pairs of measurements and all layers. The last columns divide each time
by that of the reference kernel in the same round. Run it on an otherwise idle machine.
"""

import argparse
import itertools
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from costmodel.jobs.benchmark_session import BenchmarkSession
from costmodel.jobs.decomposed_models import decompose_models, measurement_groups
from costmodel.measure.measurement import Measurement
from costmodel.runtimes.base import RuntimeSettings, get_runtime
from costmodel.store.store import Store
from costmodel.systems.system import this_system
from costmodel.training.corpus import corpus_models

ESTIMATORS: Mapping[str, Callable[[np.ndarray], float]] = {
    "minimum": lambda t: float(t.min()),
    "quantile 0.05": lambda t: float(np.quantile(t, 0.05)),
    "quantile 0.1": lambda t: float(np.quantile(t, 0.1)),
    "quantile 0.2": lambda t: float(np.quantile(t, 0.2)),
    "quantile 0.3": lambda t: float(np.quantile(t, 0.3)),
    "median": lambda t: float(np.median(t)),
    "trimmed mean 20%": lambda t: float(np.mean(np.sort(t)[len(t) // 10 : len(t) - len(t) // 10])),
    "mean": lambda t: float(t.mean()),
}


def corrected(measurement: Measurement) -> np.ndarray:
    """Divides every raw time by that of the reference kernel in the same round."""
    rounds = zip(measurement.pass_times_us, measurement.reference_us, strict=True)
    return np.concatenate([np.asarray(times) / reference for times, reference in rounds])


def differences(estimates: np.ndarray) -> np.ndarray:
    """Returns |ratio - 1| for all pairs of measurements; `estimates` has shape [num_sequences, num_passes]."""
    pairs = itertools.combinations(range(estimates.shape[1]), 2)
    return np.asarray(abs(np.concatenate([estimates[:, a] / estimates[:, b] - 1 for a, b in pairs])))


def main() -> None:
    """Measures, then prints the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--passes", type=int, default=4)
    parser.add_argument("--pause", type=float, default=60.0)
    parser.add_argument("--models", default="light_squeezenet,light_resnet50")
    options = parser.parse_args()
    runtime = get_runtime()
    system = this_system(runtime, RuntimeSettings())
    with tempfile.TemporaryDirectory() as folder:
        store = Store(f"sqlite:///{folder}/steadiness.db")
        chosen = [model for name in options.models.split(",") for model in corpus_models(name)]
        items = decompose_models(chosen, runtime, "all", Path(folder))
        groups = [replace(group, whole=None) for item in items for group in measurement_groups(item, (1,))]
        for number in range(options.passes):
            if number:
                time.sleep(options.pause)
            with BenchmarkSession(store, system, runtime) as bench:
                bench.run(groups, again=True)
        by_signature: dict[str, list[Measurement]] = {}
        for measurement in store.measurements(system.name):
            by_signature.setdefault(measurement.signature, []).append(measurement)
        store.close()
    known = [same for same in by_signature.values() if len(same) == options.passes]
    print(f"{system.name}, {len(known)} layers, {options.passes} passes, {options.pause:.0f} s apart")
    print(f"{'estimator':<18}{'median':>8}{'90%':>8}{'/ reference':>14}{'90%':>8}")
    for name, estimate in ESTIMATORS.items():
        raw = differences(np.array([[estimate(np.asarray(m.times_us)) for m in same] for same in known]))
        ratio = differences(np.array([[estimate(corrected(m)) for m in same] for same in known]))
        print(
            f"{name:<18}{np.median(raw):>8.1%}{np.quantile(raw, 0.9):>8.1%}"
            f"{np.median(ratio):>14.1%}{np.quantile(ratio, 0.9):>8.1%}"
        )


if __name__ == "__main__":
    main()
