"""The context correction of the predictor: layer costs inside a model compared with alone."""

import math
from dataclasses import replace

import pytest

from costmodel.estimate.context_correction import ContextCorrection, cache_pressure
from costmodel.ir.footprint import read_bytes
from costmodel.paths import Home
from costmodel.serving.loaded_regressor import Regression
from costmodel.serving.predictor import Predictor
from costmodel.store.store import Store
from costmodel.training.artefact import champion_of, load_bundle
from tests.synthetic import MEASURED, SYSTEM, corpus

MEASURED_FACTOR, PREDICTED_FACTOR = 0.9, 1.2


def predictor_with(trained: Home, measured: ContextCorrection, predicted: ContextCorrection) -> Predictor:
    """Returns the predictor of the synthetic system with other coefficients."""
    path = champion_of(trained.bundles, SYSTEM.name)
    assert path is not None
    bundle = replace(load_bundle(path), measured_correction=measured, predicted_correction=predicted)
    return Predictor(Store(trained.store_url), SYSTEM, Regression(bundle))


@pytest.fixture(scope="module")
def short(trained: Home) -> Predictor:
    """A predictor with the same factor for every operator, one for measured and one for predicted costs."""
    operators = {layer.kind for name in MEASURED for layer in corpus(trained.cache)[name].decomposition.unique.values()}

    def same(factor: float) -> ContextCorrection:
        return ContextCorrection(operators=dict.fromkeys(operators, math.log(factor)))

    return predictor_with(trained, same(MEASURED_FACTOR), same(PREDICTED_FACTOR))


@pytest.fixture(scope="module")
def plain(trained: Home) -> Predictor:
    """A predictor without context correction."""
    return predictor_with(trained, ContextCorrection(), ContextCorrection())


@pytest.mark.parametrize(("measured", "factor"), [(True, MEASURED_FACTOR), (False, PREDICTED_FACTOR)])
def test_each_layer_of_a_model_has_its_factor(
    short: Predictor, plain: Predictor, trained: Home, measured: bool, factor: float
) -> None:
    """Each layer's cost and interval are scaled, and the layers add up to the latency."""
    decomposition = corpus(trained.cache)[MEASURED[0]].decomposition
    one, other = (of.estimate(decomposition, measured=measured) for of in (short, plain))
    assert one.latency_us == pytest.approx(factor * other.latency_us)
    assert sum(layer.cost.latency_us for layer in one.layers) == pytest.approx(one.latency_us)
    for mine, theirs in zip(one.layers, other.layers, strict=True):
        assert mine.cost.latency_us == pytest.approx(factor * theirs.cost.latency_us)
        assert mine.cost.interval_us == pytest.approx([factor * us for us in theirs.cost.interval_us])


def test_weights_that_a_model_reads_again_take_time(plain: Predictor, trained: Home) -> None:
    """Layers with small weights take longer in a model whose weights do not fit into the cache, and only there."""
    slower = predictor_with(trained, ContextCorrection(reread=0.05), ContextCorrection(reread=0.05))
    host = SYSTEM.host
    assert host is not None
    found = []
    for name in MEASURED:
        decomposition = corpus(trained.cache)[name].decomposition
        footprint = decomposition.footprint.weights
        one, other = slower.estimate(decomposition), plain.estimate(decomposition)
        for segment, mine, theirs in zip(decomposition.segments, one.layers, other.layers, strict=True):
            weights = read_bytes(segment.sequence)
            again = 0 < weights <= host.l2_bytes / 2 < footprint
            expected = math.exp(0.05 * weights / 1e3 / theirs.cost.latency_us) if again else 1.0
            assert mine.cost.latency_us == pytest.approx(expected * theirs.cost.latency_us)
            found.append(again)
    assert any(found)
    assert not all(found)


def test_weights_that_layers_share_are_in_the_caches_once(plain: Predictor, trained: Home) -> None:
    """The layers of a model that reads most of its weights again are priced by what is left of its footprint."""
    pressed = predictor_with(trained, ContextCorrection(footprint=0.1), ContextCorrection(footprint=0.1))
    cut = corpus(trained.cache)[MEASURED[0]].decomposition
    sharing = replace(cut, shared_bytes=int(0.9 * cut.footprint.weights))
    pressures = [cache_pressure(of.footprint.weights, SYSTEM.host) for of in (cut, sharing)]
    latencies = [pressed.estimate(of).latency_us for of in (cut, sharing)]
    assert pressures[0] > pressures[1] + 1
    assert abs(math.log(latencies[0] / latencies[1])) == pytest.approx(0.1 * (pressures[0] - pressures[1]), rel=0.01)
    assert plain.estimate(cut).latency_us == pytest.approx(plain.estimate(sharing).latency_us)


def test_a_layer_by_itself_costs_what_it_costs(short: Predictor, plain: Predictor, trained: Home) -> None:
    """A layer alone is not corrected."""
    unique = corpus(trained.cache)[MEASURED[0]].decomposition.unique
    assert short.costs(unique) == plain.costs(unique)


def test_a_model_of_one_sequence_is_that_sequence(short: Predictor, plain: Predictor, trained: Home) -> None:
    """A model measured as a whole is not corrected."""
    decomposition = corpus(trained.cache)[MEASURED[0]].decomposition
    whole = replace(decomposition, segments=decomposition.segments[:1])
    assert short.estimate(whole).latency_us == plain.estimate(whole).latency_us
