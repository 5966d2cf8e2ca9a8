"""What layers cost among others, learnt from whole models."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.in_place import InPlace, pressure
from costmodel.training.in_place import LayersOf, fit_in_place
from tests.synthetic import SYSTEM

OPERATORS = ("Add", "Conv", "Gemm", "Relu")
TRUTH = InPlace(short=(-0.3, -0.1), footprint=0.02, operators={"Conv": -0.05, "Gemm": 0.05})


def models(count: int, seed: int = 0, longest_us: float = 3e3) -> list[LayersOf]:
    """Made-up models, of layers from a microsecond to `longest_us`."""
    chance = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        layers = int(chance.integers(5, 60))
        costs = np.exp(chance.uniform(0, np.log(longest_us), layers))
        operators = tuple(chance.choice(OPERATORS, layers, p=chance.dirichlet(np.ones(4))).tolist())
        found.append(LayersOf(costs, operators, float(chance.uniform(-3, 3))))
    return found


def test_models_teach_what_makes_their_sums_wrong() -> None:
    """New models add up then."""
    seen, new = models(300), models(50, seed=1)
    learnt = fit_in_place(seen, [model.placed_us(TRUTH).sum() for model in seen])
    before = [model.costs_us.sum() / model.placed_us(TRUTH).sum() for model in new]
    after = [model.placed_us(learnt).sum() / model.placed_us(TRUTH).sum() for model in new]
    assert np.abs(np.log(before)).mean() > 0.02
    assert np.abs(np.log(after)).mean() < 0.002


def test_one_model_that_is_far_off_does_not_count_for_many() -> None:
    """Errors count by their size, not by its square."""
    seen = models(200)
    latencies = [model.placed_us(TRUTH).sum() for model in seen]
    learnt = fit_in_place(seen, latencies)
    disturbed = fit_in_place(seen, [10 * latencies[0], *latencies[1:]])
    assert disturbed.short == pytest.approx(learnt.short, abs=0.05)


def test_a_few_models_teach_less_than_many() -> None:
    """What one model says is believed in part."""
    (new,) = models(1, seed=2)

    def taught(count: int) -> float:
        seen = models(count)
        learnt = fit_in_place(seen, [1.5 * model.costs_us.sum() for model in seen])
        return float(new.placed_us(learnt).sum() / new.costs_us.sum())

    assert 1.0 < taught(1) < taught(200) < 1.55


def test_without_models_a_layer_costs_what_it_costs() -> None:
    """Nothing is made up."""
    costs = np.array([1.0, 10.0])
    assert fit_in_place([], []).factors(costs, ["Conv", "Relu"], 2.0) == pytest.approx([1.0, 1.0])


def test_several_layers_that_cannot_be_told_apart_cost_what_they_cost() -> None:
    """Neither learnt from nor changed."""
    model = LayersOf(np.array([5.0, 7.0]), ("Conv", ""), 1.0)
    placed = model.placed_us(TRUTH)
    assert placed[1] == 7.0
    assert placed[0] != 5.0


@given(
    st.tuples(*[st.floats(-2, 2)] * 2), st.floats(-1, 1), st.dictionaries(st.sampled_from(OPERATORS), st.floats(-1, 1))
)
def test_coefficients_survive_json(short: tuple[float, ...], footprint: float, operators: dict[str, float]) -> None:
    """They are part of a regressor's card."""
    one = InPlace(short, footprint, operators)
    assert InPlace.from_dict(json.loads(json.dumps(one.to_dict()))) == one
    assert InPlace.from_dict({**one.to_dict(), "of_a_newer_costmodel": 1}) == one


@given(st.floats(0, 1e12), st.floats(0, 1e12))
def test_more_weights_never_press_less(one: float, other: float) -> None:
    """Up to where the caches hold none of them."""
    host = SYSTEM.host
    assert (pressure(min(one, other), host)) <= pressure(max(one, other), host)


def test_without_a_known_cache_weights_press_on_none() -> None:
    """Then the footprint says nothing."""
    assert pressure(1e9, None) == 0.0
