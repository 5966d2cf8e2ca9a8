"""Compares models whose branches run in parallel (ORT_PARALLEL) with the predictions of composition rules.

    python benchmarks/parallel_execution.py [CORPUS_OR_MODEL.onnx ...]

Each model is timed alternately with one layer at a time and with two layers at a time, each layer on one thread, on the
same two CPUs; its layers are timed as by `costmodel bench`. Prints the sum, the critical path and `workers:2` divided
by the latency with two layers at a time, and the speed-up of two at a time. By default for the light models with
branches.
"""

import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from costmodel.estimate.cost import Cost
from costmodel.estimate.rules import find_rule, shares
from costmodel.jobs.benchmark_session import BenchmarkSession
from costmodel.jobs.decomposed_models import DecomposedModel, decompose_models, measurement_groups
from costmodel.measure.affinity import pinned
from costmodel.measure.stopwatch import timed_us
from costmodel.paths import find_home
from costmodel.runtimes.base import RuntimeSettings, get_runtime
from costmodel.store.store import Store
from costmodel.systems.system import this_system
from costmodel.training.corpus import corpus_models

ONE_BY_ONE = RuntimeSettings()
TWO_AT_A_TIME = RuntimeSettings(inter_threads=2)
BRANCHING = ("light_inception_v1", "light_inception_v2", "light_squeezenet", "light_densenet121")
RULES = ("sequential", "parallel", "workers:2")
ROUNDS = 15


def timed_in_turn_us(item: DecomposedModel) -> dict[RuntimeSettings, float]:
    """Times the whole model alternately in both modes on two CPUs; returns the median latency of each mode."""
    runtime = get_runtime()
    with pinned(TWO_AT_A_TIME.cpus):
        runners = {settings: runtime.open_model(item.model, settings) for settings in (ONE_BY_ONE, TWO_AT_A_TIME)}
        times: dict[RuntimeSettings, list[float]] = {settings: [] for settings in runners}
        for _ in range(ROUNDS):
            for settings, runner in runners.items():
                runner.run()
                times[settings].append(timed_us(runner, time.perf_counter_ns))
    return {settings: median(of_mode) for settings, of_mode in times.items()}


def main(names: Sequence[str]) -> None:
    """Measures, then prints the table."""
    runtime = get_runtime()
    system = this_system(runtime, ONE_BY_ONE)
    models = [model for name in names for model in corpus_models(name)]
    items = decompose_models(models, runtime, "all", find_home().cache)
    print(f"{system.name}; ratios to the latency with two layers at a time")
    print(f"{'model':34}{'one by one':>12}{'two':>12}{'gain':>7}" + "".join(f"{rule:>12}" for rule in RULES))
    with tempfile.TemporaryDirectory() as folder:
        store = Store(f"sqlite:///{Path(folder) / 'parallel.db'}")
        for item in items:
            with BenchmarkSession(store, system, runtime) as bench:
                bench.run(measurement_groups(item, (1,)))
            whole = timed_in_turn_us(item)
            known = store.latencies_us(system.name)
            segments = item.decomposition.segments
            costs = [Cost(us, (us, us), "measured", "") for us in (known[p.sequence.signature] for p in segments)]
            two_us = whole[TWO_AT_A_TIME]
            ratios = [
                sum(share * cost.latency_us for share, cost in zip(found, costs, strict=True)) / two_us
                for found in (shares(find_rule(rule), costs, [p.predecessors for p in segments]) for rule in RULES)
            ]
            print(
                f"{item.model.name:34}{whole[ONE_BY_ONE] / 1e3:9.2f} ms{two_us / 1e3:9.2f} ms"
                f"{whole[ONE_BY_ONE] / two_us:7.2f}" + "".join(f"{ratio:12.3f}" for ratio in ratios)
            )
        store.close()


if __name__ == "__main__":
    main(sys.argv[1:] or BRANCHING)
