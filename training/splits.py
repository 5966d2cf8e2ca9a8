"""Splits by family: what may be trained on when some families are to be judged."""

import random
from collections import Counter
from dataclasses import dataclass, replace

import numpy as np

from costmodel.errors import TrainingError
from costmodel.training.dataset import Dataset

__all__ = ["LEAST_FAMILIES", "Split", "inner_splits", "leave_families_out", "leave_share_out", "split_name"]

LEAST_FAMILIES = 3


@dataclass(frozen=True)
class Split:
    """Families that are held out together.

    Attributes:
        families: Those held out.
        kept: Rows to train on: none that a model of these families has, and none sampled around what only they have.
        judged: Rows to judge: real sequences of these families, each in one split only.
        models: Positions of the data set's models that belong to them.
    """

    families: frozenset[str]
    kept: np.ndarray
    judged: np.ndarray
    models: tuple[int, ...]


def split_name(folds: int | None) -> str:
    """What a report calls the split."""
    return "leave-one-family-out" if folds is None else f"leave-families-out, {folds} folds"


def leave_families_out(dataset: Dataset, folds: int | None = None, seed: int = 0) -> list[Split]:
    """Hold out every family once: each alone, or several at a time.

    Args:
        dataset: Measured sequences.
        folds: Number of groups of families, of about as many rows each; None for one family at a time.
        seed: Of the choice which families go together.

    Raises:
        TrainingError: There are too few families.
    """
    families = _enough_families(dataset)
    groups = [[family] for family in families] if folds is None else _grouped(dataset, folds, seed)
    seen = np.zeros(len(dataset), dtype=bool)
    splits = []
    for group in groups:
        split = _without(dataset, frozenset(group))
        splits.append(replace(split, judged=split.judged & ~seen))
        seen |= split.judged
    return splits


def leave_share_out(dataset: Dataset, share: float, seed: int) -> Split:
    """Hold out a random share of the families, at least one with a model that was measured whole.

    Families with such models and those without are drawn apart, so that there are models to judge in every draw.

    Args:
        dataset: Measured sequences.
        share: Of the families.
        seed: Of the draw.

    Raises:
        TrainingError: There are too few families.
    """
    families = _enough_families(dataset)
    with_models = {model.family for model in dataset.models}
    chance = random.Random(seed)  # noqa: S311 - no secret
    held: set[str] = set()
    for group in ([f for f in families if f in with_models], [f for f in families if f not in with_models]):
        number = round(share * len(group)) if held else max(1, round(share * len(group)))
        held.update(chance.sample(group, min(len(group), number)))
    return _without(dataset, frozenset(held))


def inner_splits(dataset: Dataset, split: Split, folds: int, seed: int) -> list[Split]:
    """What a split keeps, with families of that held out in turn; nothing is judged on them.

    Args:
        dataset: Measured sequences.
        split: Whose families none of them sees.
        folds: Number of groups of families.
        seed: Of the choice which families go together.
    """
    return [
        replace(
            inner,
            kept=inner.kept & split.kept,
            judged=np.zeros(len(dataset), dtype=bool),
            models=tuple(i for i in inner.models if i not in split.models),
        )
        for inner in leave_families_out(dataset, folds, seed)
    ]


def _enough_families(dataset: Dataset) -> tuple[str, ...]:
    families = dataset.all_families
    if len(families) < LEAST_FAMILIES:
        raise TrainingError(
            f"evaluation leaves out one family at a time and needs {LEAST_FAMILIES}, not {len(families)}: "
            "benchmark models of more families"
        )
    return families


def _without(dataset: Dataset, held: frozenset[str]) -> Split:
    """These families held out; all their real sequences are judged."""
    touched = np.array([bool(held & of_row) for of_row in dataset.families])
    only = np.array([bool(of_row) and of_row <= held for of_row in dataset.families])
    return Split(
        families=held,
        kept=~np.where(dataset.sampled, only, touched),
        judged=touched & ~dataset.sampled & ~dataset.whole,
        models=tuple(i for i, model in enumerate(dataset.models) if model.family in held),
    )


def _grouped(dataset: Dataset, folds: int, seed: int) -> list[list[str]]:
    """Families in groups: the large ones spread first, each to the group with the fewest rows."""
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
