"""The log-linear regressor, which learns layer costs from the latencies of whole models alone."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from costmodel.errors import TrainingError
from costmodel.features.analytical_bound import bound_us
from costmodel.features.schema import SCHEMA
from costmodel.features.tabular import encode_all
from costmodel.ir.graph import Layer, LayerGraph, TensorType
from costmodel.ir.sequence import LayerSequence
from costmodel.partition.decomposition import Decomposition, decompose, whole_model
from costmodel.runtimes.base import RuntimeSettings
from costmodel.runtimes.ort.session import open_session
from costmodel.serving.predictor import Predictor
from costmodel.store.latency_csv import ObservedLatency
from costmodel.store.store import Store
from costmodel.training.dataset import Dataset, load_dataset
from costmodel.training.evaluation.evaluation import evaluate
from costmodel.training.regressors.lightgbm_regressor import LightGBMRegressor
from costmodel.training.regressors.linear_correction import LinearCorrection
from costmodel.training.regressors.log_linear import LogLinearRegressor
from costmodel.training.regressors.registry import LEARNERS, REGRESSORS
from costmodel.training.train import train_system
from tests.synthetic import SYSTEM, made_up_measurement

# Ratio of cost to bound of each operator in the space below, of which only sums are measured.
FACTORS = {"Relu": 1.2, "Tanh": 2.0, "Softmax": 3.5}
QUICK = {name: REGRESSORS[name] for name in ("log_linear", "roofline", "flops")}


def _network(number: int) -> LayerGraph:
    """Returns a chain of layers of three operators and many sizes; each number gives another chain."""
    random = np.random.default_rng(number)
    layers, types = [], {}
    for branch in range(random.integers(4, 9)):
        kind = TensorType("float32", (int(random.integers(8, 400)), int(random.integers(8, 400))))
        op_type = list(FACTORS)[random.integers(3)]
        types |= {f"x{branch}": kind, f"y{branch}": kind}
        layers.append(Layer(f"l{branch}", op_type, "", 13, {}, (f"x{branch}",), (f"y{branch}",)))
    inputs, outputs = (tuple(layer.inputs[0] for layer in layers), tuple(layer.outputs[0] for layer in layers))
    return LayerGraph(tuple(layers), types, {}, inputs, outputs, 17)


def _cost_us(sequence: LayerSequence) -> float:
    return bound_us(sequence, SYSTEM) * FACTORS[sequence.kind]


def _space_us(cut: Decomposition) -> float:
    return sum(_cost_us(segment.sequence) for segment in cut.segments)


def _observe(store: Store, count: int, *, families: int = 1, constant_us: float = 0.0) -> None:
    store.put_system(SYSTEM)
    for number in range(count):
        graph = _network(number)
        cut, whole = decompose(f"net{number}", graph), whole_model(graph)
        store.put_model(cut, whole, digest=str(number), family=f"space{number % families}", lowering="x")
        latency_us = _space_us(cut) + constant_us
        observed = ObservedLatency(number, f"net{number}", latency_us).measurement(whole.signature, "2026-11-20")
        store.put_measurement(SYSTEM.name, observed, whole)


@pytest.fixture
def space(tmp_path: Path) -> Iterator[Store]:
    """A store with 25 whole models of one family."""
    store = Store(f"sqlite:///{tmp_path / 'space.db'}")
    _observe(store, 25)
    yield store
    store.close()


@pytest.fixture
def wholes(space: Store) -> Dataset:
    """The data set of that store."""
    return load_dataset(space, SYSTEM.name)


def test_ten_whole_models_are_a_data_set(tmp_path: Path) -> None:
    """Ten whole models are accepted, nine are refused with what is needed."""
    store = Store(f"sqlite:///{tmp_path / 'few.db'}")
    _observe(store, 9)
    with pytest.raises(TrainingError, match="9 measured sequences and training needs 20, or 10 whole models"):
        load_dataset(store, SYSTEM.name)
    _observe(store, 10)
    dataset = load_dataset(store, SYSTEM.name)
    assert dataset.whole_only
    assert dataset.whole.all()
    assert [model.rows.tolist() for model in dataset.models] == [[model.row] for model in dataset.models]


def test_layers_put_an_end_to_that(space: Store, dataset: Dataset) -> None:
    """Once layers are measured, only models with all layers measured are judged."""
    assert not dataset.whole_only
    layers = {p.sequence.signature: p.sequence for n in range(5) for p in decompose("", _network(n)).segments}
    for sequence in layers.values():
        space.put_measurement(SYSTEM.name, made_up_measurement(sequence.signature, _cost_us(sequence)), sequence)
    mixed = load_dataset(space, SYSTEM.name)
    assert not mixed.whole_only
    assert {f"net{n}" for n in range(5)} == {model.name for model in mixed.models}


def test_costs_of_layers_are_found_from_sums(wholes: Dataset) -> None:
    """Half of the models suffice to recover each operator's ratio to the bound, for other models and for layers."""
    learnt = LogLinearRegressor(ridge=1e-5).fit(wholes.encoded.take(np.arange(15)), wholes.latencies_us[:15])
    rest = wholes.encoded.take(np.arange(15, 25))
    assert rest.totals(learnt.predict_us(rest)) == pytest.approx(wholes.latencies_us[15:], rel=0.1)
    layers = [p.sequence for p in decompose("", _network(99)).segments]
    assert learnt.predict_us(encode_all(layers, SYSTEM)) == pytest.approx([_cost_us(s) for s in layers], rel=0.25)


