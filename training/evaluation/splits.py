"""Splits a data set by family: some families are held out to be judged, and the others are trained on."""

import random
from collections import Counter
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from costmodel.errors import TrainingError
from costmodel.training.dataset import Dataset

__all__ = ["LEAST_FAMILIES", "Split", "inner_splits", "leave_families_out", "leave_share_out", "split_name"]

# Smallest number of families that can be held out in turn.
LEAST_FAMILIES = 3


@dataclass(frozen=True)
class Split:
    """A split of a data set into families that are held out to be judged, and rows to train on.

    A row of the data set is a measured sequence.

    Attributes:
        families: Families that are held out together.
        train_rows: Mask of the rows to train on: none that occurs in a model of the held-out families, and no sample of
            a sequence that only these families have.
        test_rows: Mask of the rows to judge: sequences of the held-out families, without samples and whole models.
            Among splits that are made together, each row is judged in one only.
        models: Positions of the data set's models that belong to the held-out families.
    """

    families: frozenset[str]
    train_rows: np.ndarray
    test_rows: np.ndarray
    models: tuple[int, ...]


def split_name(folds: int | None, of: Literal["family", "lineage"] = "family") -> str:
    """Returns how reports name a split.

    Args:
        folds: Number of groups of families or lineages; None if they are held out one at a time.
        of: What is held out.
    """
    several = {"family": "families", "lineage": "lineages"}[of]
    return f"leave-one-{of}-out" if folds is None else f"leave-{several}-out, {folds} folds"


def leave_families_out(dataset: Dataset, folds: int | None = None, seed: int = 0) -> list[Split]:
    """Returns splits that hold out every family once: each family alone, or several at a time.

    Args:
        dataset: Measured sequences and models.
        folds: Number of groups of families, each with about the same number of rows; None for one family at a time.
        seed: Seed of the assignment of families to groups.

    Raises:
        TrainingError: There are too few families.
    """
    families = _enough_families(dataset)
    groups = [[family] for family in families] if folds is None else _grouped(dataset, folds, seed)
    already_judged = np.zeros(len(dataset), dtype=bool)
    splits = []
    for group in groups:
        split = _without(dataset, frozenset(group))
        splits.append(replace(split, test_rows=split.test_rows & ~already_judged))
        already_judged |= split.test_rows
    return splits


def leave_share_out(dataset: Dataset, share: float, seed: int) -> Split:
    """Returns a split that holds out a random share of the families, at least one with a model measured whole.

    Families with such models and families without are drawn separately, so that every draw has models to judge.

    Args:
        dataset: Measured sequences and models.
        share: Share of the families to hold out.
        seed: Seed of the draw.

    Raises:
        TrainingError: There are too few families.
    """
    families = _enough_families(dataset)
    with_models = {model.family for model in dataset.models}
    generator = random.Random(seed)  # noqa: S311 - no secret
    held: set[str] = set()
    for group in ([f for f in families if f in with_models], [f for f in families if f not in with_models]):
        number = round(share * len(group)) if held else max(1, round(share * len(group)))
        held.update(generator.sample(group, min(len(group), number)))
    return _without(dataset, frozenset(held))


def inner_splits(dataset: Dataset, split: Split, folds: int, seed: int) -> list[Split]:
    """Splits the training data of a split again, so that each of its families is held out in one of the new splits.

    The new splits judge no rows; they serve to predict models to which a context correction is fitted.

    Args:
        dataset: Measured sequences and models.
        split: Split whose held-out families none of the returned splits trains on.
        folds: Number of groups of families.
        seed: Seed of the assignment of families to groups.
    """
    made = [
        replace(
            inner,
            train_rows=inner.train_rows & split.train_rows,
            test_rows=np.zeros(len(dataset), dtype=bool),
            models=tuple(i for i in inner.models if i not in split.models),
        )
        for inner in leave_families_out(dataset, folds, seed)
    ]
    # With few families, those of both splits may be all there are.
    return [inner for inner in made if inner.train_rows.any()]


def _enough_families(dataset: Dataset) -> tuple[str, ...]:
    families = dataset.all_families
    if len(families) < LEAST_FAMILIES:
        raise TrainingError(
            f"evaluation leaves out one family at a time and needs {LEAST_FAMILIES}, not {len(families)}: "
            "benchmark models of more families"
        )
    return families


def _without(dataset: Dataset, held: frozenset[str]) -> Split:
    """Returns the split that holds out given families and judges their sequences, except samples and whole models."""
    touched = np.array([bool(held & of_row) for of_row in dataset.families])
    only = np.array([bool(of_row) and of_row <= held for of_row in dataset.families])
    return Split(
        families=held,
        train_rows=~np.where(dataset.sampled, only, touched),
        test_rows=touched & ~dataset.sampled & ~dataset.whole & ~dataset.borrowed,
        models=tuple(i for i, model in enumerate(dataset.models) if model.family in held),
    )


def _grouped(dataset: Dataset, folds: int, seed: int) -> list[list[str]]:
    """Assigns families to groups, large families first, each to the group with the fewest rows so far."""
    rows = Counter(family for of_row in dataset.families for family in of_row)
    shuffled = sorted(rows)
    random.Random(seed).shuffle(shuffled)  # noqa: S311 - no secret
    groups: list[list[str]] = [[] for _ in range(min(folds, len(shuffled)))]
    sizes = [0] * len(groups)
    for family in sorted(shuffled, key=lambda family: -rows[family] // 100):
        smallest = sizes.index(min(sizes))
        groups[smallest].append(family)
        sizes[smallest] += rows[family]
    return groups
