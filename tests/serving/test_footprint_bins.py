"""Footprint bins: ranges of footprints that a regressor does not distinguish."""

import math
from collections.abc import Callable

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from onnx import ModelProto

from costmodel.features.row import footprint_features
from costmodel.ir.footprint import Footprint
from costmodel.paths import Home
from costmodel.serving.footprint_bins import FootprintBins
from costmodel.serving.predictor import Predictor
from costmodel.store.store import Store
from tests.synthetic import HELD_BACK, SYSTEM, corpus


def bin_of(bins: FootprintBins, weights: float, activations: float = 0.0) -> object:
    """The bin of one footprint."""
    return tuple(bins.of(np.array([[weights, activations]]), SYSTEM)[0].tolist())


NBYTES = st.one_of(st.floats(0, 5e8), st.integers(0, 1 << 27).map(float))
WEIGHTS = st.one_of(NBYTES, st.just(math.inf))
FOOTPRINTS = st.builds(Footprint, WEIGHTS, NBYTES)


@pytest.fixture(scope="module")
def predictor(trained: Home) -> Predictor:
    """Predictor of the synthetic system with boosted trees."""
    return Predictor.load(Store(trained.store_url), trained.bundles, SYSTEM.name)


@given(st.lists(FOOTPRINTS, min_size=2, max_size=40))
def test_footprints_on_a_step_make_no_difference(
    predictor: Predictor, trained: Home, footprints: list[Footprint]
) -> None:
    """Footprints in one bin give the same prediction of every layer, to the last bit."""
    assert predictor.regression is not None
    layers = list(corpus(trained.cache)[HELD_BACK[0]].decomposition.unique.values())
    found: dict[object, object] = {}
    for footprint in footprints:
        costs = predictor.regression.costs(layers, SYSTEM, [footprint] * len(layers))
        assert found.setdefault(bin_of(predictor.regression.footprint_bins, *footprint), costs) == costs


@given(WEIGHTS, WEIGHTS)
def test_steps_are_in_order(predictor: Predictor, one: float, other: float) -> None:
    """Bins are intervals, and the last one holds all footprints beyond the caches."""
    assert predictor.regression is not None
    bins = predictor.regression.footprint_bins
    low, high = sorted((one, other))
    if bin_of(bins, low) == bin_of(bins, high):
        assert bin_of(bins, (low + min(high, 1e9)) / 2) == bin_of(bins, low) or high > 1e9
    assert bin_of(bins, 1e9) == bin_of(bins, math.inf)


def test_the_trees_have_fewer_steps_than_there_are_footprints(predictor: Predictor) -> None:
    """Trees distinguish fewer bins than there are footprints."""
    assert predictor.regression is not None
    footprints = np.stack([np.geomspace(1e3, 1e9, 2000), np.zeros(2000)], axis=-1)
    bins = np.unique(predictor.regression.footprint_bins.of(footprints, SYSTEM), axis=0)
    assert 1 <= len(bins) < 1000


def test_another_network_sees_every_footprint(parse: Callable[..., ModelProto]) -> None:
    """For a network that is not trees, footprints share a bin only if their features are equal."""
    network = parse("(float[N, 9] features) => (float[N, 9] y) { y = Exp(features) }")
    bins = FootprintBins(network.SerializeToString())
    for one, other in ((1e6, 1e6 + 64), (1e6, 1e6 + 1e-3), (1e9, math.inf)):
        same = np.array_equal(*(footprint_features(np.array([[weights, 0.0]]), SYSTEM) for weights in (one, other)))
        assert (bin_of(bins, one) == bin_of(bins, other)) == same
