"""Times with a stopwatch how long it takes to know the latencies of a corpus on a new system, by models and by layers.

    python benchmarks/wall_clock.py CORPUS [MODELS]

By models: each one is loaded and run until the standard error of its latency is 1%. By layers: each unique layer is
loaded and run, with as many runs as each row of the table says. The error of a sum is estimated from two such sessions,
that of a model from its passes. All are sessions of `costmodel bench`, with
its waits for a quiet machine. Cutting the models into layers is timed apart: it is done once, for all systems, and a
benchmark suite (`costmodel decompose --out`) brings the layers to another machine without the models.
"""

import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from costmodel.jobs.benchmark_session import BenchmarkSession, BenchReport
from costmodel.jobs.decomposed_models import DecomposedModel, decompose_models, measurement_groups
from costmodel.measure.groups import Group
from costmodel.measure.protocol import Protocol
from costmodel.measure.round_robin import relative_error
from costmodel.runtimes.base import RuntimeSettings, get_runtime
from costmodel.store.store import Store
from costmodel.systems.system import System, this_system
from costmodel.training.corpus import corpus_models

TARGET = 0.01
OF_MODELS = Protocol(passes=2, min_passes=2, max_passes=60, agreement=TARGET, max_group_us=120_000_000.0)
# Passes over the layers of a model, and timed runs of each layer in a pass.
OF_LAYERS = {
    f"layers, {passes} x {runs}": Protocol(passes=passes, min_passes=passes, max_passes=passes, max_runs=runs)
    for passes, runs in ((4, 5), (2, 5), (2, 2), (1, 2))
}


@dataclass(frozen=True)
class Session:
    """What one session took, and what it found.

    Attributes:
        seconds: Seconds from loading the first network.
        report: Report of the session.
        store: Store with the measurements.
    """

    seconds: float
    report: BenchReport
    store: Store

    @property
    def quick_s(self) -> float:
        """Seconds without waiting for a quiet machine."""
        return self.seconds - self.report.waiting_seconds


def session(url: str, system: System, protocol: Protocol, groups: Sequence[Group]) -> Session:
    """Measures groups with a store of their own."""
    store = Store(url)
    with BenchmarkSession(store, system, get_runtime(), protocol=protocol) as opened:
        begin = time.perf_counter()
        report = opened.run(groups)
        return Session(time.perf_counter() - begin, report, store)


def sums_us(items: Sequence[DecomposedModel], found: Session, system: System) -> np.ndarray:
    """Returns the sum of the layers of each model in microseconds."""
    latency_us = found.store.latencies_us(system.name)
    return np.array([sum(latency_us[s.sequence.signature] for s in item.decomposition.segments) for item in items])


def row(label: str, seconds: float, quick_s: float, error: float) -> str:
    """Formats a row of the table."""
    return f"{label:16}{seconds:9.1f}{quick_s:9.1f}{error:9.2%}"


def main(corpus: str, most: str = "1000") -> None:
    """Prints the table."""
    runtime, settings = get_runtime(), RuntimeSettings()
    system = this_system(runtime, settings)
    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        items = decompose_models(corpus_models(corpus)[: int(most)], runtime, settings.level, Path(folder) / "cache")
        cutting_s = time.perf_counter() - begin
        wholes = [Group(item.model.name, (), item.whole, item.model, item.footprint_bytes) for item in items]
        layers = [replace(group, whole=None) for item in items for group in measurement_groups(item, (1,))]
        of_models = session(f"sqlite:///{folder}/models.db", system, OF_MODELS, wholes)
        timed = of_models.store.measurements(system.name, repeats=False)
        error = float(np.median([relative_error(measurement.pass_times_us) for measurement in timed]))
        lines = [row("models", of_models.seconds, of_models.quick_s, error)]
        for label, protocol in OF_LAYERS.items():
            url = f"sqlite:///{folder}/{label.replace(' ', '')}"
            pair = [session(f"{url}{number}.db", system, protocol, layers) for number in range(2)]
            one, other = (sums_us(items, found, system) for found in pair)
            # The median absolute deviation, as a standard deviation; a difference has the errors of two sums.
            error = 1.4826 * float(np.median(np.abs(np.log(one / other)))) / np.sqrt(2)
            seconds, quick_s = (np.mean([(of.seconds, of.quick_s) for of in pair], axis=0)).tolist()
            ratio, quick_ratio = of_models.seconds / seconds, of_models.quick_s / quick_s
            lines.append(f"{row(label, seconds, quick_s, error)}{ratio:8.1f}{quick_ratio:9.1f}")
            count = pair[0].report.measured
    print(f"{system.name}, {corpus}: {len(items)} models, {count} unique layers, cutting {cutting_s:.1f} s")
    print(f"{'':16}{'seconds':>9}{'no waits':>9}{'error':>9}{'ratio':>8}{'no waits':>9}")
    print("\n".join(lines))
    print("passes x timed runs; error: typical standard error of a latency; ratio: seconds of models over layers")


if __name__ == "__main__":
    main(*sys.argv[1:])
