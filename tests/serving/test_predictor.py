"""An estimate uses measured costs, predicts the others, and reports every gap."""

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from costmodel.errors import ArtefactError, UnknownSystemError, UnpricedLayersError
from costmodel.estimate.cost import TYPICAL_CONSTRUCTION
from costmodel.estimate.estimate import PredictorId
from costmodel.ir.graph import Layer, LayerGraph, TensorType
from costmodel.partition.decomposition import Decomposition, Segment, decompose, whole_model
from costmodel.paths import Home
from costmodel.serving.predictor import Predictor
from costmodel.store.results import Results
from costmodel.store.store import Store
from costmodel.training.artefact import champion_of
from tests.fakes import elementwise
from tests.synthetic import HELD_BACK, MEASURED, SYSTEM, copied, corpus, fill, made_up_us


@pytest.fixture(scope="module")
def predictor(trained: Home) -> Predictor:
    """Predictor of the synthetic system with its champion."""
    return Predictor.load(Store(trained.store_url), trained.bundles, SYSTEM.name)


@pytest.fixture(scope="module")
def untrained(trained: Home, tmp_path_factory: pytest.TempPathFactory) -> Predictor:
    """Predictor of the same store without a champion."""
    return Predictor.load(Store(trained.store_url), tmp_path_factory.mktemp("no-regressors"), SYSTEM.name)


def cut(trained: Home, name: str) -> Decomposition:
    """Returns a light model's decomposition into layers."""
    return corpus(trained.cache)[name].decomposition


def test_what_is_measured_is_used(predictor: Predictor, trained: Home) -> None:
    """Every layer of a benchmarked model has its measured latency, and the estimate names no regressor."""
    estimate = predictor.estimate(cut(trained, "light_squeezenet"))
    assert {layer.cost.source for layer in estimate.layers} == {"measured"}
    assert estimate.coverage["measured"] == 1
    assert estimate.predictor == PredictorId()
    segments = cut(trained, "light_squeezenet").segments
    assert estimate.latency_us == pytest.approx(sum(made_up_us(segment.sequence) for segment in segments), rel=0.01)
    assert estimate.warnings == ()


def test_what_is_not_measured_is_predicted(predictor: Predictor, trained: Home) -> None:
    """A model of another family is estimated from measured and predicted costs, near its true latency."""
    for name in HELD_BACK:
        segments = cut(trained, name).segments
        estimate = predictor.estimate(cut(trained, name))
        assert {"measured", "predicted"} <= {layer.cost.source for layer in estimate.layers}
        assert estimate.latency_us == pytest.approx(sum(made_up_us(p.sequence) for p in segments), rel=0.15)
        low, high = estimate.interval_us
        assert low < estimate.latency_us < high
        assert predictor.regression is not None
        assert estimate.predictor == predictor.regression.id


def test_layers_come_in_execution_order_under_their_names(predictor: Predictor, trained: Home) -> None:
    """The estimate has one row per segment in execution order, with the names of all its layers."""
    graph_of = corpus(trained.cache)["light_squeezenet"]
    estimate = predictor.estimate(graph_of.decomposition)
    assert [layer.name for layer in estimate.layers] == [p.layers[0] for p in graph_of.decomposition.segments]
    assert [layer.signature for layer in estimate.layers] == [
        p.sequence.signature for p in graph_of.decomposition.segments
    ]
    pair = whole_model(_relu_chain(2))
    joined = Decomposition("two", 2, (Segment(pair, ("relu0", "relu1"), ()),))
    (row,) = predictor.estimate(joined).layers
    assert (row.name, row.op_type) == ("relu0+relu1", "Relu+Relu")


def _relu_chain(count: int) -> LayerGraph:
    names = [f"v{i}" for i in range(count + 1)]
    layers = tuple(Layer(f"relu{i}", "Relu", "", 6, {}, (names[i],), (names[i + 1],)) for i in range(count))
    types = dict.fromkeys(names, TensorType("float32", (1, 64, 28, 28)))
    return LayerGraph(layers, types, {}, ("v0",), (names[-1],), 17)


def test_without_measurements_every_layer_is_predicted(predictor: Predictor, trained: Home) -> None:
    """With `measured=False` every layer is predicted."""
    estimate = predictor.estimate(cut(trained, "light_squeezenet"), measured=False)
    assert estimate.coverage["measured"] == 0
    assert estimate.coverage["predicted"] == pytest.approx(1)
    known = predictor.estimate(cut(trained, "light_squeezenet"))
    assert estimate.latency_us == pytest.approx(known.latency_us, rel=0.1)
    assert estimate.latency_us != known.latency_us


