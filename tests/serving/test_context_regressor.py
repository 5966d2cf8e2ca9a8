"""A regressor that uses neighbouring layers prices each layer in its model, without torch."""

import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from costmodel.estimate.context_correction import ContextCorrection
from costmodel.features.tabular import Encoder, encode_all
from costmodel.partition.decomposition import decompose
from costmodel.paths import Home
from costmodel.serving.predictor import Predictor
from costmodel.store.store import Store
from costmodel.training.artefact import champion_of, load_bundle, promote, save_bundle
from costmodel.training.dataset import load_dataset
from tests.synthetic import HELD_BACK, MEASURED, SYSTEM, copied, corpus

pytest.importorskip("torch_geometric")
from costmodel.training.regressors.gnn import GraphRegressor


@pytest.fixture(scope="module")
def regressor(trained: Home) -> GraphRegressor:
    """A graph regressor fitted on the synthetic data set."""
    dataset = load_dataset(Store(trained.store_url), SYSTEM.name)
    return GraphRegressor(0).fit(dataset.encoded, dataset.latencies_us)


@pytest.fixture(scope="module")
def home(trained: Home, regressor: GraphRegressor, tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A home with it as champion."""
    home = copied(trained, tmp_path_factory.mktemp("gnn") / "home")
    path = champion_of(home.bundles, SYSTEM.name)
    assert path is not None
    bundle = replace(
        load_bundle(path),
        name="gnn",
        version="gnn",
        model=regressor.to_onnx(),
        source="",
        predicted_correction=ContextCorrection(),
        measured_correction=ContextCorrection(),
    )
    save_bundle(home.bundles, bundle)
    promote(home.bundles, SYSTEM.name, "gnn")
    return home


@pytest.fixture(scope="module")
def predictor(home: Home) -> Predictor:
    """The predictor of that home."""
    return Predictor.load(Store(home.store_url), home.bundles, SYSTEM.name)


@pytest.mark.parametrize("name", HELD_BACK)
def test_a_model_costs_what_its_graph_costs(
    predictor: Predictor, regressor: GraphRegressor, trained: Home, name: str
) -> None:
    """At granularity 1, the estimate equals the regressor's prediction of the whole graph."""
    item = corpus(trained.cache)[name]
    footprint = item.decomposition.footprint
    whole = encode_all([item.whole], SYSTEM, [footprint])
    estimate = predictor.estimate(item.decomposition, measured=False)
    assert estimate.latency_us == pytest.approx(regressor.predict_us(whole).sum(), rel=1e-4)
    assert estimate.predictor.name == "gnn"
    alone = predictor.costs(item.decomposition.unique, footprint=footprint, measured=False)
    apart = sum(alone[segment.sequence.signature].latency_us for segment in item.decomposition.segments)
    assert estimate.latency_us != pytest.approx(apart, rel=1e-5)


@pytest.mark.parametrize("name", [*HELD_BACK, *MEASURED])
def test_the_edges_between_segments_are_those_of_the_model(trained: Home, name: str) -> None:
    """The segments of a model have as many edges as its whole graph, between the same layers."""
    item = corpus(trained.cache)[name]
    segments = item.decomposition.segments
    whole = encode_all([item.whole], SYSTEM)
    parts = Encoder(SYSTEM).encode([p.sequence for p in segments], predecessors=[p.predecessors for p in segments])
    ends = [
        Counter(zip(*(encoded.bounds_us[rows].tolist() for rows in encoded.edges), strict=True))
        for encoded in (whole, parts)
    ]
    assert ends[0] == ends[1]


def test_what_is_measured_is_used(predictor: Predictor, trained: Home) -> None:
    """Measured layers keep their costs, and only the others are predicted."""
    measured = predictor.store.latencies_us(SYSTEM.name)
    estimate = predictor.estimate(corpus(trained.cache)[HELD_BACK[0]].decomposition)
    for layer in estimate.layers:
        known = layer.signature in measured
        assert (layer.cost.source == "measured") == known
        assert not known or layer.cost.latency_us == measured[layer.signature]
    assert {layer.cost.source for layer in estimate.layers} >= {"measured", "predicted"}


def test_alike_layers_differ_by_what_is_around_them(predictor: Predictor, trained: Home) -> None:
    """Layers with the same signature have different costs in different positions."""
    estimate = predictor.estimate(corpus(trained.cache)[HELD_BACK[0]].decomposition, measured=False)
    by_signature: dict[str, set[float]] = {}
    for layer in estimate.layers:
        by_signature.setdefault(layer.signature, set()).add(layer.cost.latency_us)
    assert max(len(costs) for costs in by_signature.values()) > 1


def test_a_coarser_cut_is_priced_in_place_too(predictor: Predictor, trained: Home) -> None:
    """At a coarser granularity, where edges inside are unknown, the estimate is near that of single layers."""
    item = corpus(trained.cache)[HELD_BACK[0]]
    fine, coarse = (
        predictor.estimate(decompose(HELD_BACK[0], item.graph, granularity), measured=False) for granularity in (1, 4)
    )
    assert coarse.latency_us == pytest.approx(fine.latency_us, rel=0.05)
    assert np.isfinite(coarse.interval_us).all()


def test_serving_it_needs_no_torch(home: Home, tmp_path: Path) -> None:
    """Serving imports neither torch nor torch-geometric nor LightGBM."""
    code = (
        "import sys\n"
        "for name in ('torch', 'torch_geometric', 'lightgbm'): sys.modules[name] = None\n"
        "from pathlib import Path\n"
        "from costmodel.serving.predictor import Predictor\n"
        "from costmodel.store.store import Store\n"
        f"predictor = Predictor.load(Store({home.store_url!r}), Path({str(home.bundles)!r}), {SYSTEM.name!r})\n"
        "print(predictor.regression.id.name, predictor.regression.sees_neighbours)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.split() == ["gnn", "True"]
