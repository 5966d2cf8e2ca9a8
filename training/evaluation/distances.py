"""Distances of held-out sequences to the data that predictors are trained on."""

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
    """Distances of sequences to the data that was trained on while their families were held out.

    Attributes:
        rows: Distance of each row of the data set: the largest distance of a layer in its sequence; nan for rows that
            were not judged. Shape [num_rows].
        models: For each measured model, the distance of each of its sequences; nan if the model was not held out.
    """

    rows: np.ndarray
    models: tuple[np.ndarray, ...]


def distances(dataset: Dataset, splits: Sequence[Split]) -> Distances:
    """Computes the distances from the sequences that each split holds out to the sequences that it trains on.

    These distances are the same for every regressor.

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
