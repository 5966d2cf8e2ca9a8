"""Features of the model around a layer."""

from dataclasses import replace

import hypothesis.strategies as st
import numpy as np
from hypothesis import given

from costmodel.features.row import footprint_features
from costmodel.systems.system import System
from tests.fakes import HOST, fake_system

KIB = 1 << 10
SIZES = st.floats(0, 1 << 32)


def system(l2_kib: int = 1024, l3_kib: int = 8 << 10) -> System:
    """Returns a system with caches of these sizes."""
    return replace(fake_system(), host=replace(HOST, l2_bytes=l2_kib * KIB, l3_bytes=l3_kib * KIB))


def features(weights: float, activations: float, on: System) -> tuple[float, float, float]:
    """Returns the features of one footprint."""
    over_l2, over_l3, lap = footprint_features(np.array([[weights, activations]]), on)
    return float(over_l2[0]), float(over_l3[0]), float(lap[0])


@given(SIZES, SIZES, SIZES)
def test_a_lap_grows_with_what_it_touches(weights: float, one: float, other: float) -> None:
    """More activations never make a lap touch less, and beyond 64 times the level 2 cache nothing changes."""
    low, high = sorted((one, other))
    laps = [features(weights, activations, system())[2] for activations in (low, high)]
    assert laps[0] <= laps[1] <= features(0.0, 64 * 1024 * KIB, system())[2]


@given(st.floats(1, 512 * KIB), SIZES)
def test_models_that_are_timed_warm_leave_their_layers_in_the_cache(weights: float, activations: float) -> None:
    """If the weights fill at most half of the level 2 cache, a lap counts as nothing, whatever it touches."""
    assert features(weights, activations, system())[2] == features(0.0, 0.0, system())[2]
    assert features(513 * KIB, activations, system())[2] > features(0.0, 0.0, system())[2]


@given(SIZES, SIZES, SIZES)
def test_activations_are_no_weights(weights: float, one: float, other: float) -> None:
    """The features of the weights do not depend on the activations."""
    assert features(weights, one, system())[:2] == features(weights, other, system())[:2]


def test_unknown_caches_are_no_error() -> None:
    """On a host that does not report its caches, all features are 0."""
    assert features(1e6, 1e6, system(0, 0)) == (0.0, 0.0, 0.0)
