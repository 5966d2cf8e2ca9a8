"""What more data would bring: the error with a part of the families, or of the rows, to learn from."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from costmodel.training.dataset import Dataset
from costmodel.training.held_out import accuracy, held_out
from costmodel.training.regressors import Regressor
from costmodel.training.splits import Split, leave_families_out

__all__ = ["SHARES", "learning_curve"]

SHARES = (0.1, 0.25, 0.5, 1.0)
_LEAST_ROWS = 20


def learning_curve(
    dataset: Dataset,
    make: Callable[[int], Regressor],
    *,
    shares: Sequence[float] = SHARES,
    seeds: Sequence[int] = (0, 1, 2),
    folds: int = 5,
    jobs: int = 1,
    progress: Callable[[int, int, str], None] | None = None,
) -> list[dict[str, Any]]:
    """Errors on families left out, by how much of the others was trained on.

    Fewer families are there with all their rows; with fewer rows, some of each family's are left. Where the
    first curve is steeper, it is variety that is missing.

    Args:
        dataset: Measured sequences and models.
        make: Of the predictor, from a seed.
        shares: Of what is not held out.
        seeds: Of the predictor, of the folds and of what is kept; each is a point of its own.
        folds: Groups in which families are left out.
        jobs: Splits at once.
        progress: Told (done, total, what is next).

    Returns:
        For each way ("families" or "rows"), share and seed: the mean number of families and rows trained on, and the
        errors `layer` and `model_unseen`, mean absolute and relative.

    Raises:
        TrainingError: There are too few families.
    """
    tasks = [(way, share, seed) for way in ("families", "rows") for share in shares for seed in seeds]
    points: list[dict[str, Any]] = []
    for way, share, seed in tasks:
        if progress is not None:
            progress(len(points), len(tasks), f"{share:.0%} of the {way}")
        same = next((p for p in points if share == 1 and (p["share"], p["seed"]) == (1, seed)), None)
        if same is not None:
            points.append({**same, "of": way})
            continue
        splits = [_reduced(dataset, split, way, share, seed) for split in leave_families_out(dataset, folds, seed)]
        found = accuracy(held_out(dataset, splits, make, seed, jobs=jobs))
        points.append({
            "of": way, "share": share, "seed": seed,
            "families": float(np.mean([_families(dataset, split) for split in splits])),
            "rows": float(np.mean([split.kept.sum() for split in splits])),
            "layer": found["layer"]["mape"],
            "model_unseen": found["model_unseen"]["mape"],
        })  # fmt: skip
    if progress is not None:
        progress(len(tasks), len(tasks), "")
    return points


def _families(dataset: Dataset, split: Split) -> int:
    return len({family for row in np.flatnonzero(split.kept) for family in dataset.families[row]})


def _reduced(dataset: Dataset, split: Split, way: str, share: float, seed: int) -> Split:
    """A split with less to train on; what a smaller share keeps, a larger one of the same seed keeps too."""
    random = np.random.default_rng(seed)
    rows = np.flatnonzero(split.kept)
    if way == "families":
        others = random.permutation(sorted(set(dataset.all_families) - split.families))
        chosen = frozenset(others[: max(1, round(share * len(others)))].tolist())
        # Rows of no family go with the share.
        chance = random.random(len(rows))
        left = [bool(chosen & of) if (of := dataset.families[row]) else chance[i] < share for i, row in enumerate(rows)]
        kept = rows[np.array(left)]
    else:
        kept = random.permutation(rows)[: max(_LEAST_ROWS, round(share * len(rows)))]
    mask = np.zeros(len(dataset), dtype=bool)
    mask[kept] = True
    return replace(split, kept=mask)
