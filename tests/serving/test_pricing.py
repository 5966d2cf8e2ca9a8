"""Sequences are priced as measured or predicted, the same whether alone, cached or in batches."""

import math

import hypothesis.strategies as st
import pytest
from hypothesis import given

from costmodel.ir.footprint import Footprint
from costmodel.paths import Home
from costmodel.serving.loaded_regressor import Regression
from costmodel.serving.pricing import SequencePricer
from costmodel.store.store import Store
from costmodel.synthetic.sampling import sample_around
from costmodel.training.artefact import champion_of, load_bundle
from tests.fakes import elementwise
from tests.synthetic import HELD_BACK, MEASURED, SYSTEM, corpus


@pytest.fixture(scope="module")
def pricer(trained: Home) -> SequencePricer:
    """Pricer of the synthetic system with the champion as its regressor."""
    path = champion_of(trained.bundles, SYSTEM.name)
    assert path is not None
    store = Store(trained.store_url)
    return SequencePricer(store, store.system(SYSTEM.name), Regression(load_bundle(path)))


def test_an_operator_without_training_data_is_extrapolated(pricer: SequencePricer) -> None:
    """An operator without training data is extrapolated at any size."""
    sequence = elementwise(1, 64, 28, 28, op_type="Sinh")
    assert pricer.costs({sequence.signature: sequence})[sequence.signature].source == "extrapolated"


def test_samples_near_the_corpus_are_not_extrapolated(pricer: SequencePricer, trained: Home) -> None:
    """Samples near the corpus are predicted, not extrapolated."""
    models = [corpus(trained.cache)[name].decomposition for name in MEASURED]
    sequences = [sequence for model in models for sequence in model.unique.values()]
    fresh = {s: sample for s, (sample, _) in sample_around(sequences, 60, seed=5).items()}
    sources = [cost.source for cost in pricer.costs(fresh, measured=False).values()]
    assert sources.count("predicted") > 0.6 * len(sources)


def test_no_sequences_cost_nothing(pricer: SequencePricer) -> None:
    """The costs of no sequences are empty."""
    assert pricer.costs({}) == {}
    assert isinstance(pricer.regression, Regression)
    assert pricer.regression.costs([], SYSTEM, []) == []


@given(data=st.data())
def test_what_is_remembered_is_what_is_worked_out(pricer: SequencePricer, trained: Home, data: st.DataObject) -> None:
    """Cached costs equal computed ones, whatever was requested before."""
    layers = [s for name in HELD_BACK for s in corpus(trained.cache)[name].decomposition.unique.values()]
    chosen = data.draw(st.lists(st.sampled_from(layers), unique_by=lambda s: s.signature))
    footprint = Footprint(data.draw(st.one_of(st.floats(0, 1e9), st.just(math.inf))), data.draw(st.floats(0, 1e9)))
    asked = {sequence.signature: sequence for sequence in chosen}
    assert pricer.regression is not None
    expected = Regression(pricer.regression.bundle).costs(chosen, SYSTEM, [footprint] * len(chosen))
    assert pricer.costs(asked, footprint=footprint, measured=False) == dict(zip(asked, expected, strict=True))


def test_many_layers_are_predicted_in_portions(pricer: SequencePricer) -> None:
    """Layers predicted in batches cost what each costs alone."""
    layers = [elementwise(1, channels, 7, 7) for channels in range(1, 5001)]
    assert pricer.regression is not None
    costs = pricer.regression.costs(layers, SYSTEM, [(0.0, 0.0)] * len(layers))
    assert len(costs) == len(layers)
    for place in (0, 4095, 4096, 4999):
        assert pricer.regression.costs([layers[place]], SYSTEM, [(0.0, 0.0)]) == [costs[place]]
