"""Rows of the same machine with fewer threads: trained on, held out with their lineage, never judged."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from costmodel.paths import Home
from costmodel.store.store import Store
from costmodel.training.dataset import Dataset, dataset_of, load_dataset
from costmodel.training.evaluation.evaluation import evaluate
from costmodel.training.evaluation.splits import leave_families_out
from costmodel.training.fewer_threads import is_same_with_fewer_threads, with_fewer_threads
from costmodel.training.lineages import by_lineage
from costmodel.training.regressors.thread_scaling import THREADS
from tests.synthetic import FAMILIES, MEASURED, QUICK, SYSTEM, copied, corpus, fill

TWO = replace(SYSTEM, name="made.up-2t", settings=replace(SYSTEM.settings, threads=2))
# With two threads only these are measured.
FEW = ("light_bvlc_alexnet", "light_shufflenet", "light_squeezenet", "light_zfnet512")


@pytest.fixture
def both(trained: Home, tmp_path: Path) -> Store:
    """A store in which the machine has measured six models with one thread, and four with two."""
    home = copied(trained, tmp_path / "home")
    store = Store(home.store_url)
    models = corpus(trained.cache)
    fill(store, [models[name] for name in FEW], system=TWO, samples=0)
    return store


@pytest.fixture
def pooled(both: Store) -> Dataset:
    """The data set for two threads, with the rows for one."""
    return with_fewer_threads(load_dataset(both, TWO.name), both)


def test_rows_of_one_thread_stand_behind_those_of_two(pooled: Dataset, both: Store) -> None:
    """All rows of the other number of threads are there, described as on this system but for the number of threads."""
    own, other = load_dataset(both, TWO.name), load_dataset(both, SYSTEM.name)
    assert len(pooled) == len(own) + len(other)
    assert pooled.borrowed.tolist() == [False] * len(own) + [True] * len(other)
    borrowed = pooled.encoded.take(pooled.borrowed)
    described = dataset_of(both, own.system, both.latencies_us(SYSTEM.name)).encoded
    differing = np.flatnonzero((borrowed.features != described.features).any(axis=0))
    assert differing.tolist() == [THREADS]
    assert set(borrowed.features[:, THREADS]) == {1}
    np.testing.assert_array_equal(borrowed.bounds_us, described.bounds_us)
    np.testing.assert_array_equal(borrowed.edges, other.encoded.edges)
    np.testing.assert_array_equal(pooled.latencies_us[pooled.borrowed], other.latencies_us)
    assert [model.name for model in pooled.models] == [model.name for model in own.models]
    assert {model.name for model in pooled.borrowed_models} == set(MEASURED)
    for model in pooled.borrowed_models:
        assert pooled.latencies_us[model.row] == model.latency_us


@pytest.mark.parametrize("by", [lambda dataset: dataset, by_lineage])
def test_a_held_out_family_is_held_out_with_any_number_of_threads(pooled: Dataset, by: object) -> None:
    """Nothing that a held-out model contains is trained on, whatever its threads, and no borrowed row judged."""
    assert callable(by)
    judged = by(pooled)
    for split in leave_families_out(judged, 2):
        for model in (*(judged.models[i] for i in split.models), *judged.borrowed_models):
            if model.family in split.families:
                assert not split.train_rows[[model.row, *model.rows]].any()
        assert not (split.test_rows & judged.borrowed).any()
        assert (split.train_rows & judged.borrowed).any()


def test_lineages_are_told_by_the_models_of_both(pooled: Dataset) -> None:
    """A family without a model of its own here is of the lineage that its borrowed models show."""
    names = {family for model in by_lineage(pooled).borrowed_models for family in [model.family]}
    # SqueezeNet is measured with two threads, Inception is not: they are of one lineage all the same.
    assert ("squeezenet" in names) != ("inception" in names)
    assert set(pooled.all_families) == set(FAMILIES)


def test_borrowed_rows_make_predictions_better(both: Store, pooled: Dataset) -> None:
    """With the layers that one thread has measured, unseen layers are predicted better than from four models, by time.

    The mean over layers, most of which take no time, is not better in these few synthetic data.
    """
    alone = evaluate(load_dataset(both, TWO.name), seeds=(0,), predictors=QUICK).report
    together = evaluate(pooled, seeds=(0,), predictors=QUICK).report
    errors = [report.predictors["lightgbm"].layer.weighted_mape for report in (alone, together)]
    assert errors[0] is not None
    assert errors[1] is not None
    assert errors[1] < errors[0]
    assert together.families.keys() == {"alexnet", "shufflenet", "squeezenet", "vgg"}
    assert together.rows == len(pooled)


def test_one_thread_learns_nothing_from_two(both: Store) -> None:
    """The data set for one thread stays as it is."""
    dataset = load_dataset(both, SYSTEM.name)
    assert with_fewer_threads(dataset, both) is dataset


def test_only_the_threads_may_differ() -> None:
    """Another host, runtime, level or a guessed system is not the same machine, nor is one with more threads."""
    assert is_same_with_fewer_threads(SYSTEM, TWO)
    assert not is_same_with_fewer_threads(TWO, SYSTEM)
    assert not is_same_with_fewer_threads(SYSTEM, replace(SYSTEM, name="same"))
    assert SYSTEM.host is not None
    # Two virtual machines of one kind read clocks that differ in the last digit.
    assert is_same_with_fewer_threads(SYSTEM, replace(TWO, host=replace(SYSTEM.host, base_clock_mhz=2596.14)))
    for other in (
        replace(TWO, host=replace(SYSTEM.host, l3_bytes=2 << 20)),
        replace(TWO, runtime_version="1.30.0"),
        replace(TWO, settings=replace(TWO.settings, level="none")),
        replace(TWO, extrapolated=True),
    ):
        assert not is_same_with_fewer_threads(SYSTEM, other)
