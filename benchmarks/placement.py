"""What models take while a virtual machine's cores are near each other, and while its host has put them apart.

    python benchmarks/placement.py MINUTES CORPUS_OR_MODEL.onnx ...

On two threads: the chain of `costmodel.handover`, then one of the models, and so on, each a few times. What is between
two looks that say the same belongs to that. Printed are how long the cores stayed as they were, and the median of each
model in both states.
"""

import sys
import time
from collections.abc import Sequence
from itertools import groupby
from statistics import median

from costmodel.handover import APART, handover_sequence
from costmodel.measurement import pinned, timed_us
from costmodel.model import read_model
from costmodel.runtimes import Runner, RuntimeSettings, get_runtime
from costmodel.training.corpus import corpus_models

THREADS = RuntimeSettings(threads=2)
RUNS = 5


def typical_us(runner: Runner) -> float:
    """Median of a few runs, the first of which brings it back into the caches."""
    runner.run()
    return median(timed_us(runner, time.perf_counter_ns) for _ in range(RUNS))


def main(minutes: float, names: Sequence[str]) -> None:
    """Measure, then print."""
    runtime = get_runtime()
    chain = runtime.open_sequence(handover_sequence(), THREADS)
    chosen = [model for name in names for model in corpus_models(name)]
    models = {model.name: runtime.open_model(read_model(model.path), THREADS) for model in chosen}
    looks: list[tuple[float, float]] = []
    times: dict[str, list[float]] = {name: [] for name in models}
    with pinned(THREADS.cpus):
        end = time.monotonic() + 60 * minutes
        while time.monotonic() < end:
            for name, runner in models.items():
                looks.append((time.monotonic(), typical_us(chain)))
                times[name].append(typical_us(runner))
        looks.append((time.monotonic(), typical_us(chain)))
    near_us = min(took_us for _, took_us in looks)
    apart = [took_us > APART * near_us for _, took_us in looks]
    spells = [[looks[i] for i in of] for _, of in groupby(range(len(looks)), lambda i: apart[i])]
    for state, name in ((False, "near"), (True, "apart")):
        found = [spell for spell in spells if (spell[0][1] > APART * near_us) is state]
        if found:
            took_us = [took for spell in found for _, took in spell]
            print(
                f"{name:6}{len(took_us) / len(looks):5.0%} of {len(looks)} looks, {len(found)} spells of up to "
                f"{max(spell[-1][0] - spell[0][0] for spell in found):.1f} s, chain {median(took_us):.0f} us"
            )
    print(f"\n{'model':34}{'near':>12}{'apart':>12}{'ratio':>8}")
    for place, (name, all_us) in enumerate(times.items()):
        around = [apart[turn * len(models) + place : turn * len(models) + place + 2] for turn in range(len(all_us))]
        near, far = (
            [took for took, states in zip(all_us, around, strict=True) if states == [state, state]]
            for state in (False, True)
        )
        if near and far:
            print(f"{name:34}{median(near) / 1e3:9.2f} ms{median(far) / 1e3:9.2f} ms{median(far) / median(near):8.2f}")
        else:
            print(f"{name:34}  seen in one state only")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit("usage: python benchmarks/placement.py MINUTES CORPUS_OR_MODEL.onnx ...")
    main(float(sys.argv[1]), sys.argv[2:])
