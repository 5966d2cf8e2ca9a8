"""Evaluation on held-out lineages: the report, the separation of training and test data, and the intervals."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Self

import numpy as np
import pytest

from costmodel.estimate.cost import TYPICAL_CONSTRUCTION
from costmodel.features.tabular import Encoded
from costmodel.training.dataset import Dataset
from costmodel.training.evaluation.evaluation import Evaluation, evaluate
from costmodel.training.evaluation.results import FamilyFacts
from costmodel.training.lineages import by_lineage
from costmodel.training.regressors.baselines import RooflineRegressor
from costmodel.training.regressors.lightgbm_regressor import LightGBMRegressor
from costmodel.training.regressors.registry import BASELINES, DETERMINISTIC, REGRESSORS
from tests.synthetic import LINEAGES, MEASURED

TOP = {"system", "split", "seeds", "noise_floor_mape", "predictors", "champion"}
INTERVAL = {"interval_coverage", "interval_half_width"}
LAYER = {"mape", "weighted_mape", "weighted_mape_above_20us", "within_10pct", "kendall_tau"} | INTERVAL
MODEL = {"mape", "macro_mape", "percentile_95", "within_5pct", "within_10pct", "kendall_tau"} | INTERVAL
# Without log_linear: synthetic costs are log-linear, so that it would win everything.
QUICK_ONES = {name: make for name, make in REGRESSORS.items() if name not in ("gnn", "log_linear")}
UNBOUNDED = {"mape", "kendall_tau", "interval_half_width", "macro_mape", "percentile_95"}
CHEAP = {"roofline": lambda seed: RooflineRegressor()}


@pytest.fixture(scope="module")
def evaluation(dataset: Dataset) -> Evaluation:
    """An evaluation of all fast regressors, with two seeds."""
    return evaluate(dataset, seeds=(0, 1), predictors=QUICK_ONES, jobs=2)


@pytest.fixture(scope="module")
def exact(dataset: Dataset) -> Dataset:
    """A data set in which every cost is twice its bound and a model is the sum of its layers: the roofline is exact."""
    latencies = 2 * dataset.encoded.totals(dataset.encoded.bounds_us)
    models = tuple(replace(model, latency_us=float(latencies[model.rows].sum())) for model in dataset.models)
    return replace(dataset, latencies_us=latencies, models=models)


def _without_wholes(dataset: Dataset) -> Dataset:
    return replace(dataset, models=())


def test_the_report_has_the_keys_that_programs_lean_on(evaluation: Evaluation) -> None:
    """The report has the documented keys at every level, is JSON without NaN, and states fractions, not percent."""
    report = json.loads(json.dumps(evaluation.report.to_dict(), allow_nan=False))
    assert set(report) >= TOP
    assert (report["system"], report["split"], report["seeds"]) == ("made.up", "leave-one-lineage-out", [0, 1])
    assert report["noise_floor_mape"] == pytest.approx(0.02)
    assert report["champion"] in report["predictors"]
    for result in report["predictors"].values():
        assert set(result["layer"]) == LAYER
        assert set(result["model"]) == set(result["model_unseen"]) == MODEL
        shares = [result["layer"]["within_10pct"], *(result["model"][k] for k in MODEL - UNBOUNDED)]
        assert all(0 <= share <= 1 for share in shares)
        assert all(-1 <= result[part]["kendall_tau"] <= 1 for part in ("layer", "model"))
        assert all(result[part]["mape"] > 0 for part in ("layer", "model"))


def test_long_layers_are_judged_by_their_own_noise_floor(dataset: Dataset) -> None:
    """The difference of two measurements counts above 20 us only, and in proportion to the time, as the error does."""
    repeats = tuple((latency_us, 3 * latency_us) for latency_us in range(1, 20)) + ((30.0, 33.0), (300.0, 315.0)) * 15
    report = evaluate(replace(dataset, repeats=repeats), seeds=(0,), predictors=CHEAP).report
    assert report.noise_floor_above_20us == pytest.approx(18 / 330)
    found = report.predictors["roofline"].layer
    assert found.weighted_mape is not None
    assert found.weighted_mape_above_20us == pytest.approx(found.weighted_mape, rel=0.05)
    few = evaluate(replace(dataset, repeats=repeats[:40]), seeds=(0,), predictors=CHEAP).report
    assert few.noise_floor_above_20us is None


def test_baselines_are_listed_like_the_others(evaluation: Evaluation) -> None:
    """FLOPs, roofline, operator count, nearest neighbour and forests are reported on the same rows."""
    assert set(evaluation.report.predictors) == set(QUICK_ONES)
    assert set(BASELINES) > {"flops", "roofline", "operator_count", "nearest"}
    assert set(evaluation.calibrations) == set(evaluation.report.predictors)


def test_the_champion_is_no_baseline(evaluation: Evaluation) -> None:
    """The report names the best predictor of all, but a baseline never becomes champion."""
    errors = {name: result.model.mape for name, result in evaluation.report.predictors.items()}
    unseen = {name: result.model_unseen.mape for name, result in evaluation.report.predictors.items()}
    assert evaluation.best == min(unseen, key=unseen.__getitem__)
    assert evaluation.report.champion not in BASELINES
    assert errors["lightgbm"] < errors["flops"] < errors["operator_count"]
    assert all(errors[name] <= unseen[name] for name in ("flops", "operator_count"))  # measured layers help


def test_every_model_is_judged_by_predictors_trained_without_its_lineage(evaluation: Evaluation) -> None:
    """Each held-out model has both latencies in the report, and each lineage its shared rows."""
    for result in evaluation.report.predictors.values():
        assert {m.model for m in result.models} == set(MEASURED)
        for part, errors in (
            (result.model, [abs(m.predicted_us / m.latency_us - 1) for m in result.models]),
            (result.model_unseen, [abs(m.unseen_us / m.latency_us - 1) for m in result.models]),
        ):
            assert part.mape == pytest.approx(np.mean(errors), rel=0.1)
    facts = evaluation.report.families
    assert set(facts) == set(LINEAGES)
    assert all(0 < fact.shared_with_other_families < 0.5 for fact in facts.values())


def test_the_same_seeds_give_the_same_report(dataset: Dataset, evaluation: Evaluation) -> None:
    """However many families are evaluated at once."""
    again = evaluate(dataset, seeds=(0, 1), predictors=QUICK_ONES, jobs=1)
    assert again.report == evaluation.report
    assert again.calibrations == evaluation.calibrations


class _Spy:
    """A regressor that records the rows of each fit; its first feature is the number of the layer."""

    def __init__(self) -> None:
        self.fitted: list[set[int]] = []

    def fit(self, encoded: Encoded, latencies_us: np.ndarray) -> Self:
        self.fitted.append(set(encoded.features[:, 0].astype(int).tolist()))
        return self

    def predict_us(self, encoded: Encoded) -> np.ndarray:
        return encoded.bounds_us


def test_a_regressor_never_sees_what_it_is_judged_on(dataset: Dataset) -> None:
    """Each lineage has one fit, without its layers, even those other lineages have, and without its models."""
    numbered = dataset.encoded.features.copy()
    numbered[:, 0] = np.arange(len(numbered))
    spy = _Spy()
    marked = replace(dataset, encoded=replace(dataset.encoded, features=numbered))
    evaluate(marked, seeds=(0,), predictors={"spy": lambda seed: spy})
    assert len(spy.fitted) == len(LINEAGES)
    of_rows = by_lineage(dataset).families
    for lineage, layers in zip(LINEAGES, spy.fitted, strict=True):
        own = np.array([lineage in of_row for of_row in of_rows]) & ~dataset.sampled
        assert own[dataset.whole].any()
        theirs = {int(layer) for row in np.flatnonzero(own) for layer in range(*dataset.encoded.starts[[row, row + 1]])}
        assert not theirs & layers


def test_errors_are_listed_by_operator_size_and_distance(evaluation: Evaluation, dataset: Dataset) -> None:
    """Every judged layer is in one class of each kind; the operator with the most latency is first."""
    result = evaluation.report.predictors["lightgbm"]
    judged = ~dataset.sampled & ~dataset.whole
    assert sum(size.errors.layers for size in result.sizes) == judged.sum()
    assert sum(apart.errors.layers for apart in result.distances.ranges) == judged.sum()
    operators = result.operators
    assert set(operators) == {k for k, j in zip(dataset.kinds, judged, strict=True) if j}
    assert next(iter(operators)) == "Conv"
    assert sum(operator.latency_us for operator in operators.values()) == pytest.approx(
        dataset.latencies_us[judged].sum()
    )


def test_families_can_be_left_out_in_groups(dataset: Dataset) -> None:
    """Holding out groups of families is faster, and the report says so."""
    report = evaluate(dataset, seeds=(0,), folds=2, predictors=CHEAP).report
    assert report.split == "leave-lineages-out, 2 folds"
    assert {m.model for m in report.predictors["roofline"].models} == set(MEASURED)


def test_a_perfect_regressor_has_no_error(exact: Dataset) -> None:
    """An exact regressor has MAPE 0, all estimates within 5%, the right order and intervals of width 0."""
    evaluation = evaluate(exact, seeds=(0,), predictors=CHEAP)
    result = evaluation.report.predictors["roofline"]
    layer, model = result.layer, result.model
    layer_metrics = (layer.mape, layer.weighted_mape, layer.within_10pct, layer.kendall_tau)
    model_metrics = (model.mape, model.within_5pct, model.within_10pct, model.kendall_tau)
    assert layer_metrics == pytest.approx((0, 0, 1, 1), abs=1e-6)
    assert model_metrics == pytest.approx((0, 1, 1, 1), abs=1e-6)
    assert max(evaluation.calibrations["roofline"].by_distance) == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_intervals_cover_where_errors_are_alike(exact: Dataset, noise: float) -> None:
    """With equal noise in all families, at least four of six models lie inside their intervals.

    An interval that was calibrated on the five other models would cover the sixth with a probability of 5/6 if their
    errors did not depend on it; they are those of corrections that are fitted to it as well, so that 4/6 is what holds
    (the bound of the jackknife, Barber et al. 2021).
    """
    latencies = exact.latencies_us * np.exp(np.random.default_rng(0).normal(0, noise, len(exact)))
    models = tuple(
        replace(model, latency_us=float(latencies[model.rows].sum()) * factor)
        for model, factor in zip(exact.models, (0.97, 1.02, 1.03, 0.98, 1.01, 0.99), strict=True)
    )
    noisy = replace(exact, latencies_us=latencies, models=models)
    evaluation = evaluate(noisy, seeds=(0,), predictors=CHEAP, level=0.9)
    assert evaluation.report.predictors["roofline"].model.interval_coverage >= 4 / 6
    sums_us = np.array([model.latency_us for model in models])
    of_models = evaluation.calibrations["roofline"].uncertainty.construction_at(sums_us)
    assert 0.02 < np.median(of_models) < 0.06


def test_without_whole_models_layers_decide(exact: Dataset) -> None:
    """Without whole models, model metrics are null, and the champion is the best over layers."""
    predictors: Mapping[str, Any] = {"flops": REGRESSORS["flops"], **CHEAP}
    evaluation = evaluate(_without_wholes(exact), seeds=(0,), predictors=predictors)
    assert set(evaluation.report.predictors["roofline"].model.to_dict().values()) == {None}
    assert evaluation.report.champion == "roofline"
    assert evaluation.calibrations["roofline"].uncertainty.construction == TYPICAL_CONSTRUCTION


def test_a_family_that_has_samples_only_is_tolerated(dataset: Dataset) -> None:
    """A family may have samples only, if the measurements of its own sequences failed."""
    only_samples = tuple(
        frozenset({"ghost"}) if sampled else families
        for families, sampled in zip(dataset.families, dataset.sampled, strict=True)
    )
    report = evaluate(replace(dataset, families=only_samples), seeds=(0,), predictors=CHEAP).report
    assert report.families["ghost"] == FamilyFacts(models=0, sequences=0, shared_with_other_families=0.0)


def test_progress_is_reported(exact: Dataset) -> None:
    """Progress is reported before each training and at the end; what uses no random numbers is trained once."""
    reported: list[tuple[int, int, str]] = []
    predictors = {**CHEAP, "lightgbm": LightGBMRegressor}
    evaluate(exact, seeds=(0, 1), predictors=predictors, progress=lambda *what: reported.append(what))
    assert reported == [(0, 3, "roofline"), (1, 3, "lightgbm"), (2, 3, "lightgbm"), (3, 3, "")]


@pytest.mark.parametrize("name", sorted(DETERMINISTIC & REGRESSORS.keys()))
def test_a_deterministic_regressor_ignores_the_seed(exact: Dataset, name: str) -> None:
    """Any seed leads to the same predictions of layers."""
    one, other = (
        evaluate(exact, seeds=(seed,), predictors={name: REGRESSORS[name]}).held_out[name].rows_us for seed in (0, 1)
    )
    np.testing.assert_array_equal(one, other)


def test_more_certainty_is_wider(dataset: Dataset) -> None:
    """A higher level does not narrow any width of the calibration."""
    low, high = (
        evaluate(dataset, seeds=(0,), predictors={"lightgbm": LightGBMRegressor}, level=level).calibrations["lightgbm"]
        for level in (0.5, 0.95)
    )
    assert all(one < other for one, other in zip(low.by_distance, high.by_distance, strict=True))
    assert low.uncertainty.construction <= high.uncertainty.construction
