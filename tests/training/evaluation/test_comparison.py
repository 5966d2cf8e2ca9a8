"""Comparison of two predictors: which is better, with which probability, and whether the difference matters."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Self

import numpy as np
import pytest

from costmodel.errors import TrainingError
from costmodel.features.tabular import Encoded
from costmodel.training.dataset import Dataset
from costmodel.training.evaluation.comparison import METRIC_NAMES, Comparison, compare
from costmodel.training.evaluation.splits import leave_share_out
from costmodel.training.regressors.learner import Regressor
from costmodel.training.regressors.registry import BASELINES

NAMES = ("one", "other")


class _Off:
    """A regressor that predicts the bound times a factor, wrong by at most `spread` depending on the seed."""

    def __init__(self, seed: int, spread: float) -> None:
        self.seed = seed
        self.spread = spread

    def fit(self, encoded: Encoded, latencies_us: np.ndarray) -> Self:
        self.factor_ = float(np.median(latencies_us / encoded.totals(encoded.bounds_us)))
        return self

    def predict_us(self, encoded: Encoded) -> np.ndarray:
        return encoded.bounds_us * self.factor_ * (1 + np.random.default_rng(self.seed).uniform(-1, 1) * self.spread)


def _off(spread: float, first_seed: int = 0) -> Callable[[int], Regressor]:
    return lambda seed: _Off(first_seed + seed, spread)


@pytest.fixture(scope="module")
def exact(dataset: Dataset) -> Dataset:
    """A data set in which every cost is twice its bound and a model is the sum of its layers."""
    latencies = 2 * dataset.encoded.totals(dataset.encoded.bounds_us)
    models = tuple(replace(model, latency_us=float(latencies[model.rows].sum())) for model in dataset.models)
    return replace(dataset, latencies_us=latencies, models=models)


def _scores(differences: Sequence[float], middle: float = 0.1) -> dict[int, tuple[float, float]]:
    return {seed: (middle + difference, middle) for seed, difference in enumerate(differences)}


def test_the_better_one_wins(exact: Dataset) -> None:
    """A predictor with far smaller errors wins every run, meaningfully, by more than the worth."""
    found = compare(exact, *NAMES, runs=8, predictors={"one": _off(0.01), "other": _off(0.5, 100)})
    assert found.winner == "one"
    assert found.meaningful
    assert found.worth_having
    assert found.difference < -0.05
    assert found.difference_interval[0] <= found.difference <= found.difference_interval[1] < 0
    assert found.conclusion.startswith("one is better than other with a probability of ")
    assert found.conclusion.endswith("take one")


def test_the_order_of_the_names_is_no_advantage(exact: Dataset) -> None:
    """Exchanging the predictors mirrors all numbers and keeps the winner."""
    predictors = {"one": _off(0.01), "other": _off(0.5, 100)}
    found = compare(exact, "one", "other", runs=8, predictors=predictors)
    mirrored = compare(exact, "other", "one", runs=8, predictors=predictors)
    assert mirrored.winner == "one"
    assert mirrored.better == pytest.approx(1 - found.better)
    assert mirrored.difference == pytest.approx(-found.difference)
    assert mirrored.conclusion.partition(", by")[0] == found.conclusion.partition(", by")[0]


def test_two_of_a_kind_do_not_differ(exact: Dataset) -> None:
    """The same regressor under two names ties in every run and is better with probability one half."""
    found = compare(exact, *NAMES, runs=4, predictors=dict.fromkeys(NAMES, _off(0.1)))
    assert (found.better, found.better_interval, found.difference) == (0.5, (0.5, 0.5), 0)
    assert found.winner is None
    assert found.conclusion.startswith("no difference is shown: one is better than other with a probability of 50%")


def test_what_is_only_differently_lucky_does_not_differ() -> None:
    """Six wins in ten are not significant, and more runs are advised."""
    found = Comparison.of("here", NAMES, "model.mape", _scores([-0.02] * 6 + [0.02] * 4))
    assert found.better_interval[0] < 0.5 < found.better_interval[1]
    assert found.winner is None
    assert found.conclusion.endswith("29 runs would show one that matters")


def test_what_is_seldom_better_does_not_matter() -> None:
    """Seven wins in ten, in many runs, are significant but not meaningful."""
    found = Comparison.of("here", NAMES, "model.mape", _scores([-0.01] * 70 + [0.01] * 30))
    assert found.winner == "one"
    assert not found.meaningful
    assert "too seldom to matter" in found.conclusion


def test_what_is_hardly_better_is_not_worth_having() -> None:
    """A predictor that is always better by less than the worth is meaningful but not worth having."""
    found = Comparison.of("here", NAMES, "model.mape", _scores([-0.001] * 10), worth=0.005)
    assert found.meaningful
    assert not found.worth_having
    assert found.conclusion.endswith("by 0.1 percentage points: reliably, but by less than the 0.5 percentage points "
                                     "worth having")  # fmt: skip


def test_more_is_better_where_it_is() -> None:
    """Larger shares and rank correlations win, and smaller errors win."""
    for metric in METRIC_NAMES:
        larger = Comparison.of("here", NAMES, metric, _scores([0.1] * 5))
        assert larger.winner == ("other" if metric.endswith("mape") else "one")


def test_the_same_runs_give_the_same_document(exact: Dataset) -> None:
    """The JSON document does not depend on how many predictors are trained at once."""
    predictors = {"one": _off(0.1), "other": _off(0.1, 100)}
    found, again = (compare(exact, *NAMES, runs=5, predictors=predictors, jobs=jobs).to_dict() for jobs in (1, 2))
    assert found == again
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert found["seeds"] == [0, 1, 2, 3, 4]
    assert len(found["predictors"]["one"]["runs"]) == 5


def test_runs_differ_in_what_they_hold_out(dataset: Dataset) -> None:
    """The seed selects a fifth of the families, at least one that can be judged; none of it is trained on."""
    splits = [leave_share_out(dataset, 0.2, seed) for seed in range(12)]
    assert len({split.families for split in splits}) > 2
    assert [leave_share_out(dataset, 0.2, seed).families for seed in range(12)] == [s.families for s in splits]
    for split in splits:
        assert len(split.families) == 1
        assert len(split.models) >= 1
        assert not (split.train_rows & split.test_rows).any()
        assert {dataset.models[i].family for i in split.models} == split.families


def test_both_are_judged_on_the_same(dataset: Dataset) -> None:
    """Both predictors get the same rows and seed in each fit of a run; a fit that would have no rows is left out."""
    fits: dict[str, list[tuple[int, int]]] = {name: [] for name in NAMES}

    def noting(name: str) -> Callable[[int], Regressor]:
        class Noting(_Off):
            def fit(self, encoded: Encoded, latencies_us: np.ndarray) -> Self:
                fits[name].append((self.seed, len(latencies_us)))
                return super().fit(encoded, latencies_us)

        return lambda seed: Noting(seed, 0.1)

    compare(dataset, *NAMES, runs=4, predictors={name: noting(name) for name in NAMES})
    assert fits["one"] == fits["other"]
    seeds = [seed for seed, _ in fits["one"]]
    assert seeds == sorted(seeds)
    assert all(2 <= seeds.count(seed) <= 3 for seed in range(4))
    assert all(rows for _, rows in fits["one"])


def test_unknown_names_are_a_sentence(dataset: Dataset) -> None:
    """An unknown predictor is refused with the known names."""
    with pytest.raises(TrainingError, match=r"no predictor 'guess': choose two of .*roofline.*operator_count"):
        compare(dataset, "roofline", "guess", predictors=BASELINES)
    with pytest.raises(TrainingError, match=r"no metric 'speed': choose one of layer\.mape"):
        compare(dataset, "roofline", "flops", metric="speed")
    with pytest.raises(TrainingError, match="no better than itself"):
        compare(dataset, "roofline", "roofline")


def test_without_whole_models_layers_are_compared(dataset: Dataset) -> None:
    """Without whole models, layers are compared; a metric of models is refused with what to do."""
    layers_only = replace(dataset, models=())
    with pytest.raises(TrainingError, match=r"compare by layer\.mape"):
        compare(layers_only, "roofline", "flops", runs=2, predictors=BASELINES)
    found = compare(layers_only, "roofline", "flops", runs=2, metric="layer.mape", predictors=BASELINES)
    assert len(found.scores) == 2


def test_progress_is_reported(exact: Dataset) -> None:
    """Progress is reported before each answer and at the end."""
    reported: list[tuple[int, int]] = []
    predictors = dict.fromkeys(NAMES, _off(0.1))
    compare(
        exact, *NAMES, runs=2, predictors=predictors, progress=lambda done, total, _: reported.append((done, total))
    )
    assert reported == [(0, 4), (1, 4), (2, 4), (3, 4), (4, 4)]
