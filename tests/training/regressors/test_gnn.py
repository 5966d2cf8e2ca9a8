"""The graph neural network: what it learns from sequences, and its ONNX export."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from costmodel.features.tabular import Encoded, encode_all
from costmodel.paths import Home
from costmodel.runtimes.base import RuntimeSettings
from costmodel.runtimes.ort.session import open_session
from costmodel.store.store import Store
from costmodel.training.artefact import champion_of, load_bundle
from costmodel.training.dataset import Dataset
from costmodel.training.regressors.registry import LEARNERS
from costmodel.training.train import train_system
from tests.synthetic import SYSTEM, corpus

pytest.importorskip("torch_geometric")
import torch

from costmodel.training.regressors.gnn import GraphRegressor


@pytest.fixture(scope="module")
def regressor(dataset: Dataset) -> GraphRegressor:
    """A regressor fitted on the synthetic data set."""
    return GraphRegressor(0).fit(dataset.encoded, dataset.latencies_us)


@pytest.fixture(scope="module")
def exported(regressor: GraphRegressor) -> bytes:
    """The regressor as an ONNX model."""
    return regressor.to_onnx()


def _served(exported: bytes, encoded: Encoded) -> np.ndarray:
    session = open_session(exported, RuntimeSettings(threads=1, spinning=False))
    (ratios,) = session.run(None, {"features": encoded.features, "edges": encoded.edges})
    return np.asarray(ratios)


def _trained(regressor: GraphRegressor, encoded: Encoded) -> np.ndarray:
    return np.asarray(np.log(regressor.predict_us(encoded) / encoded.bounds_us))


def _random(dataset: Dataset, layers: int, edges: int, spread: float, seed: int) -> Encoded:
    random = np.random.default_rng(seed)
    rows = random.integers(0, len(dataset.encoded.features), layers)
    features = dataset.encoded.features[rows] + random.normal(0, spread, (layers, dataset.encoded.features.shape[1]))
    ends = random.integers(0, layers, (2, edges))
    return Encoded(features.astype(np.float32), np.ones(layers), np.array([0, layers]), ends)


@pytest.mark.parametrize("edges", [0, 1, 90])
@pytest.mark.parametrize("layers", [1, 2, 60])
def test_onnx_answers_as_the_network_does_on_random_graphs(
    regressor: GraphRegressor, exported: bytes, dataset: Dataset, layers: int, edges: int
) -> None:
    """ONNX and torch agree to 1e-4 in the logarithm on random graphs, inside and outside the training range."""
    for spread in (0.1, 10.0):
        graph = _random(dataset, layers, edges, spread, seed=layers + edges)
        assert _served(exported, graph).shape == (layers,)
        assert _served(exported, graph) == pytest.approx(_trained(regressor, graph), abs=1e-4)


def test_onnx_answers_as_the_network_does_on_real_models(
    regressor: GraphRegressor, exported: bytes, dataset: Dataset, trained: Home
) -> None:
    """ONNX and torch agree to 1e-4 on trained models, other models and single layers."""
    models = corpus(trained.cache).values()
    for encoded in (
        dataset.encoded,
        dataset.encoded.take(np.array([0])),
        *(encode_all([item.whole], SYSTEM) for item in models),
    ):
        assert _served(exported, encoded) == pytest.approx(_trained(regressor, encoded), abs=1e-4)


def test_a_layer_by_itself_has_no_context(regressor: GraphRegressor, dataset: Dataset) -> None:
    """A layer's cost depends on its neighbours in the same sequence, and not on other sequences."""
    whole = dataset.encoded.take(np.flatnonzero(dataset.whole)[:1])
    apart = replace(whole, edges=whole.edges[:, :0])
    some = replace(apart, features=apart.features[:3], bounds_us=apart.bounds_us[:3], starts=np.array([0, 3]))
    assert regressor.predict_us(some) == pytest.approx(regressor.predict_us(apart)[:3], rel=1e-5)
    assert regressor.predict_us(whole) != pytest.approx(regressor.predict_us(apart), rel=1e-4)


def test_it_learns_layers(dataset: Dataset) -> None:
    """Enough steps learn the factor of each kind of layer."""
    single = ~dataset.whole
    data = dataset.encoded.take(single), dataset.latencies_us[single]
    regressor = GraphRegressor(0, hidden=48, num_message_passing_layers=0, steps=300, min_steps=300).fit(*data)
    costs = data[0].totals(regressor.predict_us(data[0]))
    assert np.median(np.abs(costs / data[1] - 1)) < 0.06