def test_it_learns_from_layers_as_well(wholes: Dataset) -> None:
    """Single layers are learnt from like sums of one layer."""
    layers = list(
        {p.sequence.signature: p.sequence for n in range(9) for p in decompose("", _network(n)).segments}.values()
    )
    encoded, costs = encode_all(layers, SYSTEM), np.array([_cost_us(s) for s in layers])
    learnt = LogLinearRegressor(ridge=1e-6).fit(encoded, costs)
    assert learnt.predict_us(encoded) == pytest.approx(costs, rel=0.02)


def test_a_few_wrong_latencies_do_not_decide(wholes: Dataset) -> None:
    """With two of twenty latencies tripled, the others are still predicted, better than by least squares."""
    wrong = wholes.latencies_us[:20] * np.where(np.arange(20) % 10 == 3, 3.0, 1.0)
    rest = wholes.encoded.take(np.arange(20, 25))

    def error(scale: float | None) -> float:
        learnt = LogLinearRegressor(scale=scale).fit(wholes.encoded.take(np.arange(20)), wrong)
        predicted = rest.totals(learnt.predict_us(rest)) + learnt.model_us_
        return float(np.abs(predicted / wholes.latencies_us[20:] - 1).mean())

    assert error(0.05) < 0.12
    assert error(0.05) < error(None)


def test_a_layer_of_every_model_does_not_run_away(wholes: Dataset) -> None:
    """Layers stay within the limit, and what models take besides them is their constant."""
    constant_us = float(wholes.latencies_us.mean())
    learnt = LogLinearRegressor(limit=2.0).fit(wholes.encoded, wholes.latencies_us + constant_us)
    assert learnt.model_us_ == pytest.approx(constant_us, rel=0.3)
    assert wholes.encoded.totals(learnt.predict_us(wholes.encoded)) + learnt.model_us_ == pytest.approx(
        wholes.latencies_us + constant_us, rel=0.1
    )
    without = LogLinearRegressor(limit=2.0, constant=False).fit(wholes.encoded, wholes.latencies_us + constant_us)
    assert without.model_us_ == 0
    ratios = np.log(without.predict_us(wholes.encoded) / wholes.encoded.bounds_us)
    assert np.ptp(ratios) <= 4.001


def test_predictions_stay_near_the_training_data(wholes: Dataset) -> None:
    """A prediction's ratio to the bound stays within a factor e of the ratios in the training data."""
    learnt = LogLinearRegressor().fit(wholes.encoded, wholes.latencies_us)
    trained = np.log(learnt.predict_us(wholes.encoded) / wholes.encoded.bounds_us)
    random = np.random.default_rng(0)
    wild = replace(wholes.encoded, features=random.uniform(-50, 50, wholes.encoded.features.shape).astype(np.float32))
    ratios = np.log(learnt.predict_us(wild) / wild.bounds_us)
    assert trained.min() - 1.001 <= ratios.min() <= ratios.max() <= trained.max() + 1.001


