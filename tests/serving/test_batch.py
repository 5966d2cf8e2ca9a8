"""Batches of models are priced as each model is by itself."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from costmodel.paths import Home
from costmodel.serving.batch import Batch
from costmodel.serving.networks import price_networks
from costmodel.serving.predictor import Predictor
from costmodel.store.store import Store
from tests.synthetic import HELD_BACK, MEASURED, SYSTEM, corpus


@pytest.fixture(scope="module")
def predictor(trained: Home) -> Predictor:
    """The predictor of the synthetic system."""
    return Predictor.load(Store(trained.store_url), trained.bundles, SYSTEM.name)


@given(data=st.data(), measured=st.booleans())
def test_any_split_of_a_batch_gives_the_same_answers(
    predictor: Predictor, trained: Home, data: st.DataObject, measured: bool
) -> None:
    """Latencies, intervals and coverage of networks do not depend on the networks that are priced with them."""
    layers = [s for name in HELD_BACK for s in corpus(trained.cache)[name].decomposition.unique.values()][:30]
    network = st.lists(st.integers(0, len(layers) - 1), min_size=1, max_size=12)
    networks = data.draw(st.lists(network, min_size=1, max_size=8))
    place = data.draw(st.integers(0, len(networks)))
    blocks = [[layer] for layer in layers]
    together = price_networks(predictor, blocks, networks, measured=measured)
    parts = [
        price_networks(predictor, blocks, part, measured=measured) for part in (networks[:place], networks[place:])
    ]
    latencies = [us for part in parts for us in part.latency_us]
    intervals = [us for part in parts for interval in part.interval_us for us in interval]
    assert latencies == pytest.approx(together.latency_us.tolist(), rel=1e-12)
    assert intervals == pytest.approx(together.interval_us.reshape(-1).tolist(), rel=1e-12)
    for source, shares in together.coverage.items():
        assert [share for part in parts for share in part.coverage[source]] == pytest.approx(shares.tolist(), abs=1e-12)


@pytest.mark.parametrize("measured", [True, False])
def test_estimates_together_are_those_one_by_one(predictor: Predictor, trained: Home, measured: bool) -> None:
    """Every row of every estimate included."""
    cuts = [corpus(trained.cache)[name].decomposition for name in (*MEASURED, *HELD_BACK)]
    together = predictor.estimate_all(cuts, measured=measured)
    for cut, estimate in zip(cuts, together, strict=True):
        alone = predictor.estimate(cut, measured=measured)
        assert estimate.layers == alone.layers
        assert estimate.interval_us == pytest.approx(alone.interval_us, rel=1e-12)
        assert estimate.latency_us == pytest.approx(alone.latency_us, rel=1e-12)


def test_a_batch_holds_each_sequence_once(trained: Home) -> None:
    """Its rows give back the models, and its footprints are theirs."""
    cuts = [corpus(trained.cache)[name].decomposition for name in MEASURED]
    shared = np.array([cut.shared_bytes for cut in cuts])
    batch = Batch.of([[segment.sequence for segment in cut.segments] for cut in cuts], shared)
    signatures = [sequence.signature for sequence in batch.sequences]
    assert len(set(signatures)) == len(signatures)
    for cut, rows in zip(cuts, batch.models(), strict=True):
        assert [signatures[row] for row in rows] == [segment.sequence.signature for segment in cut.segments]
    assert list(map(tuple, batch.footprints.tolist())) == [cut.footprint for cut in cuts]


def test_a_batch_of_nothing(predictor: Predictor) -> None:
    """It has no models, and pricing it gives none."""
    assert list(Batch.of([]).models()) == []
    assert predictor.estimate_all([]) == []
