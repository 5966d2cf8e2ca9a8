"""Compares the sum of measured layers with the latency of each model that was measured whole, on stored systems.

    costmodel import data/intel-xeon-emerald-rapids-2c-ort1.31-1t.parquet
    python benchmarks/sums.py intel-xeon-emerald-rapids-2c-ort1.31-1t

Prints for each system the geometric mean of sum over model, the standard deviation of its logarithm and the shares
within 5% and 10%, once for all models and once for those of a millisecond and more, and the models that are furthest
off.
"""

import sys
from collections.abc import Sequence

import numpy as np

from costmodel.paths import find_home
from costmodel.store.store import Store
from costmodel.training.dataset import load_dataset

WORST = 4
LONG_US = 1_000.0


def main(systems: Sequence[str]) -> None:
    """Prints a row for all models and one for long ones, and the worst models, of each system."""
    store = Store(find_home().store_url)
    print(f"{'':44}{'models':>7}{'geomean':>9}{'spread':>8}{'in 5%':>7}{'in 10%':>8}")
    for system in systems:
        dataset = load_dataset(store, system)
        ratios = np.array([dataset.latencies_us[m.rows].sum() / m.latency_us for m in dataset.models])
        long = np.array([m.latency_us >= LONG_US for m in dataset.models])
        for name, some in ((system, ratios), ("  a millisecond and more", ratios[long])):
            logs, off = np.log(some), np.abs(some - 1)
            print(
                f"{name:44}{len(some):>7}{np.exp(logs.mean()):>9.3f}{logs.std():>8.3f}{(off <= 0.05).mean():>7.0%}"
                f"{(off <= 0.1).mean():>8.0%}"
            )
        order = np.argsort(-np.abs(np.log(ratios)))[:WORST]
        print("  furthest off: " + ", ".join(f"{dataset.models[i].name} {ratios[i]:.2f}" for i in order))


if __name__ == "__main__":
    if not sys.argv[1:]:
        sys.exit(__doc__)
    main(sys.argv[1:])