def test_what_serves_is_what_was_learnt(wholes: Dataset) -> None:
    """The ONNX model gives the same predictions, and the text form names its features."""
    learnt = LogLinearRegressor().fit(wholes.encoded, wholes.latencies_us)
    session = open_session(learnt.to_onnx(), RuntimeSettings(threads=1, spinning=False))
    ratios = session.run(None, {"features": wholes.encoded.features})[0].reshape(-1)
    assert wholes.encoded.bounds_us * np.exp(ratios) == pytest.approx(learnt.predict_us(wholes.encoded), rel=1e-4)
    document = json.loads(learnt.to_text())
    assert set(document["coefficients"]) <= set(SCHEMA.names)
    assert document["constant"] == learnt.constant_
    assert document["model_us"] == learnt.model_us_


def test_a_space_is_judged_on_others_of_its_models(wholes: Dataset) -> None:
    """With one family, models are held out in ten groups, and baselines are judged alike."""
    evaluation = evaluate(wholes, seeds=(0,), predictors=QUICK)
    assert evaluation.report.split == "leave-models-out, 10 folds"
    assert evaluation.report.champion == "log_linear"
    learnt = evaluation.report.predictors["log_linear"]
    assert learnt.layer.mape is None
    assert learnt.model.mape < evaluation.report.predictors["flops"].model.mape
    assert learnt.model.kendall_tau > 0.9
    assert 0.8 <= learnt.model.interval_coverage <= 1
    assert {model.family for model in learnt.models} == {"space0"}
    json.dumps(evaluation.report.to_dict(), allow_nan=False)
    calibration = evaluation.calibrations["log_linear"]
    assert len(set(calibration.by_distance)) == 1  # widths come from models, independent of their layers
    assert calibration.by_distance[0] > 0 == calibration.uncertainty.construction


def test_of_several_families_one_is_left_out_at_a_time(tmp_path: Path) -> None:
    """With several families, one is held out at a time."""
    store = Store(f"sqlite:///{tmp_path / 'several.db'}")
    _observe(store, 20, families=4)
    evaluation = evaluate(load_dataset(store, SYSTEM.name), seeds=(0,), predictors=QUICK)
    assert evaluation.report.split == "leave-one-family-out"
    assert evaluation.report.predictors["log_linear"].model.interval_coverage is not None


def test_what_was_trained_prices_the_rest_of_the_space(space: Store, tmp_path: Path) -> None:
    """After training on whole models only, another model of the space can be estimated."""
    learners = {"log_linear": LEARNERS["log_linear"]}
    report = train_system(space, SYSTEM.name, tmp_path / "regressors", tracking=None, seeds=(0,), learners=learners)
    assert report.champion.name == "log_linear"
    assert any("only whole models are measured" in warning for warning in report.warnings)
    cut = decompose("unseen", _network(77))
    estimate = Predictor.load(space, tmp_path / "regressors", SYSTEM.name).estimate(cut)
    assert estimate.latency_us == pytest.approx(_space_us(cut), rel=0.25)
    assert estimate.interval_us[0] < _space_us(cut) < estimate.interval_us[1]


def test_few_models_train_what_they_determine(space: Store, tmp_path: Path) -> None:
    """On a few whole models only the log-linear regressor is trained, with one seed, and that is said."""
    report = train_system(space, SYSTEM.name, tmp_path / "regressors", tracking=None, seeds=(0, 1, 2))
    assert (report.champion.name, report.others) == ("log_linear", ())
    assert set(report.evaluation.predictors) == {"log_linear", "roofline", "flops", "operator_count"}
    assert report.evaluation.seeds == (0,)
    assert any("only log_linear was trained" in warning for warning in report.warnings)


def _measure_base(store: Store, factor: float) -> None:
    """Stores a system like the space's own, on which all layers of many other chains were measured."""
    store.put_system(replace(SYSTEM, name="base"))
    for number in range(100, 160):
        graph = _network(number)
        cut, whole = decompose(f"base{number}", graph), whole_model(graph)
        store.put_model(cut, whole, digest=str(number), family="base", lowering="x")
        for segment in cut.segments:
            sequence = segment.sequence
            made = made_up_measurement(sequence.signature, factor * _cost_us(sequence))
            store.put_measurement("base", made, sequence)


