"""Distances of held-out sequences to the training data."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from costmodel.training.dataset import Dataset
from costmodel.training.evaluation.splits import Split
from costmodel.training.regressors.targets import layer_targets
from costmodel.training.support import Support, sequence_distances

__all__ = ["Distances", "distances"]


@dataclass(frozen=True)
class Distances:
    """Distances of held-out sequences to the data that was trained on while they were held out.

    Attributes:
        rows: Distance of the sequence_distances layer of each row, shape [num_rows]; nan for rows that were not judged.
        models: For each measured model, the distance of each of its sequences; nan if the model was not held out.
    """

    rows: np.ndarray
    models: tuple[np.ndarray, ...]


def distances(dataset: Dataset, splits: Sequence[Split]) -> Distances:
    """Computes the distances of what each split holds out to what it keeps; they are the same for every regressor.

    Args:
        dataset: Measured sequences and models.
        splits: Splits by family.
    """
    rows = np.full(len(dataset), np.nan)
    models = [np.full(len(model.rows), np.nan) for model in dataset.models]
    for split in splits:
        kept = dataset.encoded.take(split.train_rows)
        support = Support.of(kept.features[layer_targets(kept, dataset.latencies_us[split.train_rows])[0]])
        held = [np.flatnonzero(split.test_rows), *(dataset.models[i].rows for i in split.models)]
        held_out_rows = np.unique(np.concatenate(held))
        of_rows = np.full(len(dataset), np.nan)
        of_rows[held_out_rows] = sequence_distances(dataset.encoded.take(held_out_rows), support)
        rows[split.test_rows] = of_rows[split.test_rows]
        for i in split.models:
            models[i] = of_rows[dataset.models[i].rows]
    return Distances(rows, tuple(models))