def test_it_learns_what_the_sum_of_layers_misses(dataset: Dataset) -> None:
    """If models cost 1.3 times their layers, only a network with neighbours predicts both models and layers."""
    single, whole = np.flatnonzero(~dataset.whole), np.flatnonzero(dataset.whole)
    latencies = dataset.latencies_us.copy()
    for model in dataset.models:
        latencies[model.row] = 1.3 * dataset.latencies_us[model.rows].sum()

    def off(num_message_passing_layers: int, rows: np.ndarray) -> float:
        made = GraphRegressor(
            0, hidden=48, num_message_passing_layers=num_message_passing_layers, steps=120, min_steps=120
        )
        costs = dataset.encoded.totals(made.fit(dataset.encoded, latencies).predict_us(dataset.encoded))
        return float(np.median(np.abs(costs / latencies - 1)[rows]))

    assert off(2, whole) < 0.05
    assert off(2, single) + off(2, whole) < 0.5 * (off(0, single) + off(0, whole))


def test_only_whole_models_are_enough_to_rank_them(dataset: Dataset) -> None:
    """Trained on whole models only, two members find the fastest and the slowest."""
    whole = np.flatnonzero(dataset.whole)
    encoded, latencies = dataset.encoded.take(whole), dataset.latencies_us[whole]
    regressor = GraphRegressor(0, members=2).fit(encoded, latencies)
    costs = encoded.totals(regressor.predict_us(encoded))
    assert np.array_equal(np.argsort(costs)[[0, -1]], np.argsort(latencies)[[0, -1]])


def test_chance_and_threads_of_the_process_are_left_alone(dataset: Dataset) -> None:
    """A fit changes neither torch's global generator nor its number of threads."""
    before = torch.random.get_rng_state(), torch.get_num_threads()
    single = np.flatnonzero(~dataset.whole)[:30]
    made = [
        GraphRegressor(seed).fit(dataset.encoded.take(single), dataset.latencies_us[single]).predict_us(dataset.encoded)
        for seed in (0, 1)
    ]
    assert torch.equal(before[0], torch.random.get_rng_state())
    assert before[1] == torch.get_num_threads()
    assert not np.array_equal(*made)


def test_both_are_trained_and_the_better_one_answers(store: Store, tmp_path: Path) -> None:
    """Both regressors are evaluated on the same families; the worse one is saved, listed, and not champion."""
    learners = {name: LEARNERS[name] for name in ("lightgbm", "gnn")}
    report = train_system(store, SYSTEM.name, tmp_path, tracking=None, seeds=(0,), learners=learners)
    trained = (report.champion, *report.others)
    assert {one.name for one in trained} == {"lightgbm", "gnn"}
    errors = {one.name: report.evaluation.predictors[one.name].model_unseen.mape for one in trained}
    assert report.champion.name == report.evaluation.champion == min(errors, key=errors.__getitem__)
    assert champion_of(tmp_path, SYSTEM.name) == report.champion.path
    bundles = [load_bundle(one.path) for one in trained]
    assert {(bundle.name, bundle.version) for bundle in bundles} == {(one.name, one.version) for one in trained}
    assert {one.name for one in trained if (one.path / "lightgbm.txt").exists()} == {"lightgbm"}
    assert report.to_dict()["others"] == [other.to_dict() for other in report.others]


def test_without_its_packages_the_others_train() -> None:
    """Without its packages the GNN is not a default, and selecting it says what to install."""
    code = (
        "import sys; sys.modules['torch_geometric'] = None\n"
        "from costmodel.training.regressors.registry import LEARNERS, REGRESSORS\n"
        "assert 'lightgbm' in LEARNERS and 'gnn' not in LEARNERS and 'gnn' not in REGRESSORS\n"
        "import costmodel.training.regressors.gnn"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "MissingExtraError" in done.stderr
    assert "--editable '.[gnn]'" in done.stderr


def test_naming_it_does_not_load_torch() -> None:
    """Listing or looking up regressors does not import torch."""
    code = "import sys, costmodel.training.train, costmodel.serving.predictor; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
