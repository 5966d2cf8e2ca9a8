"""The context correction of layer costs, learnt from whole models."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.estimate.context_correction import ContextCorrection, cache_pressure, small_weights_kb
from costmodel.training.context_correction import ModelLayers, fit_context_correction, fit_correction_of
from costmodel.training.dataset import Dataset
from tests.synthetic import SYSTEM

OPERATORS = ("Add", "Conv", "Gemm", "Relu")
TRUTH = ContextCorrection(
    short=(-0.3, -0.1, -0.05, 0.0),
    short_between=(-0.2, -0.1),
    footprint=0.02,
    operators={"Conv": -0.05, "Gemm": 0.05},
    reread=0.04,
)
NO_WEIGHTS = np.zeros(2)


def models(count: int, seed: int = 0) -> list[ModelLayers]:
    """Returns synthetic models with layers from a microsecond to three milliseconds."""
    chance = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        layers = int(chance.integers(5, 60))
        costs = np.exp(chance.uniform(0, np.log(3e3), layers))
        operators = tuple(chance.choice(OPERATORS, layers, p=chance.dirichlet(np.ones(4))).tolist())
        weights_kb = costs * chance.uniform(0, 4, layers) * chance.integers(0, 2, layers)
        found.append(ModelLayers(costs, operators, float(chance.uniform(-3, 3)), weights_kb))
    return found


def test_models_teach_what_makes_their_sums_wrong() -> None:
    """With a learnt correction, the corrected layers of new models add up to the models' latencies."""
    fitted, new = models(300), models(50, seed=1)
    learnt = fit_context_correction(fitted, [model.corrected_us(TRUTH).sum() for model in fitted])
    before = [model.costs_us.sum() / model.corrected_us(TRUTH).sum() for model in new]
    after = [model.corrected_us(learnt).sum() / model.corrected_us(TRUTH).sum() for model in new]
    assert np.abs(np.log(before)).mean() > 0.02
    assert np.abs(np.log(after)).mean() < 0.002


def test_one_model_that_is_far_off_does_not_count_for_many() -> None:
    """Errors count by their absolute value, not by their square, so that an outlier has little influence."""
    fitted = models(200)
    latencies = [model.corrected_us(TRUTH).sum() for model in fitted]
    learnt = fit_context_correction(fitted, latencies)
    disturbed = fit_context_correction(fitted, [10 * latencies[0], *latencies[1:]])
    assert disturbed.short == pytest.approx(learnt.short, abs=0.05)


def test_a_few_models_teach_less_than_many() -> None:
    """The correction from few models is shrunk towards none."""
    (new,) = models(1, seed=2)

    def taught(count: int) -> float:
        fitted = models(count)
        learnt = fit_context_correction(fitted, [1.5 * model.costs_us.sum() for model in fitted])
        return float(new.corrected_us(learnt).sum() / new.costs_us.sum())

    assert 1.0 < taught(1) < taught(200) < 1.55


def test_few_models_hardly_change_a_correction_that_is_known() -> None:
    """A correction that is given holds where models agree with it, and where there are too few to say otherwise."""
    few, many = models(2), models(300, seed=3)
    agreed = fit_context_correction(few, [model.corrected_us(TRUTH).sum() for model in few], near=TRUTH)
    assert agreed.short == pytest.approx(TRUTH.short, abs=0.01)
    assert agreed.operators == pytest.approx({"Add": 0, "Relu": 0, **TRUTH.operators}, abs=0.01)
    (new,) = models(1, seed=2)

    def differs(fitted: list[ModelLayers]) -> float:
        learnt = fit_context_correction(fitted, [1.5 * one.corrected_us(TRUTH).sum() for one in fitted], near=TRUTH)
        return float(new.corrected_us(learnt).sum() / new.corrected_us(TRUTH).sum())

    assert differs(few) == pytest.approx(1, abs=0.1)
    assert 1.3 < differs(many) < 1.55


def test_weights_are_not_read_in_less_than_no_time() -> None:
    """Models that take less time than their layers teach no negative time for reading weights."""
    fitted = models(300)
    faster = replace(TRUTH, reread=-0.04)
    assert fit_context_correction(fitted, [one.corrected_us(faster).sum() for one in fitted]).reread == 0.0


def test_a_correction_of_predicted_costs_reads_weights_as_that_of_measured_ones() -> None:
    """The time for reading weights is the machine's, so that the errors of a regressor do not change it."""
    fitted = models(300)
    slower = [one.corrected_us(replace(TRUTH, reread=0.08)).sum() for one in fitted]
    assert fit_context_correction(fitted, slower, near=TRUTH).reread == TRUTH.reread


