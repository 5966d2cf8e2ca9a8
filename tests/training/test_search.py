"""A search for hyperparameters: it never does worse by its own count, is the same again, and is no judge of itself."""

import json
from dataclasses import replace

import numpy as np
import pytest

from costmodel.errors import TrainingError
from costmodel.training.boosted import DEFAULTS, LightGBMRegressor
from costmodel.training.dataset import Dataset
from costmodel.training.search import Search, search

TRIALS, FOLDS = 3, 2


@pytest.fixture(scope="module")
def found(dataset: Dataset) -> Search:
    """Of a few trials in the made-up world."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("costmodel.training.search._TRIALS_BEFORE_PRUNING", 1)
        patch.setattr("costmodel.training.search._LEAST_FOLDS", 1)
        return search(dataset, TRIALS, folds=FOLDS)


def test_the_first_trial_is_the_defaults(found: Search) -> None:
    """So that by the search's own count nothing worse than them is found."""
    first = found.trials[0]
    assert replace(first.hyperparameters, leaves=None) == DEFAULTS
    assert found.best.errors[-1] <= first.errors[-1]
    assert [trial.number for trial in found.trials] == list(range(TRIALS))


def test_errors_are_those_after_each_fold(found: Search) -> None:
    """All folds, unless a trial was given up."""
    assert all(len(trial.errors) == FOLDS or trial.pruned for trial in found.trials)
    assert all(np.isfinite(trial.errors).all() and min(trial.errors) > 0 for trial in found.trials)
    assert all(trial.began <= trial.ended for trial in found.trials)


def test_a_report_is_json(found: Search) -> None:
    """With trials that were given up as with others."""
    document = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert document["pruned"] == sum(trial.pruned for trial in found.trials)
    assert document["search_error"] == found.best.errors[-1]


def test_some_families_take_no_part(found: Search, dataset: Dataset) -> None:
    """They decide whether what was found is taken."""
    assert found.confirming
    assert found.confirming < set(dataset.all_families)
    taken = found.best.hyperparameters if found.found_error < found.defaults_error else DEFAULTS
    assert found.hyperparameters == taken


@pytest.mark.parametrize(("defaults_error", "found_error"), [(0.2, 0.1), (0.1, 0.1), (0.1, 0.2)])
def test_only_what_is_better_elsewhere_is_taken(found: Search, defaults_error: float, found_error: float) -> None:
    """A tie is no reason to leave the defaults."""
    judged = replace(found, defaults_error=defaults_error, found_error=found_error)
    assert judged.adopted == (found_error < defaults_error)
    assert (judged.hyperparameters is DEFAULTS) == (not judged.adopted)


def test_an_interruption_keeps_the_best_so_far(
    found: Search, dataset: Dataset, capfd: pytest.CaptureFixture[str]
) -> None:
    """Without a word; what was tried before it is what would have been tried anyway."""

    def impatient(done: int, total: int, what: str) -> None:
        if FOLDS < done < total:  # in the second trial
            raise KeyboardInterrupt

    ended = search(dataset, TRIALS, folds=FOLDS, progress=impatient)
    assert ended.interrupted
    assert capfd.readouterr() == ("", "")
    assert not found.interrupted
    (only,) = ended.trials
    assert (only.hyperparameters, only.errors) == (found.trials[0].hyperparameters, found.trials[0].errors)


def test_an_interruption_before_anything_is_known_ends_all(dataset: Dataset) -> None:
    """There is nothing to keep."""

    def impatient(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        search(dataset, TRIALS, folds=FOLDS, progress=impatient)


def test_whole_models_alone_are_not_searched(dataset: Dataset) -> None:
    """The trees learn from layers."""
    with pytest.raises(TrainingError, match="needs measured layers"):
        search(replace(dataset, whole=np.ones(len(dataset), dtype=bool)), TRIALS)


@pytest.mark.parametrize("objective", ["huber", "fair", "regression"])
def test_every_objective_learns(dataset: Dataset, objective: str) -> None:
    """As does a weight by time; what LightGBM is told is what is recorded."""
    chosen = replace(DEFAULTS, objective=objective, rounds=200, leaves=15, time_weight=0.25)
    regressor = LightGBMRegressor(0, hyperparameters=chosen).fit(dataset.encoded, dataset.latencies_us)
    costs = dataset.encoded.totals(regressor.predict_us(dataset.encoded))
    assert np.median(np.abs(costs / dataset.latencies_us - 1)[~dataset.whole]) < 0.1
    assert regressor.settings["objective"] == objective
    assert (regressor.settings["num_leaves"], regressor.settings["rounds"]) == (15, 200)
