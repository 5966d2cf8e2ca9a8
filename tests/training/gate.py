"""Computes the accuracy of the boosted trees on the shipped data, for the accuracy gate.

    python -m tests.training.gate

rewrites `accuracy.json` after a change that is meant to alter it: check the difference before you commit it.
"""

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from costmodel.store.parquet import import_results
from costmodel.store.store import Store
from costmodel.training.dataset import load_dataset
from costmodel.training.evaluation.held_out import accuracy, predict_held_out
from costmodel.training.evaluation.splits import leave_families_out
from costmodel.training.regressors.lightgbm_regressor import LightGBMRegressor

__all__ = ["RECORDED", "achieved"]

RECORDED = Path(__file__).with_name("accuracy.json")
SYSTEM = "amd-epyc-zen5-2c-ort1.31-1t"
_DATA = Path(__file__).parents[2] / "data"
_FILES = tuple(f"{SYSTEM}{ending}.parquet" for ending in ("", "-training", "-training-2"))
_FOLDS = 4


def achieved(folder: Path) -> dict[str, Any]:
    """Returns errors over all models and for each family, with families held out in four groups, seed 0.

    Args:
        folder: Folder for a temporary results store.
    """
    store = Store(f"sqlite:///{folder / 'gate.db'}")
    for file in _FILES:
        import_results(store, _DATA / file)
    dataset = load_dataset(store, SYSTEM)
    store.close()
    splits = leave_families_out(dataset, _FOLDS)
    run = predict_held_out(dataset, splits, lambda seed: LightGBMRegressor(seed, threads=2), 0)
    errors: dict[str, list[float]] = {}
    for model, unseen_us in zip(dataset.models, run.unseen_us, strict=True):
        errors.setdefault(model.family, []).append(abs(unseen_us / model.latency_us - 1))
    found = accuracy(run)
    return {
        "system": SYSTEM,
        "layers": len(run.judged),
        "models": len(run.judged_models),
        "layer_mape": found.layer.mape,
        "model_mape": found.model.mape,
        "model_unseen_mape": found.model_unseen.mape,
        "families": {family: float(np.mean(of_family)) for family, of_family in sorted(errors.items())},
    }


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        RECORDED.write_text(json.dumps(achieved(Path(folder)), indent=1) + "\n")
