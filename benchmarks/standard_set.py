"""Chooses the standard set of a runtime from the shipped data, writes it to `data/`, and prints what is in it.

    python benchmarks/standard_set.py                                 # four minutes on two idle cores
    python benchmarks/standard_set.py --base amd-epyc-zen4-2c-ov2026.4-1t

Run it when the shipped data of the base system change, and commit the file: every machine then measures the new set.
"""

import argparse
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np

from costmodel.jobs.shipped_data import import_shipped
from costmodel.store.store import Store
from costmodel.systems.host import usable_cpus
from costmodel.training.dataset import Dataset, load_dataset
from costmodel.training.evaluation.held_out import predict_held_out
from costmodel.training.evaluation.splits import leave_families_out
from costmodel.training.regressors.lightgbm_regressor import LightGBMRegressor
from costmodel.training.standard_set import StandardSet, choose_standard_set, measuring_values, standard_set_file

BASE = "amd-epyc-zen5-2c-ort1.31-1t"
FOLDS = 4


def main() -> None:
    """Writes the file and prints a summary of the set."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", default=BASE, help="shipped system to choose from")
    parser.add_argument("--out", type=Path, help="file to write; by default that of the runtime in data/")
    parser.add_argument("--models", type=int, default=150)
    parser.add_argument("--layers", type=int, default=3000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        store = Store(f"sqlite:///{folder}/store.db")
        import_shipped(store, arguments.base)
        dataset = load_dataset(store, arguments.base)
        sequences = store.sequences({dataset.signatures[row] for model in dataset.models for row in model.rows})
        store.close()
    splits = leave_families_out(dataset, FOLDS)
    held_out = predict_held_out(dataset, splits, lambda seed: LightGBMRegressor(seed, threads=usable_cpus()), 0)
    values = measuring_values(dataset, held_out.rows_us)
    standard = choose_standard_set(dataset, sequences, values, models=arguments.models, layers=arguments.layers)
    name = standard_set_file(dataset.system.runtime)
    standard.write(arguments.out or Path(__file__).parents[1] / "data" / name)
    summarise(standard, dataset, values)


def summarise(standard: StandardSet, dataset: Dataset, values: np.ndarray) -> None:
    """Prints the size of a standard set, the families in it, and how much of the value of all layers it has."""
    by_whole = {dataset.signatures[model.row]: model for model in dataset.models}
    complete = [entry for entry in standard.models if entry.complete]
    rows = np.unique(np.concatenate([by_whole[entry.whole].rows for entry in complete]))
    latencies_ms = np.array([by_whole[entry.whole].latency_us for entry in standard.models]) / 1000
    families = Counter(entry.family for entry in standard.models)
    num_int8 = sum("int8" in entry.name for entry in standard.models)
    print(f"{len(standard.models)} models, {len(complete)} of them complete, {num_int8} of int8")
    print(f"{len(families)} of {len(dataset.all_families)} families; the most models: {families.most_common(3)}")
    print(
        f"latency in ms: {np.round(np.quantile(latencies_ms, [0, 0.1, 0.5, 0.9, 1]), 2).tolist()} (0, 10, 50, 90, 100%)"
    )
    print(f"{standard.layers} layers, {standard.seconds / 60:.1f} minutes on {standard.base} with one thread")
    share, best = (chosen.sum() / values.sum() for chosen in (values[rows], np.sort(values)[-len(rows) :]))
    print(f"value of these layers (share x error): {share:.1%}; of the {len(rows)} layers with most: {best:.1%}")


if __name__ == "__main__":
    main()