def test_without_models_a_layer_costs_what_it_costs() -> None:
    """Without whole models there is no correction."""
    costs = np.array([1.0, 10.0])
    assert fit_context_correction([], [], near=TRUTH) == TRUTH
    assert fit_context_correction([], []).factors(costs, ["Conv", "Relu"], 2.0, NO_WEIGHTS) == pytest.approx([1.0, 1.0])


def test_several_layers_that_always_occur_together_cost_what_they_cost() -> None:
    """Costs of several layers without an operator of their own are neither learnt from nor corrected."""
    model = ModelLayers(np.array([5.0, 7.0]), ("Conv", ""), 1.0, np.array([10.0, 10.0]))
    placed = model.corrected_us(TRUTH)
    assert placed[1] == 7.0
    assert placed[0] != 5.0


def test_short_layers_between_two_caches_have_a_correction_of_their_own() -> None:
    """It counts most if the weights are a few times as large as the cache, and not for long layers."""
    costs, operators = np.array([2.0, 1e4]), ["Relu", "Relu"]
    one = ContextCorrection(short_between=(-0.3, 0.0))
    inside, between, outside = (one.factors(costs, operators, pressure, NO_WEIGHTS) for pressure in (-3.0, 1.0, 5.0))
    assert between[0] < 0.9
    assert [*inside, between[1], *outside] == pytest.approx([1.0] * 5, abs=0.01)


def test_small_weights_are_read_again_in_a_model_that_does_not_fit_into_the_cache() -> None:
    """Weights that stay in the level 2 cache when a layer runs alone take longer in a model whose weights do not."""
    costs, operators = np.array([10.0, 10.0]), ["Conv", "Conv"]
    l2_bytes = SYSTEM.host.l2_bytes if SYSTEM.host else 0
    weights_kb = small_weights_kb(np.array([0.1, 0.6]) * l2_bytes, SYSTEM.host)
    assert weights_kb == pytest.approx([l2_bytes / 1e4, 0])
    one = ContextCorrection(reread=0.05)
    fits, does_not_fit = (one.factors(costs, operators, np.log(share), weights_kb) for share in (0.4, 3.0))
    assert fits == pytest.approx([1.0, 1.0])
    assert does_not_fit[0] > 1.1
    assert does_not_fit[1] == 1.0
    # A cost that is far too low does not make the factor a large number.
    assert (one.factors(np.array([1e-6, 0.0]), operators, 1.0, np.array([10.0, 10.0])) < 1e3).all()


@pytest.mark.parametrize(("random_models", "is_the_measured_one"), [(0, False), (99, False), (100, True)])
def test_random_networks_settle_the_correction_of_predicted_costs(
    dataset: Dataset, random_models: int, is_the_measured_one: bool
) -> None:
    """Where enough of them were measured, costs are corrected in the same way, measured or predicted."""
    with_random = replace(dataset, random_models=dataset.models[:1] * random_models)
    predicted = {number: 1.5 * dataset.latencies_us[model.rows] for number, model in enumerate(dataset.models)}
    assert (fit_correction_of(with_random, predicted, near=TRUTH) == TRUTH) == is_the_measured_one


@given(
    st.tuples(*[st.floats(-2, 2)] * 2),
    st.tuples(*[st.floats(-2, 2)] * 2),
    st.floats(-1, 1),
    st.dictionaries(st.sampled_from(OPERATORS), st.floats(-1, 1)),
    st.floats(-1, 1),
)
def test_coefficients_survive_json(
    short: tuple[float, ...],
    between: tuple[float, ...],
    footprint: float,
    operators: dict[str, float],
    reread: float,
) -> None:
    """The coefficients survive JSON, as part of a regressor's card."""
    one = ContextCorrection(short, between, footprint, operators, reread=reread)
    assert ContextCorrection.from_dict(json.loads(json.dumps(one.to_dict()))) == one
    assert ContextCorrection.from_dict({**one.to_dict(), "of_a_newer_costmodel": 1}) == one


@given(st.floats(0, 1e12), st.floats(0, 1e12))
def test_more_weights_never_press_less(one: float, other: float) -> None:
    """Cache pressure does not decrease with the weights of the model."""
    host = SYSTEM.host
    assert (cache_pressure(min(one, other), host)) <= cache_pressure(max(one, other), host)


def test_without_a_known_cache_weights_press_on_none() -> None:
    """On a host with unknown caches, cache pressure is 0."""
    assert cache_pressure(1e9, None) == 0.0
