"""Writes the measured latencies of a system's models beside predictions made while their lineages were held out.

    python benchmarks/held_out_latencies.py OUT.json data/SYSTEM.parquet [MORE.parquet ...]

Imports the files into a temporary store, and predicts each model with LightGBM trained without the model's lineage, in
4 groups of lineages, seed 0. Not a single layer of a predicted model is taken from its measurements. The file also has
the system's jitter and its matrix product throughput; `benchmarks/request_placement.py` reads it.
"""

import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from costmodel.jobs.system_states import system_states
from costmodel.store.parquet import import_results
from costmodel.store.store import Store
from costmodel.training.dataset import load_dataset
from costmodel.training.evaluation.held_out import predict_held_out
from costmodel.training.evaluation.splits import leave_families_out
from costmodel.training.lineages import by_lineage
from costmodel.training.regressors.lightgbm_regressor import LightGBMRegressor

FOLDS = 4


def main(out: Path, files: Sequence[Path]) -> None:
    """Imports, trains and predicts; writes one JSON document."""
    with tempfile.TemporaryDirectory() as folder:
        store = Store(f"sqlite:///{Path(folder) / 'placement.db'}")
        for file in files:
            import_results(store, file)
        (name,) = store.systems()
        dataset = by_lineage(load_dataset(store, name))
        states = system_states(store, name)
        store.close()
    splits = leave_families_out(dataset, FOLDS)
    run = predict_held_out(dataset, splits, lambda seed: LightGBMRegressor(seed, threads=1), 0)
    models = [
        {
            "name": dataset.models[i].name,
            "lineage": dataset.models[i].family,
            "measured_us": dataset.models[i].latency_us,
            "predicted_us": float(run.unseen_us[i]),
        }
        for i in run.judged_models.tolist()
    ]
    document = {
        "system": name,
        "gemm_gflops": dataset.system.capabilities["gemm_gflops"],
        "jitter": dict(states.jitter),
        "models": models,
    }
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(document, indent=1) + "\n")
    print(f"{name}: {len(models)} models in {len(splits)} groups of lineages, jitter {states.jitter}")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit("usage: python benchmarks/held_out_latencies.py OUT.json SYSTEM.parquet [MORE.parquet ...]")
    main(Path(sys.argv[1]), [Path(name) for name in sys.argv[2:]])
