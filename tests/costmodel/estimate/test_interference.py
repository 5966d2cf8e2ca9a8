"""The law of interference: what it says of models that compute, stream, or live in the cache."""

from dataclasses import replace

import numpy as np
import pytest

from costmodel.estimate.interference import Interference, ModelTraffic, slowdown_interval
from tests.fakes import HOST

LAW = Interference(20.0, 80.0, 25.0, memory=0.6, computing=0.0)
L3 = replace(HOST, l3_bytes=32 << 20)
MB = 1 << 20


def traffic(latency_us: float, weights: float = 0.0, activations: float = 0.0, layers: int = 4) -> ModelTraffic:
    """Returns a model of equal layers, from its latency and the bytes that it reads in all."""
    return ModelTraffic(*(np.full(layers, total / layers) for total in (latency_us, weights, activations)))


COMPUTING = traffic(5000.0, weights=0.2 * MB)
STREAMING = traffic(20_000.0, activations=500 * MB)
CACHED = traffic(110.0, weights=8 * MB)
SLOW_AND_CACHED = traffic(20_000.0, weights=8 * MB)


def slowdown(model: ModelTraffic, *others: ModelTraffic, law: Interference = LAW) -> float:
    """Returns the slowdown on a host with 32 MB of last-level cache."""
    return law.slowdown(model, others, L3)


def test_computing_and_streaming() -> None:
    """A layer that streams slows another one by the measured share; what computes neither slows nor is slowed."""
    assert slowdown(STREAMING, STREAMING) == pytest.approx(1.6, rel=0.02)
    assert slowdown(COMPUTING, STREAMING) < 1.02
    assert slowdown(STREAMING, COMPUTING) == pytest.approx(1.0, abs=0.01)
    assert slowdown(STREAMING) == 1.0
    shared_core = replace(LAW, computing=0.9)
    assert slowdown(COMPUTING, COMPUTING, law=shared_core) == pytest.approx(1.9, abs=0.02)
    assert slowdown(COMPUTING, STREAMING, law=shared_core) < 1.1


def test_weights_in_the_cache_are_evicted_only_if_they_are_read_seldom() -> None:
    """Beside a stream, weights that are read nine times a millisecond stay in the cache, and others leave it."""
    assert slowdown(CACHED, STREAMING) == pytest.approx(1.0, abs=0.01)
    evicted = slowdown(SLOW_AND_CACHED, STREAMING)
    assert 1.01 < evicted < 1.1
    assert slowdown(SLOW_AND_CACHED, CACHED) < evicted


def test_more_models_slow_more() -> None:
    """The effects of several models add up."""
    assert slowdown(STREAMING, STREAMING, STREAMING) == pytest.approx(2.2, rel=0.02)


def test_an_unknown_host_and_an_empty_model() -> None:
    """Without a host, a usual size of the cache is assumed; a model without layers is not slowed."""
    assert LAW.slowdown(STREAMING, [STREAMING], None) == pytest.approx(1.6, rel=0.02)
    assert slowdown(ModelTraffic(*[np.zeros(0)] * 3), STREAMING) == 1.0


def test_the_coefficients_travel_as_capabilities() -> None:
    """A law is stored with a system's capabilities; without all of them there is no law."""
    stored = LAW.capabilities()
    assert all(name.startswith("interference_") for name in stored)
    assert Interference.from_capabilities({"layer_us": 1.0, **stored}) == LAW
    assert Interference.from_capabilities({}) is None
    stored.popitem()
    assert Interference.from_capabilities(stored) is None


def test_the_interval_holds_the_slowdown_and_never_predicts_a_speed_up() -> None:
    """The bounds are on both sides, the lower one at least 1, and further apart for larger effects."""
    for value in (1.0, 1.1, 2.0):
        low, high = slowdown_interval(value)
        assert 1.0 <= low <= value < high
    assert slowdown_interval(2.0)[1] / 2.0 > slowdown_interval(1.1)[1] / 1.1
