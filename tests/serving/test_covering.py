"""Covers by the sequences that are measured on a system."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from costmodel.ir.sequence import LayerSequence
from costmodel.partition.cover import cheapest_cover
from costmodel.partition.decomposition import Decomposition, decompose
from costmodel.paths import Home
from costmodel.serving.covering import cover_of, run_us
from costmodel.serving.predictor import Predictor
from costmodel.store.store import Store
from tests.synthetic import HELD_BACK, SYSTEM, copied, corpus, made_up_measurement, made_up_us

NEW = HELD_BACK[0]
MOST = 3


@pytest.fixture
def predictor(trained: Home, tmp_path: Path) -> Predictor:
    """A predictor of the synthetic system with its own store, which has some of the new model's layers."""
    home = copied(trained, tmp_path / "home")
    return Predictor.load(Store(home.store_url), home.bundles, SYSTEM.name)


def measure(predictor: Predictor, cut: Decomposition) -> None:
    """Store synthetic measurements of all sequences of a cut."""
    for sequence in cut.unique.values():
        latency_us = made_up_us(sequence)
        predictor.store.put_measurement(SYSTEM.name, made_up_measurement(sequence.signature, latency_us), sequence)


def missing(predictor: Predictor, cut: Decomposition) -> set[str]:
    """Returns the signatures of unmeasured sequences."""
    return cut.unique.keys() - predictor.store.latencies_us(SYSTEM.name, cut.unique).keys()


def test_measured_sequences_are_used_where_they_fit(predictor: Predictor, trained: Home) -> None:
    """Measured sequences are found although they begin elsewhere than those of the fixed cut."""
    graph = corpus(trained.cache)[NEW].graph

    def late(windows: Mapping[str, LayerSequence]) -> dict[str, float]:
        return {s: 1.0 if "Conv+Conv" in sequence.kind else 2.0 for s, sequence in windows.items()}

    other = cheapest_cover(NEW, graph, MOST, late)
    fixed = decompose(NEW, graph, MOST)
    assert other.unique.keys() != fixed.unique.keys()
    measure(predictor, other)
    cover = cover_of(predictor, NEW, graph, MOST)
    assert missing(predictor, cover) == set()
    assert len(cover.segments) <= len(other.segments)
    assert missing(predictor, fixed) != set()
    estimate = predictor.estimate(cover)
    assert (estimate.cover, estimate.granularity, estimate.coverage["measured"]) == ("cheapest", MOST, 1.0)
    assert predictor.estimate(fixed).cover == "fixed"


def test_a_measured_layer_is_not_measured_again(predictor: Predictor, trained: Home) -> None:
    """Only the model's unmeasured layers have to be benchmarked."""
    graph = corpus(trained.cache)[NEW].graph
    layers = decompose(NEW, graph, 1)
    new = {p.layers[0] for p in layers.segments if p.sequence.signature in missing(predictor, layers)}
    assert 0 < len(new) < len(layers.segments)
    cover = cover_of(predictor, NEW, graph, MOST)
    absent = missing(predictor, cover)
    benchmarked = {
        name for segment in cover.segments if segment.sequence.signature in absent for name in segment.layers
    }
    assert benchmarked == new


def test_without_measurements_all_is_to_be_measured(predictor: Predictor, trained: Home) -> None:
    """Without measurements, the cover takes no more benchmarking time than the fixed cut."""
    graph = corpus(trained.cache)[NEW].graph
    covers = (cover_of(predictor, NEW, graph, MOST, measured=False), decompose(NEW, graph, MOST))
    cheapest, fixed = (sum(run_us(sequence, SYSTEM) for sequence in cover.unique.values()) for cover in covers)
    assert cheapest <= fixed


def test_layers_are_priced_alike_however_they_are_cut(trained: Home) -> None:
    """Longer sequences save one call overhead each and nothing else."""
    graph = corpus(trained.cache)[NEW].graph
    cuts = [decompose(NEW, graph, granularity).segments for granularity in (1, 2, 3)]
    layers, pairs, triples = (sum(run_us(segment.sequence, SYSTEM) for segment in segments) for segments in cuts)
    call_us = (layers - pairs) / (len(cuts[0]) - len(cuts[1]))
    assert call_us > 0
    assert layers - triples == pytest.approx(call_us * (len(cuts[0]) - len(cuts[2])))
