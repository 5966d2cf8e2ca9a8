"""Learning curves: the error on held-out lineages, by the share of the other lineages or rows that is trained on.

A row is a row of the data set, that is, a measured sequence. In the code, lineages are the families of the data set
that is evaluated.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from costmodel.progress import Progress
from costmodel.training.dataset import Dataset
from costmodel.training.evaluation.held_out import accuracy, predict_held_out
from costmodel.training.evaluation.splits import Split, leave_families_out
from costmodel.training.regressors.learner import Regressor

__all__ = ["REDUCTIONS", "SHARES", "LearningCurve", "LearningPoint", "Reduction", "learning_curve"]

# What a learning curve takes a share of.
Reduction = Literal["families", "rows"]
REDUCTIONS: tuple[Reduction, ...] = ("families", "rows")
SHARES = (0.1, 0.25, 0.5, 1.0)
# Smallest number of rows to train on, where the data have as many.
_LEAST_ROWS = 20


@dataclass(frozen=True)
class LearningPoint:
    """Errors on held-out lineages of a predictor that was trained on a share of the other data.

    Attributes:
        of: What the share is taken of: "families", or "rows" of the data set, which are measured sequences.
        share: Share of the lineages or rows that was trained on.
        seed: Seed of the predictor, of the assignment of lineages to folds, and of the choice of what was trained on.
        families: Number of lineages that were trained on, averaged over folds.
        rows: Number of rows that were trained on, averaged over folds.
        layer: Mean absolute relative error of layer sequences; None if there were none to judge.
        model_unseen: Mean absolute relative error of models with all costs predicted; None if there were none to judge.
    """

    of: Reduction
    share: float
    seed: int
    families: float
    rows: float
    layer: float | None
    model_unseen: float | None


@dataclass(frozen=True)
class LearningCurve:
    """Errors of a predictor by the share of the data that it was trained on.

    Attributes:
        predictor: Name of the predictor.
        points: A point for each share and seed, once with a share of the lineages and once with a share of the rows.
    """

    predictor: str
    points: tuple[LearningPoint, ...]


def learning_curve(
    dataset: Dataset,
    make: Callable[[int], Regressor],
    *,
    shares: Sequence[float] = SHARES,
    seeds: Sequence[int] = (0, 1, 2),
    folds: int = 5,
    jobs: int = 1,
    progress: Progress | None = None,
) -> tuple[LearningPoint, ...]:
    """Computes the error on held-out lineages as a function of the share of the other data that is trained on.

    One curve is trained on a share of the lineages with all their rows (measured sequences), the other on a share of
    all rows. Where the curve over lineages is the steeper one, the data lack variety.

    Args:
        dataset: Measured sequences and models.
        make: Function that makes the predictor from a seed.
        shares: Shares of the data that is not held out.
        seeds: Seeds of the predictor, of the folds and of the choice of training data; each makes a point of its own.
        folds: Number of groups in which lineages are held out.
        jobs: Number of splits that are evaluated in parallel.
        progress: Called with (points done, points in total, a label of the next point).

    Returns:
        A point for each share and seed, once with a share of the lineages and once with a share of the rows.

    Raises:
        TrainingError: There are too few lineages.
    """
    tasks = [(reduction, share, seed) for reduction in REDUCTIONS for share in shares for seed in seeds]
    points: list[LearningPoint] = []
    for reduction, share, seed in tasks:
        if progress is not None:
            progress(len(points), len(tasks), f"{share:.0%} of the {reduction}")
        same = next((point for point in points if share == 1 and (point.share, point.seed) == (1, seed)), None)
        if same is not None:
            points.append(replace(same, of=reduction))
            continue
        splits = [
            _reduced(dataset, split, reduction, share, seed) for split in leave_families_out(dataset, folds, seed)
        ]
        errors = accuracy(predict_held_out(dataset, splits, make, seed, jobs=jobs))
        points.append(
            LearningPoint(
                of=reduction,
                share=share,
                seed=seed,
                families=float(np.mean([_num_families(dataset, split) for split in splits])),
                rows=float(np.mean([split.train_rows.sum() for split in splits])),
                layer=errors.layer.mape,
                model_unseen=errors.model_unseen.mape,
            )
        )
    if progress is not None:
        progress(len(tasks), len(tasks), "")
    return tuple(points)


def _num_families(dataset: Dataset, split: Split) -> int:
    """Returns the number of families that the training rows of a split belong to."""
    return len({family for row in np.flatnonzero(split.train_rows) for family in dataset.families[row]})


def _reduced(dataset: Dataset, split: Split, reduction: Reduction, share: float, seed: int) -> Split:
    """Returns a split that trains on a share of its families, or of its rows, drawn at random.

    With the same seed, a larger share includes a smaller one.
    """
    random = np.random.default_rng(seed)
    rows = np.flatnonzero(split.train_rows)
    if reduction == "families":
        others = random.permutation(sorted(set(dataset.all_families) - split.families))
        # Rows without a family are kept at random.
        draws = random.random(len(rows))
        kept, number = rows[:0], max(1, round(share * len(others)))
        while len(kept) < _LEAST_ROWS and number <= len(others):  # the first families may have too few rows
            chosen = frozenset(others[:number].tolist())
            families = [dataset.families[row] for row in rows]
            kept = rows[[bool(chosen & of) if of else draw < share for of, draw in zip(families, draws, strict=True)]]
            number += 1
    else:
        kept = random.permutation(rows)[: max(_LEAST_ROWS, round(share * len(rows)))]
    mask = np.zeros(len(dataset), dtype=bool)
    mask[kept] = True
    return replace(split, train_rows=mask)
