"""Times with a stopwatch how long it takes to know the latencies of a corpus on a new system, by models and by layers.

    python benchmarks/wall_clock.py CORPUS [MODELS]

By models: each one is loaded and run until the standard error of its latency is 1%. By layers: each unique layer is
loaded and run in four passes, after which the standard error of a sum is about 1%; the table has both errors.
Both are sessions of `costmodel bench`, with its waits for a quiet machine. Cutting the models into layers is timed
apart: it is done once, for all systems, and a benchmark suite (`costmodel decompose --out`) brings the layers to
another machine without the models.
"""

import math
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
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
OF_LAYERS = Protocol(passes=4, min_passes=4, max_passes=4)


def session_s(store: Store, system: System, protocol: Protocol, groups: Sequence[Group]) -> tuple[float, BenchReport]:
    """Measures groups, and returns the seconds from loading the first one, and the report."""
    with BenchmarkSession(store, system, get_runtime(), protocol=protocol) as session:
        begin = time.perf_counter()
        report = session.run(groups)
        return time.perf_counter() - begin, report


def error_of_sum(item: DecomposedModel, error_us: dict[str, float], latency_us: dict[str, float]) -> float:
    """Returns the relative standard error of the sum of a model's layers."""
    counts = Counter(segment.sequence.signature for segment in item.decomposition.segments)
    total = sum(count * latency_us[s] for s, count in counts.items())
    return math.sqrt(sum((count * error_us[s]) ** 2 for s, count in counts.items())) / total


def main(corpus: str, most: str = "1000") -> None:
    """Prints both times and their ratio."""
    runtime, settings = get_runtime(), RuntimeSettings()
    system = this_system(runtime, settings)
    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        items = decompose_models(corpus_models(corpus)[: int(most)], runtime, settings.level, Path(folder) / "cache")
        cutting_s = time.perf_counter() - begin
        by_models, by_layers = (Store(f"sqlite:///{folder}/{name}.db") for name in ("models", "layers"))
        wholes = [Group(item.model.name, (), item.whole, item.model, item.footprint_bytes) for item in items]
        layers = [replace(group, whole=None) for item in items for group in measurement_groups(item, (1,))]
        models_s, of_models = session_s(by_models, system, OF_MODELS, wholes)
        layers_s, of_layers = session_s(by_layers, system, OF_LAYERS, layers)
        found = {m.signature: m for m in by_layers.measurements(system.name, repeats=False)}
        error_us = {s: relative_error(m.pass_times_us) * m.latency_us for s, m in found.items()}
        latency_us = {s: m.latency_us for s, m in found.items()}
        errors = np.array([error_of_sum(item, error_us, latency_us) for item in items])
        whole_errors = np.array(
            [relative_error(m.pass_times_us) for m in by_models.measurements(system.name, repeats=False)]
        )
    print(f"{system.name}, {corpus}: {len(items)} models, {of_layers.measured} unique layers")
    for label, seconds, report, error in (
        ("models", models_s, of_models, whole_errors),
        ("layers", layers_s, of_layers, errors),
    ):
        print(
            f"{label:8}{seconds:8.1f} s, of which {report.waiting_seconds:.1f} s waiting; standard error "
            f"{np.median(error):.2%} in the median, at most {TARGET:.0%} for {(error <= TARGET).mean():.0%}"
        )
    quick = models_s - of_models.waiting_seconds, layers_s - of_layers.waiting_seconds
    print(f"ratio {models_s / layers_s:.1f}, {quick[0] / quick[1]:.1f} without waiting; cutting {cutting_s:.1f} s")


if __name__ == "__main__":
    main(*sys.argv[1:])
