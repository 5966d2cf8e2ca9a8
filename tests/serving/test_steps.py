"""Between which footprints a regressor sees no difference."""

import math
from collections.abc import Callable

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from onnx import ModelProto

from costmodel.features.row import footprint_features
from costmodel.home import Home
from costmodel.serving.predictor import Predictor
from costmodel.serving.steps import Steps
from costmodel.store import Store
from tests.synthetic import HELD_BACK, SYSTEM, corpus

FOOTPRINTS = st.one_of(st.floats(0, 5e8), st.integers(0, 1 << 27).map(float), st.just(math.inf))


@pytest.fixture(scope="module")
def predictor(trained: Home) -> Predictor:
    """Of the made-up system, with trees."""
    return Predictor.load(Store(trained.store_url), trained.bundles, SYSTEM.name)


@given(st.lists(FOOTPRINTS, min_size=2, max_size=40))
def test_footprints_on_a_step_make_no_difference(predictor: Predictor, trained: Home, footprints: list[float]) -> None:
    """To any layer: the prediction is the same to the last bit."""
    assert predictor.regression is not None
    layers = list(corpus(trained.cache)[HELD_BACK[0]].decomposition.unique.values())
    found: dict[object, object] = {}
    for footprint in footprints:
        costs = predictor.regression.costs(layers, SYSTEM, [footprint] * len(layers))
        assert found.setdefault(predictor.regression.steps.of(footprint, SYSTEM), costs) == costs


@given(FOOTPRINTS, FOOTPRINTS)
def test_steps_are_in_order(predictor: Predictor, one: float, other: float) -> None:
    """What lies between two footprints on a step is on it too; beyond the caches all are on one."""
    assert predictor.regression is not None
    steps = predictor.regression.steps
    low, high = sorted((one, other))
    if steps.of(low, SYSTEM) == steps.of(high, SYSTEM):
        assert steps.of((low + min(high, 1e9)) / 2, SYSTEM) == steps.of(low, SYSTEM) or high > 1e9
    assert steps.of(1e9, SYSTEM) == steps.of(math.inf, SYSTEM)


def test_the_trees_have_fewer_steps_than_there_are_footprints(predictor: Predictor) -> None:
    """Or nothing would be gained."""
    assert predictor.regression is not None
    steps = {predictor.regression.steps.of(footprint, SYSTEM) for footprint in np.geomspace(1e3, 1e9, 2000)}
    assert 1 <= len(steps) < 1000


def test_another_network_sees_every_footprint(parse: Callable[..., ModelProto]) -> None:
    """Nothing is known of what it does with a number, so that two are one step only where its features are."""
    network = parse("(float[N, 9] features) => (float[N, 9] y) { y = Exp(features) }")
    steps = Steps(network.SerializeToString())
    for one, other in ((1e6, 1e6 + 64), (1e6, 1e6 + 1e-3), (1e9, math.inf)):
        same = np.array_equal(*(footprint_features(np.array([footprint]), SYSTEM) for footprint in (one, other)))
        assert (steps.of(one, SYSTEM) == steps.of(other, SYSTEM)) == same
