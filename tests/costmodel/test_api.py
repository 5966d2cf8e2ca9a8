"""Queries from a program that imports costmodel."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto

from costmodel import CostModel, CostModelError, Estimate, LatencyTable, layer, read_model, weight
from costmodel.errors import (
    ModelReadError,
    RuleError,
    ShapeError,
    TrafficError,
    TuningError,
    UnknownSystemError,
    UnpricedLayersError,
)
from costmodel.paths import Home
from costmodel.store.store import Store
from tests.fakes import elementwise
from tests.synthetic import SYSTEM, copied, corpus, made_up_measurement, trained_home

Parse = Callable[..., ModelProto]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A separate home with a filled store and a champion, because queries cache lowered models in it."""
    trained = trained_home(tmp_path_factory.getbasetemp() / "trained-home")
    return copied(trained, tmp_path_factory.mktemp("api") / "home")


@pytest.fixture(scope="module")
def cost_model(home: Home) -> CostModel:
    """A cost model of the synthetic system."""
    return CostModel.load(SYSTEM.name, home=home)


@pytest.fixture(scope="module")
def convolution(parse: Parse) -> ModelProto:
    """A small model with a symbolic batch."""
    return parse(
        "(float[N, 16, 28, 28] x) => (float[N, 32, 28, 28] y) { y = Conv <kernel_shape = [1, 1]> (x, w) }",
        weights={"w": (32, 16, 1, 1)},
    )


def test_a_file_is_priced(cost_model: CostModel, light_models: Mapping[str, Path]) -> None:
    """A file is priced by its path, as str or Path, with the same result."""
    path = light_models["resnet50"]
    estimate = cost_model.predict(path)
    assert isinstance(estimate, Estimate)
    assert (estimate.model, estimate.system, cost_model.system) == ("light_resnet50", SYSTEM.name, SYSTEM.name)
    assert estimate.latency_us > 0
    assert cost_model.predict(str(path)) == estimate
    json.dumps(estimate.to_dict(), allow_nan=False)


def test_a_model_in_memory_is_priced(cost_model: CostModel, light_models: Mapping[str, Path]) -> None:
    """A proto, and the result of `read_model`, cost what the file costs."""
    path = light_models["squeezenet"]
    expected = cost_model.predict(path).latency_us
    assert cost_model.predict(onnx.load(path)).latency_us == expected
    assert cost_model.predict(read_model(path)).latency_us == expected
    with pytest.raises(ValueError, match="give batch, shapes and values to read_model"):
        cost_model.predict(read_model(path), batch=8)


def test_batch_and_shapes_are_passed_on(cost_model: CostModel, convolution: ModelProto) -> None:
    """A larger batch costs more, by either option; without one it is 1, with a warning."""
    one, eight = (cost_model.predict(convolution, batch=batch) for batch in (1, 8))
    assert eight.latency_us > one.latency_us
    assert cost_model.predict(convolution, shapes={"x": (8, 16, 28, 28)}).latency_us == eight.latency_us
    unsaid = cost_model.predict(convolution)
    assert unsaid.latency_us == one.latency_us
    assert any("symbolic" in warning for warning in unsaid.warnings)


def test_granularity_and_composition_are_passed_on(cost_model: CostModel, light_models: Mapping[str, Path]) -> None:
    """Granularity and composition are in the estimate and take effect."""
    path = light_models["inception_v1"]
    coarse = cost_model.predict(path, granularity=5)
    assert coarse.granularity == 5
    assert len(coarse.layers) < len(cost_model.predict(path).layers)
    parallel = cost_model.predict(path, composition="parallel")
    assert parallel.latency_us < cost_model.predict(path).latency_us
    with pytest.raises(RuleError, match="no composition rule"):
        cost_model.predict(path, composition="fastest")
    with pytest.raises(ValueError, match="granularity must be at least 1"):
        cost_model.predict(path, granularity=0)


def test_the_best_granularity_is_found(cost_model: CostModel, light_models: Mapping[str, Path]) -> None:
    """`auto` uses the whole model if measured, without construction error, and single layers otherwise."""
    known = cost_model.predict(light_models["squeezenet"], granularity="auto")
    assert known.granularity == len(cost_model.predict(light_models["squeezenet"]).layers)
    assert (len(known.layers), known.coverage["measured"]) == (1, 1.0)
    assert known.interval_us[1] / known.latency_us == pytest.approx(1.05)  # as in every synthetic measurement
    new = cost_model.predict(light_models["resnet50"], granularity="auto")
    assert (new.granularity, new.latency_us) == (1, cost_model.predict(light_models["resnet50"]).latency_us)
    for estimate in (known, new):
        assert any("taken" in warning for warning in estimate.warnings)


