"""How far what is held out lies from what is trained on."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from costmodel.training.dataset import Dataset
from costmodel.training.splits import Split
from costmodel.training.support import Support, farthest
from costmodel.training.targets import layer_targets

__all__ = ["Distances", "distances"]


@dataclass(frozen=True)
class Distances:
    """How far held-out sequences lie from what was trained on when they were held out.

    Attributes:
        rows: Of the farthest layer of each row, shape [num_rows]; nan where it was not judged.
        models: For each measured model, those of its sequences; nan where it was not held out.
    """

    rows: np.ndarray
    models: tuple[np.ndarray, ...]


def distances(dataset: Dataset, splits: Sequence[Split]) -> Distances:
    """How far what each split holds out lies from what it keeps; the same for every regressor.

    Args:
        dataset: Measured sequences.
        splits: Which families are held out together.
    """
    rows = np.full(len(dataset), np.nan)
    models = [np.full(len(model.rows), np.nan) for model in dataset.models]
    for split in splits:
        kept = dataset.encoded.take(split.kept)
        support = Support.of(kept.features[layer_targets(kept, dataset.latencies_us[split.kept])[0]])
        held = [np.flatnonzero(split.judged), *(dataset.models[i].rows for i in split.models)]
        asked = np.unique(np.concatenate(held))
        found = np.full(len(dataset), np.nan)
        found[asked] = farthest(dataset.encoded.take(asked), support)
        rows[split.judged] = found[split.judged]
        for i in split.models:
            models[i] = found[dataset.models[i].rows]
    return Distances(rows, tuple(models))
