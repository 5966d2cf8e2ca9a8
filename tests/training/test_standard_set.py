"""Choosing the standard set from the measurements of a base system."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from costmodel.errors import DataFileError
from costmodel.store.store import Store
from costmodel.training.dataset import Dataset
from costmodel.training.standard_set import StandardSet, choose_standard_set, measuring_values
from tests.synthetic import FAMILIES, SYSTEM


@pytest.fixture
def values(dataset: Dataset) -> np.ndarray:
    """Values of the rows where every layer is predicted 20% too high."""
    return measuring_values(dataset, np.where(dataset.whole, np.nan, 1.2 * dataset.latencies_us))


@pytest.fixture
def choose(dataset: Dataset, store: Store, values: np.ndarray) -> Callable[..., StandardSet]:
    """Function that chooses from the synthetic data set within the given limits, which are wide by default."""
    limits = {"models": 100, "layers": 10_000, "longest_us": 1e9, "budget_s": 1e9}
    return lambda **changed: choose_standard_set(dataset, store.sequences(), values, **{**limits, **changed})


def test_without_limits_every_model_is_complete(choose: Callable[..., StandardSet], dataset: Dataset) -> None:
    """Every measured model is chosen, with all of its layers."""
    standard = choose()
    assert {model.name for model in standard.models} == {model.name for model in dataset.models}
    assert all(model.complete for model in standard.models)
    assert standard.layers == len(np.unique(np.concatenate([model.rows for model in dataset.models])))
    assert (standard.base, standard.fingerprint) == (SYSTEM.name, dataset.fingerprint)
    assert choose() == standard


def test_every_family_comes_before_a_second_model_of_one(choose: Callable[..., StandardSet]) -> None:
    """With as many models as families, each family has one model."""
    assert Counter(model.family for model in choose(models=len(FAMILIES)).models) == Counter(FAMILIES)


def test_models_whose_layers_do_not_fit_are_measured_whole(choose: Callable[..., StandardSet]) -> None:
    """The number of layers limits which models are complete, and not which are chosen."""
    everything, few = choose(), choose(layers=60)
    assert {model.name for model in few.models} == {model.name for model in everything.models}
    assert 0 < few.layers <= 60
    assert {model.complete for model in few.models} == {True, False}
    assert few.seconds < everything.seconds


def test_slow_models_are_left_out(choose: Callable[..., StandardSet], dataset: Dataset) -> None:
    """No model takes longer than the limit, and the set takes no longer than the budget."""
    latencies_us = {model.name: model.latency_us for model in dataset.models}
    middle_us = float(np.median(list(latencies_us.values())))
    names = {model.name for model in choose(longest_us=middle_us).models}
    assert names == {name for name, latency_us in latencies_us.items() if latency_us <= middle_us}
    budget_s = choose().seconds / 2
    assert 0 < choose(budget_s=budget_s).seconds <= budget_s


def test_layers_are_worth_their_share_times_their_error(dataset: Dataset, values: np.ndarray) -> None:
    """With the same error everywhere the values add up to it, and rows in no model are worth nothing."""
    assert values.sum() == pytest.approx(np.log(1.2))
    used = np.zeros(len(dataset), dtype=bool)
    used[np.concatenate([model.rows for model in dataset.models])] = True
    assert (values > 0).tolist() == used.tolist()


def test_a_layer_that_is_predicted_worse_is_worth_more(dataset: Dataset, values: np.ndarray) -> None:
    """A larger error of one layer raises its value."""
    row = int(dataset.models[0].rows[0])
    predicted_us = np.where(dataset.whole, np.nan, 1.2 * dataset.latencies_us)
    predicted_us[row] *= 2
    assert measuring_values(dataset, predicted_us)[row] > values[row]


def test_a_set_is_read_as_it_was_written(choose: Callable[..., StandardSet], tmp_path: Path) -> None:
    """The file has the whole set."""
    choose().write(tmp_path / "set.json")
    assert StandardSet.read(tmp_path / "set.json") == choose()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 9}', '{"format": 1, "models": [{}]}'])
def test_another_file_is_no_standard_set(tmp_path: Path, text: str) -> None:
    """A file of another content or format is an error that names the file."""
    (tmp_path / "set.json").write_text(text)
    with pytest.raises(DataFileError, match=r"set\.json"):
        StandardSet.read(tmp_path / "set.json")