def test_the_cover_is_passed_on(cost_model: CostModel, light_models: Mapping[str, Path]) -> None:
    """The cover is in the estimate; if only single layers are measured, these are used."""
    path = light_models["squeezenet"]
    fixed, cheapest = (cost_model.predict(path, granularity=3, cover=cover) for cover in ("fixed", "cheapest"))
    assert (fixed.cover, cheapest.cover) == ("fixed", "cheapest")
    assert fixed.coverage["measured"] < cheapest.coverage["measured"] == 1
    assert cheapest.layers == cost_model.predict(path).layers
    with pytest.raises(ValueError, match="cover must be one of fixed, cheapest"):
        cost_model.predict(path, cover="widest")
    with pytest.raises(ValueError, match="auto chooses among fixed cuts"):
        cost_model.predict(path, granularity="auto", cover="cheapest")


def test_measurements_can_be_left_out(cost_model: CostModel, light_models: Mapping[str, Path]) -> None:
    """Measurements can be ignored, so that the regressor predicts everything."""
    assert cost_model.predict(light_models["squeezenet"]).coverage["measured"] == 1
    assert cost_model.predict(light_models["squeezenet"], measured=False).coverage["measured"] == 0


def test_many_models_come_back_in_order(cost_model: CostModel, light_models: Mapping[str, Path]) -> None:
    """Many models are priced in order, each as if alone."""
    paths = [light_models[name] for name in ("vgg19", "squeezenet", "vgg19")]
    estimates = cost_model.predict_many(paths)
    assert estimates == [cost_model.predict(path) for path in paths]
    assert cost_model.predict_many([]) == []


def test_layers_are_priced_without_any_file(cost_model: CostModel, home: Home) -> None:
    """Layers are priced in order, measured ones by measurement and others by the regressor."""
    measured = next(iter(corpus(home.cache)["light_vgg19"].decomposition.unique.values()))
    new = elementwise(1, 64, 40, 40)
    costs = cost_model.predict_layers([new, measured, new])
    assert [cost.source for cost in costs] == ["predicted", "measured", "predicted"]
    assert costs[0] == costs[2]


def test_a_described_layer_is_the_one_in_a_model(cost_model: CostModel, parse: Parse) -> None:
    """A described convolution has the signature of the one in a model file."""
    described = layer("Conv", (1, 32, 28, 28), weight(64, 32, 3, 3), pads=[1, 1, 1, 1], kernel_shape=[3, 3])
    (found,) = cost_model.sequences(described)
    model = parse(
        "(float[1,32,28,28] x) => (float[1,64,26,26] z) "
        "{ y = Conv<pads = [1,1,1,1], kernel_shape = [3,3]>(x, w) z = MaxPool<kernel_shape = [3,3]>(y) }",
        weights={"w": (64, 32, 3, 3)},
        opset=18,
    )
    assert found.signature in {
        segment.sequence.signature for segment in cost_model.decompose(read_model(model)).segments
    }


def test_a_block_is_lowered_as_a_whole(cost_model: CostModel) -> None:
    """In a block, activations are fused, and layout changes at its borders are left out."""
    conv = layer("Conv", (1, 32, 28, 28), weight(64, 32, 3, 3), pads=[1, 1, 1, 1])
    relu, pool = layer("Relu", (1, 64, 28, 28)), layer("MaxPool", (1, 64, 28, 28), kernel_shape=[2, 2])
    assert [found.kind for found in cost_model.sequences([conv, relu, pool])] == ["Conv", "MaxPool"]
    apart = [found for block in (conv, relu, pool) for found in cost_model.sequences(block)]
    assert [found.kind for found in apart] == ["Conv", "Relu", "MaxPool"]
    (together,) = cost_model.predict_layers([[conv, relu, pool]])
    assert together.kind == "Conv+MaxPool"
    parts = cost_model.predict_layers(cost_model.sequences([conv, relu, pool]))
    assert together.latency_us == pytest.approx(sum(part.latency_us for part in parts))