def test_what_lies_outside_the_training_range_is_extrapolated(predictor: Predictor, trained: Home) -> None:
    """Layers far from the training data are marked, warned of, and have wider intervals."""
    gigantic = whole_model(_relu_chain(1))
    gigantic = replace(
        gigantic, values=tuple(replace(v, type=TensorType("float32", (4096, 64, 512, 512))) for v in gigantic.values)
    )
    ordinary = whole_model(_relu_chain(1))
    outside, inside = (predictor.costs({s.signature: s})[s.signature] for s in (gigantic, ordinary))
    assert (outside.source, inside.source) == ("extrapolated", "predicted")
    assert outside.interval_us[1] / outside.latency_us > inside.interval_us[1] / inside.latency_us
    estimate = predictor.estimate(Decomposition("big", 1, (Segment(gigantic, ("relu",), ()),)))
    assert estimate.coverage["extrapolated"] == 1
    assert any("1 of 1 sequences lies outside" in warning for warning in estimate.warnings)
    assert estimate.predictor != PredictorId()


def test_holes_are_refused_and_every_layer_in_them_is_named(untrained: Predictor, trained: Home) -> None:
    """Without a regressor, a model with unmeasured layers is refused; the message has the first ones, the error all."""
    held_back = cut(trained, "light_resnet50")
    with pytest.raises(UnpricedLayersError) as caught:
        untrained.estimate(held_back)
    measured = untrained.store.latencies_us(SYSTEM.name)
    missing = tuple(name for p in held_back.segments if p.sequence.signature not in measured for name in p.layers)
    assert caught.value.layers == missing
    assert len(missing) > 10
    assert all(name in str(caught.value) for name in (*missing[:5], "light_resnet50", SYSTEM.name, "costmodel bench"))


def test_a_partial_answer_names_what_it_leaves_out(untrained: Predictor, trained: Home) -> None:
    """In a partial estimate, unpriced layers count as 0, are marked and listed in a warning."""
    estimate = untrained.estimate(cut(trained, "light_resnet50"), partial=True)
    assert estimate.latency_us > 0
    assert estimate.unpriced
    (warning,) = estimate.warnings
    assert warning.startswith(f"{len(estimate.unpriced)} layers have no cost and count as 0")
    assert all(name in warning for name in estimate.unpriced)
    assert sum(estimate.coverage.values()) == pytest.approx(1)
    json.dumps(estimate.to_dict(), allow_nan=False)


def test_a_partial_answer_to_nothing_known_is_zero_and_says_so(untrained: Predictor) -> None:
    """A partial estimate without any cost is 0 and warns."""
    estimate = untrained.estimate(Decomposition("one", 1, (Segment(elementwise(5), ("relu",), ()),)), partial=True)
    assert (estimate.latency_us, estimate.interval_us) == (0, (0, 0))
    assert estimate.warnings == ("1 layers have no cost and count as 0: relu",)
    json.dumps(estimate.to_dict(), allow_nan=False)


def test_without_a_regressor_the_construction_error_is_the_typical_one(untrained: Predictor, trained: Home) -> None:
    """Without a regressor, the interval of summed measured layers is the typical construction error."""
    estimate = untrained.estimate(cut(trained, "light_squeezenet"))
    assert estimate.interval_level == 0.9
    assert estimate.interval_us[1] / estimate.latency_us - 1 >= TYPICAL_CONSTRUCTION


def test_the_parallel_composition_is_no_slower(predictor: Predictor, trained: Home) -> None:
    """The parallel rule gives less for Inception, which has branches, and the same for VGG, which has none."""
    for name, branches in (("light_inception_v1", True), ("light_vgg19", False)):
        sequential = predictor.estimate(cut(trained, name))
        parallel = predictor.estimate(cut(trained, name), composition="parallel")
        assert parallel.composition == "parallel"
        assert len(parallel.layers) == len(sequential.layers)
        assert all(layer.share == 1 for layer in parallel.layers) == (not branches)
        along = sum(layer.share * layer.cost.latency_us for layer in parallel.layers)
        assert parallel.latency_us == pytest.approx(along)
        assert (parallel.latency_us < 0.99 * sequential.latency_us) == branches


