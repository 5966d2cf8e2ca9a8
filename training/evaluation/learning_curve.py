"""Learning curves: the error by the share of the families, or of the rows, that is trained on."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from costmodel.progress import Progress
from costmodel.training.dataset import Dataset
from costmodel.training.evaluation.held_out import accuracy, predict_held_out
from costmodel.training.evaluation.splits import Split, leave_families_out
from costmodel.training.regressors.registry import Regressor

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
    progress: Progress | None = None,
) -> list[dict[str, Any]]:
    """Computes the error on held-out families as a function of the share of the other data that is trained on.

    One curve takes a share of the families with all their rows, the other a share of all rows. Where the first curve is
    steeper, the data lack variety.

    Args:
        dataset: Measured sequences and models.
        make: Makes the predictor from a seed.
        shares: Shares of the data that is not held out.
        seeds: Seeds of the predictor, of the folds and of the reduced data; each makes a point of its own.
        folds: Number of groups in which families are held out.
        jobs: Number of splits that are evaluated in parallel.
        progress: Called with (done, total, what is next).

    Returns:
        For each way of reduction ("families" or "rows"), share and seed: the mean numbers of families and rows trained
        on, and the mean absolute relative errors `layer` and `model_unseen`.

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
        errors = accuracy(predict_held_out(dataset, splits, make, seed, jobs=jobs))
        points.append({
            "of": way, "share": share, "seed": seed,
            "families": float(np.mean([_num_families(dataset, split) for split in splits])),
            "rows": float(np.mean([split.train_rows.sum() for split in splits])),
            "layer": errors["layer"]["mape"],
            "model_unseen": errors["model_unseen"]["mape"],
        })  # fmt: skip
    if progress is not None:
        progress(len(tasks), len(tasks), "")
    return points


def _num_families(dataset: Dataset, split: Split) -> int:
    """Returns the number of families that a split trains on."""
    return len({family for row in np.flatnonzero(split.train_rows) for family in dataset.families[row]})


def _reduced(dataset: Dataset, split: Split, way: str, share: float, seed: int) -> Split:
    """Returns a split with less data to train on; with the same seed, a larger share includes a smaller one."""
    random = np.random.default_rng(seed)
    rows = np.flatnonzero(split.train_rows)
    if way == "families":
        others = random.permutation(sorted(set(dataset.all_families) - split.families))
        chosen = frozenset(others[: max(1, round(share * len(others)))].tolist())
        # Rows without a family are kept at random.
        draws = random.random(len(rows))
        is_in_signature = [
            bool(chosen & of) if (of := dataset.families[row]) else draws[i] < share for i, row in enumerate(rows)
        ]
        kept = rows[np.array(is_in_signature)]
    else:
        kept = random.permutation(rows)[: max(_LEAST_ROWS, round(share * len(rows)))]
    mask = np.zeros(len(dataset), dtype=bool)
    mask[kept] = True
    return replace(split, train_rows=mask)