def test_sequences_that_were_cut_before_stand_among_descriptions(cost_model: CostModel) -> None:
    """A block may mix sequences and descriptions."""
    relu = layer("Relu", (1, 8))
    (known,) = cost_model.sequences(layer("Tanh", (1, 8)))
    assert [found.kind for found in cost_model.sequences([relu, known, relu])] == ["Relu", "Tanh", "Relu"]


def test_networks_of_described_layers(cost_model: CostModel) -> None:
    """Each network has a latency, and two copies of a layer cost more than one."""
    conv = layer("Conv", (1, 32, 28, 28), weight(32, 32, 3, 3), pads=[1, 1, 1, 1])
    relu = layer("Tanh", (1, 32, 28, 28))
    found = cost_model.predict_networks([conv, relu], [[0, 1], [0, 1, 0, 1]])
    assert found.latency_us[1] > found.latency_us[0] > 0
    assert len(found) == 2


def test_a_table_of_a_search_space(cost_model: CostModel, tmp_path: Path) -> None:
    """A latency table has an entry for each choice, 0 for an empty one, and survives its file."""
    convs = {f"k{k}": layer("Conv", (1, 32, 28, 28), weight(32, 32, k, k), pads=[k // 2] * 4) for k in (1, 3, 5)}
    head = layer("GlobalAveragePool", (1, 32, 28, 28))
    table = cost_model.latency_table({"first": {**convs, "skip": None}, "second": convs}, fixed=[head])
    assert table.choices == (("k1", "k3", "k5", "skip"), ("k1", "k3", "k5"))
    assert table.latency_us[0, 3] == 0
    assert np.isnan(table.latency_us[1, 3])
    skipped, whole = table.networks_us(np.array([[3, 0], [2, 0]]))
    assert 0 < table.fixed_us < skipped < whole
    table.save(tmp_path / "table.npz")
    again = LatencyTable.load(tmp_path / "table.npz")
    assert (again.blocks, again.choices, again.system) == (table.blocks, table.choices, SYSTEM.name)
    np.testing.assert_array_equal(again.latency_us, table.latency_us)
    with pytest.raises(ValueError, match="a choice is not in the table"):
        table.networks_us(np.array([[0, 3]]))


def test_a_torch_module_is_priced_with_an_example(cost_model: CostModel) -> None:
    """A torch module costs what its exported file costs, and keeps its training mode."""
    torch = pytest.importorskip("torch")
    module = torch.nn.Sequential(torch.nn.Conv2d(3, 16, 3, padding=1), torch.nn.ReLU(), torch.nn.Dropout())
    module[0].eval()
    estimate = cost_model.predict(module, example=torch.zeros(2, 3, 32, 32))
    assert not module[0].training
    assert [one.op_type for one in estimate.layers if not one.op_type.startswith("Reorder")] == ["Conv"]
    assert module.training
    with pytest.raises(ValueError, match="give a torch module with an example of its input"):
        cost_model.predict(module)


def test_inputs_of_a_torch_module_may_be_nested_or_any_number(cost_model: CostModel) -> None:
    """A tuple input stays one input; variable positional inputs are passed by position."""
    torch = pytest.importorskip("torch")

    class Sum(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, *images: object) -> object:
            return torch.tanh(sum(images))

    class Pair(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: object, state: object) -> object:
            return torch.tanh(x + state[0] * state[1])

    image = torch.zeros(1, 3, 32, 32)
    for example in (image, (image, image)):
        assert cost_model.predict(Sum(), example=example).latency_us > 0
    assert cost_model.predict(Pair(), example=(image, (image, image))).latency_us > 0


def test_without_a_regressor_unmeasured_sequences_have_no_cost(home: Home, tmp_path: Path) -> None:
    """Unmeasured layers are named, not priced at 0; a whole model needs the partial option."""
    untrained = CostModel.load(SYSTEM.name, store=home.store_url, home=Home(tmp_path))
    with pytest.raises(UnpricedLayersError, match="Relu"):
        untrained.predict_layers([elementwise(1, 64, 40, 40)])
    (resnet,) = (item for name, item in corpus(home.cache).items() if name == "light_resnet50")
    with pytest.raises(UnpricedLayersError):
        untrained.predict(resnet.model)
    assert untrained.predict(resnet.model, partial=True).unpriced


def test_the_default_home_is_found(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """The default home is that of COSTMODEL_HOME."""
    monkeypatch.setenv("COSTMODEL_HOME", str(home.root))
    assert CostModel.load(SYSTEM.name).system == SYSTEM.name


def test_a_host_that_was_never_measured_says_so(tmp_path: Path) -> None:
    """Without a name the system is this host, and the error says how to measure it."""
    with pytest.raises(UnknownSystemError, match="run `costmodel bench` or"):
        CostModel.load(home=Home(_made(tmp_path)))


def _made(root: Path) -> Path:
    (root / "data").mkdir()
    return root


def test_every_error_is_one_of_ours(cost_model: CostModel, parse: Parse, tmp_path: Path) -> None:
    """Every fault of a model raises a `CostModelError`."""
    (tmp_path / "empty.onnx").touch()
    with pytest.raises(ModelReadError):
        cost_model.predict(tmp_path / "empty.onnx")
    with pytest.raises(ShapeError):
        cost_model.predict(parse("(float[1, T] x) => (float[1, T] y) { y = Relu(x) }"))
    with pytest.raises(CostModelError):
        cost_model.predict(parse("(float[1] x) => (float[1] y) { y = no.such.Operator(x) }", domains=("no.such",)))


def test_new_measurements_are_used_at_once(home: Home, tmp_path: Path) -> None:
    """A loaded cost model uses new measurements at once."""
    own = copied(home, tmp_path / "home")
    cost_model = CostModel.load(SYSTEM.name, home=own)
    new = elementwise(1, 64, 41, 41)
    (before,) = cost_model.predict_layers([new])
    Store(own.store_url).put_measurement(SYSTEM.name, made_up_measurement(new.signature, 123.0), new)
    (after,) = cost_model.predict_layers([new])
    assert (before.source, after.source) == ("predicted", "measured")
    assert after.latency_us == pytest.approx(123.0)


def test_a_model_is_cut_once(cost_model: CostModel, light_models: Mapping[str, Path]) -> None:
    """A decomposed model is cached by content, name, shapes and granularity."""
    model = read_model(light_models["squeezenet"])
    first = cost_model.decompose(model)
    assert cost_model.decompose(model) is first
    assert cost_model.decompose(read_model(light_models["squeezenet"])) is first
    assert cost_model.decompose(model, 2).granularity == 2
    renamed = read_model(light_models["squeezenet"], name="another")
    assert cost_model.decompose(renamed).model == "another"
    assert cost_model.predict(renamed).latency_us == cost_model.predict(model).latency_us


def test_capacity_is_planned(cost_model: CostModel, convolution: ModelProto) -> None:
    """The latency at each batch size is that of a prediction; contradictions are a TrafficError."""
    found = cost_model.capacity(convolution, slo="p99=50ms", arrivals_per_s=120.0, batch_policy="max=2", usd_per_hour=1)
    assert [one.latency_us for one in found.latencies] == [
        cost_model.predict(convolution, batch=size).latency_us for size in (1, 2)
    ]
    assert (found.replicas, found.result.meets, found.usd_per_hour) == (1, True, 1.0)
    with pytest.raises(TrafficError, match="needs a latency objective"):
        cost_model.capacity(convolution)
    with pytest.raises(ValueError, match="write it like p99=50ms"):
        cost_model.capacity(convolution, slo="fast")


def test_settings_are_tuned(cost_model: CostModel, convolution: ModelProto) -> None:
    """Settings are ranked by prediction; those of another host are not measured on this one."""
    found = cost_model.tune(convolution, objective="throughput", max_batch=2, measure=False)
    assert (found.best.setting.runtime, found.best.setting.level) == ("onnxruntime", "all")
    assert {one.setting.batch for one in found.settings} == {1, 2}
    one = next(
        one
        for one in found.settings
        if one.setting == replace(one.setting, threads=1, batch=2, sessions=1, level="all")
    )
    assert one.predicted is not None
    assert one.predicted.latency_us == cost_model.predict(convolution, batch=2).latency_us
    with pytest.raises(TuningError, match="add --no-measure"):
        cost_model.tune(convolution)
    with pytest.raises(ValueError, match="write it like p99=50ms"):
        cost_model.tune(convolution, slo="fast", measure=False)
