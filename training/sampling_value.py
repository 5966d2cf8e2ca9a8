"""How much the error of each measured sequence harms models, by which further layers are chosen to be measured."""

from dataclasses import replace

import numpy as np

from costmodel.store.store import Store
from costmodel.training.dataset import load_dataset
from costmodel.training.evaluation.held_out import predict_held_out
from costmodel.training.evaluation.splits import leave_families_out
from costmodel.training.lineages import by_lineage
from costmodel.training.regressors.lightgbm_regressor import LightGBMRegressor

__all__ = ["sampling_values"]

# Number of groups of lineages that are held out in turn.
_FOLDS = 4


def sampling_values(store: Store, system: str) -> dict[str, float]:
    """Returns, by signature, the share of the models' latencies that a sequence makes up times its relative error.

    The error is that of LightGBM without the lineages of the sequence. Samples are left out, so that measuring them
    does not change what is chosen.

    Args:
        store: Store with the measurements.
        system: Name of the system.

    Raises:
        TrainingError: Too few families are measured.
    """
    dataset = by_lineage(load_dataset(store, system))
    splits = [
        replace(split, train_rows=split.train_rows & ~dataset.sampled)
        for split in leave_families_out(dataset, _FOLDS if len(dataset.all_families) > _FOLDS else None)
    ]
    run = predict_held_out(dataset, splits, LightGBMRegressor, 0)
    errors = np.abs(np.log(run.rows_us / dataset.latencies_us))
    shares = np.zeros(len(dataset))
    for model in dataset.models:
        costs_us = dataset.latencies_us[model.rows]
        np.add.at(shares, model.rows, costs_us / costs_us.sum())
    return {dataset.signatures[row]: float(shares[row] * errors[row]) for row in run.judged.tolist() if shares[row] > 0}
