"""Compares the latency of models while the threads of a virtual machine are in sync and while they are out of sync.

    python benchmarks/placement.py MINUTES CORPUS_OR_MODEL.onnx ...

Times, on two threads, the product chain of `costmodel.measure.machine_state` and one of the models alternately. A time
of a model counts for a state if the checks before and after it agree on that state. Prints how long the threads stayed
in each state, and the median latency of each model in both states.
"""

import sys
import time
from collections.abc import Sequence
from itertools import groupby
from statistics import median

from costmodel.measure.affinity import pinned
from costmodel.measure.machine_state import product_chain
from costmodel.measure.stopwatch import timed_us
from costmodel.onnx_io.model import read_model
from costmodel.runtimes.base import Runner, RuntimeSettings, get_runtime
from costmodel.training.corpus import corpus_models

THREADS = RuntimeSettings(threads=2)
RUNS = 5
# Out of sync the chain takes about twice as long as in sync; times in sync differ by a tenth.
OUT_OF_SYNC = 1.3


def typical_us(runner: Runner) -> float:
    """Median of a few runs in microseconds, after one run that warms the caches."""
    runner.run()
    return median(timed_us(runner, time.perf_counter_ns) for _ in range(RUNS))


def main(minutes: float, names: Sequence[str]) -> None:
    """Measures, then prints the tables."""
    runtime = get_runtime()
    chain = runtime.open_sequence(product_chain(), THREADS)
    chosen = [model for name in names for model in corpus_models(name)]
    models = {model.name: runtime.open_model(read_model(model.path), THREADS) for model in chosen}
    checks: list[tuple[float, float]] = []
    times: dict[str, list[float]] = {name: [] for name in models}
    with pinned(THREADS.cpus):
        end = time.monotonic() + 60 * minutes
        while time.monotonic() < end:
            for name, runner in models.items():
                checks.append((time.monotonic(), typical_us(chain)))
                times[name].append(typical_us(runner))
        checks.append((time.monotonic(), typical_us(chain)))
    in_sync_us = min(took_us for _, took_us in checks)
    out_of_sync = [took_us > OUT_OF_SYNC * in_sync_us for _, took_us in checks]
    spells = [[checks[i] for i in of] for _, of in groupby(range(len(checks)), lambda i: out_of_sync[i])]
    for state, name in ((False, "in sync"), (True, "out of sync")):
        found = [spell for spell in spells if (spell[0][1] > OUT_OF_SYNC * in_sync_us) is state]
        if found:
            took_us = [took for spell in found for _, took in spell]
            print(
                f"{name:12}{len(took_us) / len(checks):5.0%} of {len(checks)} checks, {len(found)} spells of up to "
                f"{max(spell[-1][0] - spell[0][0] for spell in found):.1f} s, chain {median(took_us):.0f} us"
            )
    print(f"\n{'model':34}{'in sync':>12}{'out of sync':>12}{'ratio':>8}")
    for place, (name, all_us) in enumerate(times.items()):
        firsts = [turn * len(models) + place for turn in range(len(all_us))]
        around = [out_of_sync[first : first + 2] for first in firsts]
        near, far = (
            [took for took, states in zip(all_us, around, strict=True) if states == [state, state]]
            for state in (False, True)
        )
        if near and far:
            synced, unsynced = median(near), median(far)
            print(f"{name:34}{synced / 1e3:9.2f} ms{unsynced / 1e3:9.2f} ms{unsynced / synced:8.2f}")
        else:
            print(f"{name:34}  timed in one state only")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit("usage: python benchmarks/placement.py MINUTES CORPUS_OR_MODEL.onnx ...")
    main(float(sys.argv[1]), sys.argv[2:])
