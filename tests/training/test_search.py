"""The hyperparameter search: reproducible, never worse than the defaults by its own measure, independently judged."""

import json
from dataclasses import replace

import numpy as np
import pytest

from costmodel.errors import TrainingError
from costmodel.runtimes.base import RuntimeSettings
from costmodel.runtimes.ort.session import open_session
from costmodel.training.dataset import Dataset
from costmodel.training.regressors.lightgbm_regressor import DEFAULTS, LightGBMRegressor
from costmodel.training.search import Search, search

TRIALS, FOLDS = 3, 2


@pytest.fixture(scope="module")
def found(dataset: Dataset) -> Search:
    """A search of a few trials on the synthetic data set."""
    return search(dataset, TRIALS, folds=FOLDS, unpruned_trials=1, least_folds=1)


def test_the_first_trial_is_the_defaults(found: Search) -> None:
    """The first trial is the defaults, so that the search finds nothing worse by its own measure."""
    first = found.trials[0]
    assert replace(first.hyperparameters, num_leaves=None) == DEFAULTS
    assert found.best.errors[-1] <= first.errors[-1]
    assert [trial.number for trial in found.trials] == list(range(TRIALS))


def test_errors_are_those_after_each_fold(found: Search) -> None:
    """A trial has an error for each fold, unless it was pruned."""
    assert all(len(trial.errors) == FOLDS or trial.pruned for trial in found.trials)
    assert all(np.isfinite(trial.errors).all() and min(trial.errors) > 0 for trial in found.trials)
    assert all(trial.began <= trial.ended for trial in found.trials)


def test_a_report_is_json(found: Search) -> None:
    """The report is JSON, also with pruned trials."""
    document = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert document["pruned"] == sum(trial.pruned for trial in found.trials)
    assert document["search_error"] == found.best.errors[-1]


def test_some_families_take_no_part(found: Search, dataset: Dataset) -> None:
    """Families that take no part in the search decide whether its result is adopted."""
    assert found.confirming
    assert found.confirming < set(dataset.all_families)
    taken = found.best.hyperparameters if found.found_error < found.defaults_error else DEFAULTS
    assert found.hyperparameters == taken


@pytest.mark.parametrize(("defaults_error", "found_error"), [(0.2, 0.1), (0.1, 0.1), (0.1, 0.2)])
def test_only_what_is_better_elsewhere_is_taken(found: Search, defaults_error: float, found_error: float) -> None:
    """The result is adopted only if it is better than the defaults on those families; a tie is not."""
    judged = replace(found, defaults_error=defaults_error, found_error=found_error)
    assert judged.adopted == (found_error < defaults_error)
    assert (judged.hyperparameters is DEFAULTS) == (not judged.adopted)


def test_an_interruption_keeps_the_best_so_far(
    found: Search, dataset: Dataset, capfd: pytest.CaptureFixture[str]
) -> None:
    """An interrupted search prints nothing, and its trials are those of an uninterrupted one."""

    def impatient(done: int, total: int, what: str) -> None:
        if FOLDS < done < total:  # during the second trial
            raise KeyboardInterrupt

    ended = search(dataset, TRIALS, folds=FOLDS, progress=impatient)
    assert ended.interrupted
    assert capfd.readouterr() == ("", "")
    assert not found.interrupted
    (only,) = ended.trials
    assert (only.hyperparameters, only.errors) == (found.trials[0].hyperparameters, found.trials[0].errors)


def test_an_interruption_before_anything_is_known_ends_all(dataset: Dataset) -> None:
    """An interruption during the first trial is raised."""

    def impatient(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        search(dataset, TRIALS, folds=FOLDS, progress=impatient)


def test_whole_models_alone_are_not_searched(dataset: Dataset) -> None:
    """A data set of whole models only is refused, because the trees learn from layers."""
    with pytest.raises(TrainingError, match="needs measured layers"):
        search(replace(dataset, whole=np.ones(len(dataset), dtype=bool)), TRIALS)


@pytest.mark.parametrize("objective", ["huber", "fair", "regression"])
def test_every_objective_learns(dataset: Dataset, objective: str) -> None:
    """Every objective learns, also with time weights, can be exported, and LightGBM's settings are recorded."""
    chosen = replace(DEFAULTS, objective=objective, num_boost_round=200, num_leaves=15, time_weight=0.25)
    regressor = LightGBMRegressor(0, hyperparameters=chosen).fit(dataset.encoded, dataset.latencies_us)
    costs = dataset.encoded.totals(regressor.predict_us(dataset.encoded))
    assert np.median(np.abs(costs / dataset.latencies_us - 1)[~dataset.whole]) < 0.1
    served = open_session(regressor.to_onnx(), RuntimeSettings())
    (ratios,) = served.run(None, {"features": dataset.encoded.features})
    assert regressor.predict_us(dataset.encoded) == pytest.approx(
        dataset.encoded.bounds_us * np.exp(ratios[:, 0]), 1e-4
    )
    assert regressor.settings["objective"] == objective
    assert (regressor.settings["num_leaves"], regressor.settings["num_boost_round"]) == (15, 200)
