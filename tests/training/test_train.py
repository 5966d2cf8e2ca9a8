"""Training as a whole: evaluation, fit on all rows, saving, promotion, recording."""

import json
import os
from pathlib import Path

import pytest
from mlflow import MlflowClient

from costmodel.errors import TrainingError, UnknownSystemError
from costmodel.features.analytical_bound import bound_us
from costmodel.ir.graph import Layer, LayerGraph, TensorType
from costmodel.partition.decomposition import decompose, whole_model
from costmodel.paths import Home
from costmodel.store.store import Store
from costmodel.training.artefact import champion_of, load_bundle
from costmodel.training.dataset import Dataset, load_dataset
from costmodel.training.regressors.targets import layer_targets
from costmodel.training.tracking import CHAMPION, model_name
from costmodel.training.train import TrainReport, train_system
from tests.fakes import elementwise
from tests.synthetic import MLFLOW_DEPRECATION, QUICK, SYSTEM, copied, made_up_measurement, put_tracking_store

pytestmark = pytest.mark.filterwarnings(f"ignore:{MLFLOW_DEPRECATION}:DeprecationWarning")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """An empty home with a tracking store."""
    home = Home(tmp_path_factory.mktemp("train"))
    home.data.mkdir()
    put_tracking_store(tmp_path_factory.getbasetemp(), home.tracking)
    return home


@pytest.fixture(scope="module")
def report(home: Home, store: Store) -> TrainReport:
    """Report of one recorded training run."""
    assert "MLFLOW_TRACKING_URI" not in os.environ
    return train_system(store, SYSTEM.name, home.bundles, tracking=home.tracking, seeds=(3, 4), learners=QUICK)


def test_the_new_regressor_answers(home: Home, report: TrainReport, dataset: Dataset) -> None:
    """The new regressor is champion, complete, and says what it was trained on."""
    assert champion_of(home.bundles, SYSTEM.name) == report.path
    bundle = load_bundle(report.path)
    assert (bundle.name, bundle.version, bundle.system) == ("lightgbm", report.version, SYSTEM.name)
    assert bundle.facts["rows"] == report.rows == len(dataset)
    assert bundle.facts["data_fingerprint"] == dataset.fingerprint
    assert bundle.facts["seeds"] == [3, 4]
    layers = dataset.encoded.features[layer_targets(dataset.encoded, dataset.latencies_us)[0]]
    assert not bundle.support.distances(layers).any()


def test_the_calibration_is_that_of_the_evaluation(report: TrainReport) -> None:
    """Intervals come from held-out lineages, not from the training rows."""
    calibration = load_bundle(report.path).calibration
    assert calibration.level == 0.9
    assert min(calibration.by_distance) > 0.02
    assert 0 <= calibration.uncertainty.correlation < 10
    assert 0 < calibration.uncertainty.construction <= 0.03 + 1e-9


def test_the_run_is_recorded(home: Home, report: TrainReport) -> None:
    """The run has the metrics of every predictor, the fingerprints of data and schema, and the bundle."""
    client = MlflowClient(tracking_uri=f"sqlite:///{home.tracking / 'mlflow.db'}")
    assert report.run_id is not None
    run = client.get_run(report.run_id)
    expected = report.evaluation.predictors["lightgbm"].model.mape
    assert run.data.metrics["lightgbm.model.mape"] == expected
    assert "roofline.layer.mape" in run.data.metrics
    assert run.data.metrics["noise_floor_mape"] == pytest.approx(0.02)
    assert run.data.tags["version"] == report.version
    assert run.data.params["objective"] == "fair"
    assert {f.path for f in client.list_artifacts(report.run_id)} == {"artefact", "evaluation.json", "figures"}
    champion = client.get_model_version_by_alias(model_name(SYSTEM.name), CHAMPION)
    assert (champion.run_id, champion.tags["version"]) == (report.run_id, report.version)


def test_the_report_is_json(report: TrainReport) -> None:
    """The document of `costmodel train --json` has no NaN and no path objects."""
    document = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert document["predictor"] == {"name": "lightgbm", "version": report.version}
    assert document["evaluation"]["champion"] in document["evaluation"]["predictors"]
    assert document["warnings"] == list(report.warnings)


def test_a_record_that_fails_costs_a_warning_not_the_regressor(tmp_path: Path, store: Store) -> None:
    """An unreachable tracking store gives a warning, and the regressor is kept."""
    (tmp_path / "mlruns").touch()
    bundles = tmp_path / "regressors"
    report = train_system(store, SYSTEM.name, bundles, tracking=tmp_path / "mlruns", seeds=(0,), learners=QUICK)
    assert report.run_id is None
    assert any("was not completely recorded in MLflow" in warning for warning in report.warnings)
    assert champion_of(tmp_path / "regressors", SYSTEM.name) == report.path


