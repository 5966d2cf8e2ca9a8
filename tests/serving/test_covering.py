"""Covers by what is measured on a system."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from costmodel.cover import cheapest_cover
from costmodel.decomposition import Decomposition, decompose
from costmodel.home import Home
from costmodel.sequence import LayerSequence
from costmodel.serving.covering import cover_of, run_us
from costmodel.serving.predictor import Predictor
from costmodel.store import Store
from tests.synthetic import HELD_BACK, SYSTEM, copied, corpus, made_up_measurement, made_up_us

NEW = HELD_BACK[0]
MOST = 3


@pytest.fixture
def predictor(trained: Home, tmp_path: Path) -> Predictor:
    """Of the made-up system, with a store of its own; single layers are measured, some of those of the new model."""
    home = copied(trained, tmp_path / "home")
    return Predictor.load(Store(home.store_url), home.bundles, SYSTEM.name)


def measure(predictor: Predictor, cut: Decomposition) -> None:
    """Put made-up measurements of all sequences of a cut into the store."""
    for sequence in cut.unique.values():
        latency_us = made_up_us(sequence)
        predictor.store.put_measurement(SYSTEM.name, made_up_measurement(sequence.signature, latency_us), sequence)


def missing(predictor: Predictor, cut: Decomposition) -> set[str]:
    """Signatures of what is not measured."""
    return cut.unique.keys() - predictor.store.latencies_us(SYSTEM.name, cut.unique).keys()


def test_measured_sequences_are_used_where_they_fit(predictor: Predictor, trained: Home) -> None:
    """Those of a cover that begins elsewhere than the fixed cut are found, as many layers at once as there are."""
    graph = corpus(trained.cache)[NEW].graph

    def late(windows: Mapping[str, LayerSequence]) -> dict[str, float]:
        return {s: 1.0 if "Conv+Conv" in sequence.kind else 2.0 for s, sequence in windows.items()}

    other = cheapest_cover(NEW, graph, MOST, late)
    fixed = decompose(NEW, graph, MOST)
    assert other.unique.keys() != fixed.unique.keys()
    measure(predictor, other)
    cover = cover_of(predictor, NEW, graph, MOST)
    assert missing(predictor, cover) == set()
    assert len(cover.pieces) <= len(other.pieces)
    assert missing(predictor, fixed) != set()
    estimate = predictor.estimate(cover)
    assert (estimate.cover, estimate.granularity, estimate.coverage["measured"]) == ("cheapest", MOST, 1.0)
    assert predictor.estimate(fixed).cover == "fixed"


def test_a_measured_layer_is_not_measured_again(predictor: Predictor, trained: Home) -> None:
    """What is new about a model is benchmarked without what is known of it: no more layers than at single ones."""
    graph = corpus(trained.cache)[NEW].graph
    layers = decompose(NEW, graph, 1)
    new = {p.layers[0] for p in layers.pieces if p.sequence.signature in missing(predictor, layers)}
    assert 0 < len(new) < len(layers.pieces)
    cover = cover_of(predictor, NEW, graph, MOST)
    absent = missing(predictor, cover)
    benchmarked = {name for piece in cover.pieces if piece.sequence.signature in absent for name in piece.layers}
    assert benchmarked == new


def test_without_measurements_all_is_to_be_measured(predictor: Predictor, trained: Home) -> None:
    """In the least time, and no more of it than at the fixed cut."""
    graph = corpus(trained.cache)[NEW].graph
    covers = (cover_of(predictor, NEW, graph, MOST, measured=False), decompose(NEW, graph, MOST))
    cheapest, fixed = (sum(run_us(sequence, SYSTEM) for sequence in cover.unique.values()) for cover in covers)
    assert cheapest <= fixed


def test_layers_are_priced_alike_however_they_are_cut(trained: Home) -> None:
    """Only calls are saved by longer sequences, each as much."""
    graph = corpus(trained.cache)[NEW].graph
    cuts = [decompose(NEW, graph, granularity).pieces for granularity in (1, 2, 3)]
    layers, pairs, triples = (sum(run_us(piece.sequence, SYSTEM) for piece in pieces) for pieces in cuts)
    call_us = (layers - pairs) / (len(cuts[0]) - len(cuts[1]))
    assert call_us > 0
    assert layers - triples == pytest.approx(call_us * (len(cuts[0]) - len(cuts[2])))
