"""The costs of many networks at once equal the costs of each alone."""

from collections.abc import Sequence
from dataclasses import replace

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from costmodel.errors import UnpricedLayersError
from costmodel.estimate.context_correction import ContextCorrection
from costmodel.ir.sequence import LayerSequence
from costmodel.partition.decomposition import Decomposition, Segment
from costmodel.paths import Home
from costmodel.serving.loaded_regressor import Regression
from costmodel.serving.networks import NO_BLOCK, price_blocks, price_networks
from costmodel.serving.predictor import Predictor
from costmodel.store.store import Store
from tests.synthetic import HELD_BACK, MEASURED, SYSTEM, corpus


@pytest.fixture(scope="module")
def predictor(trained: Home) -> Predictor:
    """A predictor with noticeable context corrections."""
    loaded = Predictor.load(Store(trained.store_url), trained.bundles, SYSTEM.name)
    assert loaded.regression is not None
    bundle = replace(
        loaded.regression.bundle,
        predicted_correction=ContextCorrection((-0.3, 0.1), (-0.1, 0.05), 0.02, {"Conv": 0.05}, reread=0.03),
        measured_correction=ContextCorrection((-0.1, 0.2), (0.1, -0.2), 0.03, {"Conv": -0.04}, reread=0.02),
    )
    return Predictor(loaded.store, loaded.system, Regression(bundle))


@pytest.fixture(scope="module")
def layers(trained: Home) -> list[LayerSequence]:
    """Layers of models, some of them measured."""
    models = corpus(trained.cache)
    found = (models[name].decomposition.unique for name in (MEASURED[3], HELD_BACK[0]))
    return list({signature: layer for unique in found for signature, layer in unique.items()}.values())


def _alone(predictor: Predictor, layers: Sequence[LayerSequence], network: Sequence[int], **asked: bool):
    segments = tuple(Segment(layers[row], (f"{place}",), ()) for place, row in enumerate(network))
    return predictor.estimate(Decomposition("network", 1, segments), **asked)


@pytest.mark.parametrize("measured", [True, False])
@given(data=st.data())
def test_each_network_costs_what_it_costs_alone(
    predictor: Predictor, layers: list[LayerSequence], measured: bool, data: st.DataObject
) -> None:
    """Latency, interval and coverage equal those of a single estimate, whatever else is in the batch."""
    members = st.lists(st.integers(0, len(layers) - 1), min_size=1, max_size=60)
    networks = data.draw(st.lists(members, min_size=1, max_size=4))
    found = price_networks(predictor, [[layer] for layer in layers], networks, measured=measured)
    for place, network in enumerate(networks):
        alone = _alone(predictor, layers, network, measured=measured)
        assert found.latency_us[place] == pytest.approx(alone.latency_us, rel=1e-9)
        assert found.interval_us[place].tolist() == pytest.approx(alone.interval_us, rel=1e-9)
        assert {source: shares[place] for source, shares in found.coverage.items()} == pytest.approx(alone.coverage)
    assert found.interval_level == 0.9


def test_arrays_and_lists_say_the_same(predictor: Predictor, layers: list[LayerSequence]) -> None:
    """Rows of an array, padded with an index that is no layer, cost the same as lists."""
    blocks = [[layer] for layer in layers]
    as_lists = price_networks(predictor, blocks, [[0, 1, 2], [3], [4, 4]])
    rows = np.array([[0, 1, 2], [3, NO_BLOCK, NO_BLOCK], [4, 4, NO_BLOCK]])
    np.testing.assert_array_equal(price_networks(predictor, blocks, rows).latency_us, as_lists.latency_us)


def test_a_block_is_its_layers(predictor: Predictor, layers: list[LayerSequence]) -> None:
    """A network of blocks costs what the network of their layers costs; a block may be empty."""
    of_blocks = price_networks(predictor, [layers[:3], [], layers[3:5]], [[0, 1, 2, 0], [2]])
    of_layers = price_networks(predictor, [[layer] for layer in layers], [[0, 1, 2, 3, 4, 0, 1, 2], [3, 4]])
    np.testing.assert_allclose(of_blocks.latency_us, of_layers.latency_us)
    np.testing.assert_allclose(of_blocks.interval_us, of_layers.interval_us)


def test_a_block_alone_is_a_sum(predictor: Predictor, layers: list[LayerSequence]) -> None:
    """A block alone costs the sum of its layers and has the source of the least certain one."""
    one, both = price_blocks(predictor, [layers[:1], layers[:2]], measured=False)
    assert both.latency_us > one.latency_us
    assert both.source == "predicted"


def test_no_networks_have_no_latencies(predictor: Predictor, layers: list[LayerSequence]) -> None:
    """No networks give no latencies."""
    assert len(price_networks(predictor, [layers], [])) == 0
    assert price_networks(predictor, [], []).interval_us.shape == (0, 2)


@pytest.mark.parametrize(
    ("networks", "complaint"),
    [
        ([[0], []], "network 1 has no layers"),
        ([[0], [0, 7]], "network 1 names the block 7, and there are 1"),
        ([[-1]], "network 0 names the block -1, and there are 1"),
        (np.zeros((2, 2)), "must be an array of integers"),
        (np.array([0, 1]), "must be an array of integers"),
    ],
)
def test_a_network_that_makes_no_sense_is_named(
    predictor: Predictor, layers: list[LayerSequence], networks: object, complaint: str
) -> None:
    """An invalid network is refused with its index."""
    with pytest.raises(ValueError, match=complaint):
        price_networks(predictor, [layers[:1]], networks)


def test_what_has_no_cost_is_named(trained: Home, layers: list[LayerSequence]) -> None:
    """An unpriced layer is an error that names it, never a cost of 0."""
    untrained = Predictor(Store(trained.store_url), SYSTEM, None)
    new = [layer for layer in layers if not untrained.costs({layer.signature: layer})]
    with pytest.raises(UnpricedLayersError, match=new[0].kind):
        price_networks(untrained, [layers], [[0]])
    known = [layer for layer in layers if layer not in new]
    found = price_networks(untrained, [known], [[0]])
    assert found.latency_us[0] == pytest.approx(_alone(untrained, known, range(len(known))).latency_us)
    assert found.version == "none"