def test_a_baseline_that_does_better_is_a_warning(tmp_path: Path) -> None:
    """A warning names a baseline that beats the champion, such as an exact roofline."""
    store = Store(f"sqlite:///{tmp_path / 'exact.db'}")
    store.put_system(SYSTEM)
    for number, family in enumerate(["a", "b", "c"] * 10):
        kind = TensorType("float32", (1000 * number + 8,))
        relu = Layer("relu", "Relu", "", 6, {}, ("x",), ("y",))
        graph = LayerGraph((relu,), {"x": kind, "y": kind}, {}, ("x",), ("y",), 17)
        sequence = whole_model(graph)
        store.put_model(decompose(f"{family}{number}", graph), sequence, digest="", family=family, lowering="x")
        measured = made_up_measurement(sequence.signature, 2 * bound_us(sequence, SYSTEM))
        store.put_measurement(SYSTEM.name, measured, sequence)
    report = train_system(store, SYSTEM.name, tmp_path / "regressors", tracking=None, seeds=(0,), learners=QUICK)
    assert report.evaluation.champion == "lightgbm"
    assert any("does better than lightgbm" in warning for warning in report.warnings)


def test_too_little_data_leaves_the_champion_in_charge(tmp_path: Path, home: Home, report: TrainReport) -> None:
    """Too little data is an error before anything is written."""
    store = Store(f"sqlite:///{tmp_path / 'small.db'}")
    store.put_system(SYSTEM)
    store.put_measurement(SYSTEM.name, made_up_measurement(elementwise(8).signature, 5.0), elementwise(8))
    with pytest.raises(TrainingError):
        train_system(store, SYSTEM.name, home.bundles, tracking=None)
    assert champion_of(home.bundles, SYSTEM.name) == report.path
    assert len(list((home.bundles / SYSTEM.name).iterdir())) == 2


def test_a_search_is_reported_recorded_and_used(home: Home, store: Store, tmp_path: Path) -> None:
    """Trials are child runs of the bundle's run, and the bundle states the hyperparameters that it used."""
    report = train_system(
        store, SYSTEM.name, tmp_path, tracking=home.tracking, seeds=(0,), folds=3, learners=QUICK, trials=2
    )
    assert report.search is not None
    assert len(report.search.trials) == 2
    assert report.to_dict()["search"] == report.search.to_dict()
    assert report.search.adopted != any("no better" in warning for warning in report.warnings)
    settings = load_bundle(report.path).facts["settings"]
    used = report.search.hyperparameters
    assert (settings["learning_rate"], settings["objective"]) == (used.learning_rate, used.objective)
    client = MlflowClient(tracking_uri=f"sqlite:///{home.tracking / 'mlflow.db'}")
    assert report.run_id is not None
    experiment = client.get_run(report.run_id).info.experiment_id
    assert len(client.search_runs([experiment], f"tags.`mlflow.parentRunId` = '{report.run_id}'")) == 2
    assert "search.json" in {f.path for f in client.list_artifacts(report.run_id)}


def test_what_cannot_be_is_left_out_and_said(tmp_path: Path, trained: Home) -> None:
    """A cost in milliseconds among microseconds is removed with a warning."""
    home = copied(trained, tmp_path / "home")
    store = Store(home.store_url)
    dataset = load_dataset(store, SYSTEM.name)
    layers = [row for row, kind in enumerate(dataset.kinds) if kind == "Conv" and not dataset.whole[row]]
    row = max(layers, key=lambda row: dataset.latencies_us[row])
    signature, latency_us = dataset.signatures[row], float(dataset.latencies_us[row])
    for _ in range(5):  # more wrong than right measurements, because the median decides
        store.put_measurement(SYSTEM.name, made_up_measurement(signature, latency_us / 1000))
    report = train_system(store, SYSTEM.name, tmp_path / "new", tracking=None, seeds=(0,), folds=2, learners=QUICK)
    assert report.rows == len(dataset) - 1
    assert any("1 measured sequence" in warning for warning in report.warnings)


def test_an_unknown_system_is_not_trained(tmp_path: Path, store: Store) -> None:
    """An unknown system is refused and nothing is written."""
    with pytest.raises(UnknownSystemError):
        train_system(store, "other", tmp_path, tracking=None)
    assert list(tmp_path.iterdir()) == []
