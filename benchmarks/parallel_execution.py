"""Branches that run at the same time (ORT_PARALLEL) against what composition rules say of them.

    python benchmarks/parallel_execution.py [CORPUS_OR_MODEL.onnx ...]

Each model is timed with its layers one by one and with two of them at a time, each layer on one thread, in turn, on the
same two CPUs; its layers as every bench times them. Printed are the sum, the critical path and `workers:2` over the
latency with two at a time, and what running two at a time gains. By default the light models that have branches.
"""

import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from costmodel.bench import Bench
from costmodel.composition import Cost
from costmodel.home import find_home
from costmodel.jobs import Decomposed, decompose_models, groups_of
from costmodel.measurement import pinned, timed_us
from costmodel.rules import find_rule, shares
from costmodel.runtimes import RuntimeSettings, get_runtime
from costmodel.store import Store
from costmodel.systems import this_system
from costmodel.training.corpus import corpus_models

ONE_BY_ONE = RuntimeSettings()
TWO_AT_A_TIME = RuntimeSettings(inter_threads=2)
BRANCHING = ("light_inception_v1", "light_inception_v2", "light_squeezenet", "light_densenet121")
RULES = ("sequential", "parallel", "workers:2")
ROUNDS = 15


def timed_in_turn_us(item: Decomposed) -> dict[RuntimeSettings, float]:
    """Latency of the whole model in both modes, alternating, on two CPUs."""
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
    """Measure, then print the table."""
    runtime = get_runtime()
    system = this_system(runtime, ONE_BY_ONE)
    models = [model for name in names for model in corpus_models(name)]
    items = decompose_models(models, runtime, "all", find_home().cache)
    print(f"{system.name}; ratios to the latency with two layers at a time")
    print(f"{'model':34}{'one by one':>12}{'two':>12}{'gain':>7}" + "".join(f"{rule:>12}" for rule in RULES))
    with tempfile.TemporaryDirectory() as folder:
        store = Store(f"sqlite:///{Path(folder) / 'parallel.db'}")
        for item in items:
            with Bench(store, system, runtime) as bench:
                bench.run(groups_of(item, (1,)))
            whole = timed_in_turn_us(item)
            known = store.latencies_us(system.name)
            pieces = item.decomposition.pieces
            costs = [Cost(us, (us, us), "measured", "") for us in (known[p.sequence.signature] for p in pieces)]
            two_us = whole[TWO_AT_A_TIME]
            ratios = [
                sum(share * cost.latency_us for share, cost in zip(found, costs, strict=True)) / two_us
                for found in (shares(find_rule(rule), costs, [p.needs for p in pieces]) for rule in RULES)
            ]
            print(
                f"{item.model.name:34}{whole[ONE_BY_ONE] / 1e3:9.2f} ms{two_us / 1e3:9.2f} ms"
                f"{whole[ONE_BY_ONE] / two_us:7.2f}" + "".join(f"{ratio:12.3f}" for ratio in ratios)
            )
        store.close()


if __name__ == "__main__":
    main(sys.argv[1:] or BRANCHING)
