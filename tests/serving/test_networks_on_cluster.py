"""Networks that are priced on the workers of a Dask cluster cost what they cost in one process."""

from collections.abc import Iterator

import numpy as np
import pytest

from costmodel.errors import ClusterError
from costmodel.ir.sequence import LayerSequence
from costmodel.paths import Home
from costmodel.serving.networks import price_networks
from costmodel.serving.networks_on_cluster import price_networks_on
from costmodel.serving.predictor import Predictor
from costmodel.store.store import Store
from tests.fleet import Fleet, cluster
from tests.synthetic import HELD_BACK, MEASURED, SYSTEM, corpus


@pytest.fixture(scope="module")
def predictor(trained: Home) -> Predictor:
    """The predictor of the synthetic system."""
    return Predictor.load(Store(trained.store_url), trained.bundles, SYSTEM.name)


@pytest.fixture(scope="module")
def blocks(trained: Home) -> list[list[LayerSequence]]:
    """Blocks of one and two layers, some of them measured."""
    models = corpus(trained.cache)
    found = (models[name].decomposition.unique for name in (MEASURED[3], HELD_BACK[0]))
    layers = list({signature: layer for unique in found for signature, layer in unique.items()}.values())
    return [[layer] for layer in layers[:20]] + [layers[20:22]]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """A cluster without workers."""
    with cluster(tmp_path_factory.mktemp("fleet")) as fleet:
        yield fleet


def test_a_cluster_without_workers_is_an_error(
    fleet: Fleet, predictor: Predictor, blocks: list[list[LayerSequence]]
) -> None:
    """Nothing waits for workers that may never come; the error says how to start one."""
    with pytest.raises(ClusterError, match="has no worker: start `dask worker"):
        price_networks_on(fleet.address, predictor, blocks, [[0, 1]])


@pytest.mark.parametrize("measured", [True, False])
def test_portions_on_several_workers_give_the_same_results(
    fleet: Fleet, predictor: Predictor, blocks: list[list[LayerSequence]], measured: bool
) -> None:
    """Latencies, intervals and shares are identical to those of one process, in the order of the networks."""
    for name in ("one", "other"):
        if name not in fleet.machines:
            fleet.start_dask_worker(name)
            stream = fleet.machines[name].stderr
            assert stream is not None
            while "Registered to" not in stream.readline():
                pass
    random = np.random.default_rng(17)
    networks = [random.integers(0, len(blocks), random.integers(1, 40)).tolist() for _ in range(300)]
    here = price_networks(predictor, blocks, networks, measured=measured)
    there = price_networks_on(fleet.address, predictor, blocks, networks, measured=measured, portion_rows=900)
    assert there.latency_us.tolist() == here.latency_us.tolist()
    assert there.interval_us.tolist() == here.interval_us.tolist()
    assert {source: share.tolist() for source, share in there.coverage.items()} == {
        source: share.tolist() for source, share in here.coverage.items()
    }
    assert (there.version, there.interval_level) == (here.version, here.interval_level)


def test_a_network_without_layers_is_named_before_anything_is_sent(
    predictor: Predictor, blocks: list[list[LayerSequence]]
) -> None:
    """The error counts in the networks of the caller, and needs no cluster."""
    with pytest.raises(ValueError, match="network 1 has no layers"):
        price_networks_on("tcp://127.0.0.1:1", predictor, blocks, [[0], []])