def test_warnings_of_the_model_are_passed_on(predictor: Predictor, trained: Home) -> None:
    """An estimate has the warnings of the model reader, then its own."""
    estimate = predictor.estimate(cut(trained, "light_resnet50"), warnings=("the batch is symbolic",))
    assert estimate.warnings[0] == "the batch is symbolic"


def test_an_unknown_system_says_how_to_get_data(trained: Home) -> None:
    """A system that is unknown, or known by name only, is refused with how to get data."""
    store = Store(trained.store_url)
    with pytest.raises(UnknownSystemError, match=r"run `costmodel bench --system c5\.xlarge`.*costmodel import"):
        Predictor.load(store, trained.bundles, "c5.xlarge")


def test_a_system_without_capabilities_is_unknown(tmp_path: Path) -> None:
    """A system whose bench stopped before measuring anything is unknown."""
    store = Store(f"sqlite:///{tmp_path / 'store.db'}")
    store.put_system(replace(SYSTEM, capabilities={}))
    with pytest.raises(UnknownSystemError, match=r"nothing is measured .* run `costmodel bench"):
        Predictor.load(store, tmp_path, SYSTEM.name)


def test_users_see_the_jitter_of_whole_models(predictor: Predictor, trained: Home) -> None:
    """Quantiles come from the jitter of whole models: a factor of 1 at p50, 1.4 at the top."""
    quantiles = predictor.estimate(cut(trained, "light_squeezenet")).quantiles_us
    latency = predictor.estimate(cut(trained, "light_squeezenet")).latency_us
    assert quantiles["p50"] == pytest.approx(latency)
    assert quantiles["p50"] < quantiles["p90"] <= quantiles["p99"]


def test_a_system_with_measured_sequences_only_has_jitter_too(tmp_path: Path, trained: Home) -> None:
    """A system with imported layer measurements only, and no whole models, has quantiles too."""
    models = corpus(trained.cache)
    store = Store(f"sqlite:///{tmp_path / 'store.db'}")
    fill(store, [models["light_squeezenet"]], samples=0)
    elsewhere = replace(SYSTEM, name="elsewhere")
    wholes = {model.whole for model in store.models()}
    measured = [m for m in store.measurements(SYSTEM.name, repeats=False) if m.signature not in wholes]
    sequences = store.sequences(m.signature for m in measured)
    store.put_results(Results(elsewhere, tuple(measured), sequences))
    estimate = Predictor.load(store, tmp_path, "elsewhere").estimate(models["light_squeezenet"].decomposition)
    assert estimate.quantiles_us["p50"] == pytest.approx(estimate.latency_us)


def test_a_coarser_cut_is_priced_too(predictor: Predictor, trained: Home) -> None:
    """Unmeasured sequences of several layers are predicted."""
    chain = decompose("chain", _relu_chain(6), 3)
    estimate = predictor.estimate(chain)
    assert estimate.granularity == 3
    assert len(estimate.layers) == 2
    assert estimate.latency_us > 0


@pytest.mark.parametrize("damage", ["text", "truncated", "another network"])
def test_a_damaged_network_is_one_sentence(trained: Home, tmp_path: Path, damage: str) -> None:
    """A damaged ONNX regressor is an error of one sentence."""
    home = copied(trained, tmp_path / "home")
    path = champion_of(home.bundles, SYSTEM.name)
    assert path is not None
    network = path / "model.onnx"
    other = corpus(trained.cache)["light_squeezenet"].model.path
    assert other is not None
    contents = {
        "text": b"not a network",
        "truncated": network.read_bytes()[:1000],
        "another network": other.read_bytes(),
    }
    network.write_bytes(contents[damage])
    with pytest.raises(ArtefactError, match=r"is damaged .*train again with `costmodel train --system"):
        Predictor.load(Store(home.store_url), home.bundles, SYSTEM.name)


def test_threads_may_share_a_predictor(predictor: Predictor, trained: Home) -> None:
    """Threads that share a predictor get the answers that each would get alone."""
    models = [cut(trained, name) for name in (*HELD_BACK, *MEASURED)] * 3
    alone = [replace(predictor).estimate(model, measured=measured) for measured in (True, False) for model in models]
    shared = replace(predictor)
    with ThreadPoolExecutor(4) as pool:
        together = [
            job.result()
            for job in [
                pool.submit(shared.estimate, model, measured=measured) for measured in (True, False) for model in models
            ]
        ]
    assert together == alone
