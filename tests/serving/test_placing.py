"""In a model a layer costs what it costs alone, times what whole models have taught."""

import math
from dataclasses import replace

import pytest

from costmodel.home import Home
from costmodel.in_place import InPlace
from costmodel.serving.predictor import Predictor
from costmodel.serving.regression import Regression
from costmodel.store import Store
from costmodel.training.artefact import champion_of, load_bundle
from tests.synthetic import MEASURED, SYSTEM, corpus

MEASURED_FACTOR, PREDICTED_FACTOR = 0.9, 1.2


def predictor_with(trained: Home, measured: InPlace, predicted: InPlace) -> Predictor:
    """That of the made-up system, with other coefficients."""
    path = champion_of(trained.bundles, SYSTEM.name)
    assert path is not None
    bundle = replace(load_bundle(path), measured_in_place=measured, predicted_in_place=predicted)
    return Predictor(Store(trained.store_url), SYSTEM, Regression(bundle))


@pytest.fixture(scope="module")
def short(trained: Home) -> Predictor:
    """One in which every operator has the same factor, one for measured costs and one for predicted ones."""
    operators = {layer.kind for name in MEASURED for layer in corpus(trained.cache)[name].decomposition.unique.values()}

    def same(factor: float) -> InPlace:
        return InPlace(operators=dict.fromkeys(operators, math.log(factor)))

    return predictor_with(trained, same(MEASURED_FACTOR), same(PREDICTED_FACTOR))


@pytest.fixture(scope="module")
def plain(trained: Home) -> Predictor:
    """One in which layers cost what they cost alone."""
    return predictor_with(trained, InPlace(), InPlace())


@pytest.mark.parametrize(("measured", "factor"), [(True, MEASURED_FACTOR), (False, PREDICTED_FACTOR)])
def test_each_layer_of_a_model_has_its_factor(
    short: Predictor, plain: Predictor, trained: Home, measured: bool, factor: float
) -> None:
    """The table adds up to the latency, and intervals move along."""
    decomposition = corpus(trained.cache)[MEASURED[0]].decomposition
    one, other = (of.estimate(decomposition, measured=measured) for of in (short, plain))
    assert one.latency_us == pytest.approx(factor * other.latency_us)
    assert sum(layer.cost.latency_us for layer in one.layers) == pytest.approx(one.latency_us)
    for mine, theirs in zip(one.layers, other.layers, strict=True):
        assert mine.cost.latency_us == pytest.approx(factor * theirs.cost.latency_us)
        assert mine.cost.interval_us == pytest.approx([factor * us for us in theirs.cost.interval_us])


def test_a_layer_by_itself_costs_what_it_costs(short: Predictor, plain: Predictor, trained: Home) -> None:
    """The factor belongs to the model."""
    unique = corpus(trained.cache)[MEASURED[0]].decomposition.unique
    assert short.costs(unique) == plain.costs(unique)


def test_a_model_of_one_piece_is_that_piece(short: Predictor, plain: Predictor, trained: Home) -> None:
    """What was measured from end to end needs no correction."""
    decomposition = corpus(trained.cache)[MEASURED[0]].decomposition
    whole = replace(decomposition, pieces=decomposition.pieces[:1])
    assert short.estimate(whole).latency_us == plain.estimate(whole).latency_us
