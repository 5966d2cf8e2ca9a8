"""Lineages: families that are made of the same kinds of layers belong together, whatever they are called."""

from dataclasses import replace

import numpy as np

from costmodel.training.dataset import Dataset
from costmodel.training.evaluation.splits import leave_families_out
from costmodel.training.lineages import by_lineage, lineages_of


def with_twin(dataset: Dataset, family: str) -> Dataset:
    """Returns the data set with one model of a family renamed to a family of its own."""
    first = next(i for i, model in enumerate(dataset.models) if model.family == family)
    models = tuple(replace(model, family="twin") if i == first else model for i, model in enumerate(dataset.models))
    rows = set(models[first].rows.tolist())
    families = tuple(of | {"twin"} if row in rows else of for row, of in enumerate(dataset.families))
    return replace(dataset, models=models, families=families)


def test_a_twin_is_of_the_same_lineage(dataset: Dataset) -> None:
    """A model of one family under another name is in the lineage of this family, other families are not."""
    sizes = {family: sum(model.family == family for model in dataset.models) for family in dataset.all_families}
    family = max(sizes, key=lambda name: sizes[name])
    assert sizes[family] > 1
    lineages = lineages_of(with_twin(dataset, family))
    assert lineages["twin"] == lineages[family]
    assert len(set(lineages.values())) > 1


def test_no_family_is_lost_and_none_is_split(dataset: Dataset) -> None:
    """Each family with a whole model has one lineage, which is the name of one of its families."""
    lineages = lineages_of(dataset)
    families = {model.family for model in dataset.models}
    assert lineages.keys() == families
    assert all(lineages[lineage] == lineage for lineage in lineages.values())


def test_lineages_are_held_out_whole(dataset: Dataset) -> None:
    """No layer of a lineage is trained on while a model of it is judged."""
    made = by_lineage(with_twin(dataset, dataset.models[0].family))
    assert len(made) == len(dataset)
    for split in leave_families_out(made, 2):
        for number in split.models:
            assert not split.train_rows[made.models[number].rows].any()
    assert np.array_equal(made.latencies_us, dataset.latencies_us)