def test_a_system_like_a_measured_one_starts_from_it(tmp_path: Path) -> None:
    """Ten latencies correct what a system of the same hardware measured, which predicts better than they alone."""
    store = Store(f"sqlite:///{tmp_path / 'like.db'}")
    _observe(store, 10)
    _measure_base(store, 1.4)
    report = train_system(store, SYSTEM.name, tmp_path / "regressors", tracking=None)
    judged = {name: found.model.mape for name, found in report.evaluation.predictors.items()}
    assert report.champion.name == "linear_correction"
    assert judged["linear_correction"] < min(0.06, judged["log_linear"])
    assert any("only log_linear and linear_correction were trained" in warning for warning in report.warnings)
    predictor = Predictor.load(store, tmp_path / "regressors", SYSTEM.name)
    cuts = [decompose("unseen", _network(number)) for number in range(77, 97)]
    errors = [predictor.estimate(cut).latency_us / _space_us(cut) - 1 for cut in cuts]
    assert np.abs(errors).mean() < 0.06
    store.close()


def test_a_correction_serves_what_it_learnt(wholes: Dataset) -> None:
    """The ONNX model of a correction, which contains the other system's regressor, gives the same predictions."""
    layers = {p.sequence.signature: p.sequence for n in range(60) for p in decompose("", _network(n)).segments}
    base = LightGBMRegressor(0).fit(
        encode_all(layers.values(), SYSTEM), np.array([2 * _cost_us(layer) for layer in layers.values()])
    )
    learnt = LinearCorrection(base).fit(wholes.encoded, wholes.latencies_us)
    session = open_session(learnt.to_onnx(), RuntimeSettings(threads=1, spinning=False))
    ratios = session.run(None, {"features": wholes.encoded.features})[0].reshape(-1)
    assert wholes.encoded.bounds_us * np.exp(ratios) == pytest.approx(learnt.predict_us(wholes.encoded), rel=1e-4)
    assert learnt.settings["prior.num_leaves"] == base.settings["num_leaves"]
    assert json.loads(learnt.to_text())["model_us"] == learnt.model_us_


def test_the_constant_of_models_is_served(tmp_path: Path) -> None:
    """A time that every model takes besides its layers is in the estimate, spread over its layers."""
    store = Store(f"sqlite:///{tmp_path / 'constant.db'}")
    constant_us = 20_000.0
    _observe(store, 25, constant_us=constant_us)
    report = train_system(store, SYSTEM.name, tmp_path / "regressors", tracking=None)
    cut = decompose("unseen", _network(77))
    estimate = Predictor.load(store, tmp_path / "regressors", SYSTEM.name).estimate(cut)
    assert estimate.latency_us == pytest.approx(_space_us(cut) + constant_us, rel=0.1)
    assert estimate.latency_us == pytest.approx(sum(layer.cost.latency_us for layer in estimate.layers))
    assert report.evaluation.predictors["log_linear"].model.mape < 0.1
    store.close()


def test_an_observed_latency_is_used_and_said(space: Store, tmp_path: Path) -> None:
    """The estimate of a model whose latency was imported is that latency, says so, and knows no jitter."""
    train_system(space, SYSTEM.name, tmp_path / "regressors", tracking=None)
    predictor = Predictor.load(space, tmp_path / "regressors", SYSTEM.name)
    known, unseen = decompose("net3", _network(3)), decompose("unseen", _network(77))
    estimate, other = predictor.estimate_all([known, unseen])
    assert estimate.latency_us == pytest.approx(_space_us(known))
    assert estimate.latency_us == pytest.approx(sum(layer.cost.latency_us for layer in estimate.layers))
    assert estimate.interval_us[0] < estimate.latency_us < estimate.interval_us[1]
    assert any("the latency was observed on made.up and imported" in warning for warning in estimate.warnings)
    assert not any("observed" in warning for warning in other.warnings)
    assert estimate.quantiles_us == other.quantiles_us == {}
    assert not any("observed" in warning for warning in predictor.estimate(known, measured=False).warnings)
    whole = whole_model(_network(3))
    late = ObservedLatency(2, "net3", 3 * _space_us(known)).measurement(whole.signature, "2026-11-22")
    space.put_measurement(SYSTEM.name, late, whole)
    assert predictor.estimate(known).latency_us == pytest.approx(2 * _space_us(known))
