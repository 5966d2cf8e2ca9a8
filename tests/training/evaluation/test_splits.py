"""Splits by family: no row of a held-out model is trained on, and every row is judged once."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.errors import TrainingError
from costmodel.training.dataset import Dataset
from costmodel.training.evaluation.splits import leave_families_out
from tests.synthetic import FAMILIES

FAMILY_SETS = st.frozensets(st.sampled_from(["a", "b", "c", "d", "e"]), max_size=3)


def _with(dataset: Dataset, families: list[frozenset[str]]) -> Dataset:
    """Returns the data set with these families assigned to its rows in turn."""
    rows = tuple(families[i % len(families)] for i in range(len(dataset)))
    sampled = np.array([not of_row or is_sample for of_row, is_sample in zip(rows, dataset.sampled, strict=True)])
    return replace(dataset, families=rows, sampled=sampled, models=())


@given(
    families=st.lists(FAMILY_SETS, min_size=3, max_size=20).filter(lambda f: len(frozenset().union(*f)) > 2),
    folds=st.sampled_from([None, 2, 3, 9]),
    seed=st.integers(0, 3),
)
def test_the_law_of_holding_out(dataset: Dataset, families: list[frozenset[str]], folds: int | None, seed: int) -> None:
    """Held-out rows are all real rows of the held-out families, and all samples of those families only."""
    made = _with(dataset, families)
    splits = leave_families_out(made, folds, seed)
    assert sorted(f for split in splits for f in split.families) == list(made.all_families)
    assert len(splits) == (len(made.all_families) if folds is None else min(folds, len(made.all_families)))
    for split in splits:
        for of_row, sampled, kept in zip(made.families, made.sampled, split.train_rows, strict=True):
            gone = bool(of_row) and of_row <= split.families if sampled else bool(of_row & split.families)
            assert kept == (not gone)
    judged = np.sum([split.test_rows for split in splits], axis=0)
    assert judged.tolist() == (~made.sampled & ~made.whole).astype(int).tolist()
    assert not any((split.train_rows & split.test_rows).any() for split in splits)


def test_models_are_held_out_with_their_family(dataset: Dataset) -> None:
    """Each model is in the split of its family; its whole and its layers are not trained on there."""
    for split in leave_families_out(dataset, 2):
        for i in split.models:
            model = dataset.models[i]
            assert model.family in split.families
            assert not split.train_rows[[model.row, *model.rows]].any()


def test_the_seed_decides_which_families_go_together(dataset: Dataset) -> None:
    """The same seed gives the same groups of families, another seed other groups."""
    groups = [{split.families for split in leave_families_out(dataset, 2, seed)} for seed in (0, 0, 1, 2, 3)]
    assert groups[0] == groups[1]
    assert any(other != groups[0] for other in groups[2:])
    assert {family for group in groups[0] for family in group} == set(FAMILIES)


def test_two_families_are_too_few(dataset: Dataset) -> None:
    """Too few families are refused with the required number."""
    with pytest.raises(TrainingError, match="needs 3, not 2"):
        leave_families_out(_with(dataset, [frozenset({"a"}), frozenset({"b"})]))
