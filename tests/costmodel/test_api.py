"""In-process queries: what a program that imports costmodel sees."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import onnx
import pytest
from onnx import ModelProto

from costmodel import CostModel, CostModelError, Estimate, read_model
from costmodel.errors import HoleError, ModelReadError, RuleError, ShapeError, UnknownSystemError
from costmodel.home import Home
from costmodel.store import Store
from tests.fakes import elementwise
from tests.synthetic import SYSTEM, copied, corpus, made_up_measurement, trained_home

Parse = Callable[..., ModelProto]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A home with a filled store and a champion, its own, because queries cache what they lower."""
    trained = trained_home(tmp_path_factory.getbasetemp() / "trained-home")
    return copied(trained, tmp_path_factory.mktemp("api") / "home")


@pytest.fixture(scope="module")
def cost_model(home: Home) -> CostModel:
    """Of the made-up system."""
    return CostModel.load(SYSTEM.name, home=home)


@pytest.fixture(scope="module")
def convolution(parse: Parse) -> ModelProto:
    """A small model with a symbolic batch."""
    return parse(
        "(float[N, 16, 28, 28] x) => (float[N, 32, 28, 28] y) { y = Conv <kernel_shape = [1, 1]> (x, w) }",
        weights={"w": (32, 16, 1, 1)},
    )


def test_a_file_is_priced(cost_model: CostModel, light_models: Mapping[str, Path]) -> None:
    """By its path, as text or as a path; the answer is the same."""
    path = light_models["resnet50"]
    estimate = cost_model.predict(path)
    assert isinstance(estimate, Estimate)
    assert (estimate.model, estimate.system, cost_model.system) == ("light_resnet50", SYSTEM.name, SYSTEM.name)
    assert estimate.latency_us > 0
    assert cost_model.predict(str(path)) == estimate
    json.dumps(estimate.to_dict(), allow_nan=False)


def test_a_model_in_memory_is_priced(cost_model: CostModel, light_models: Mapping[str, Path]) -> None:
    """As a proto, and as what `read_model` gave, it costs what its file costs."""
    path = light_models["squeezenet"]
    expected = cost_model.predict(path).latency_us
    assert cost_model.predict(onnx.load(path)).latency_us == expected
    assert cost_model.predict(read_model(path)).latency_us == expected
    with pytest.raises(ValueError, match="give batch and shapes to read_model"):
        cost_model.predict(read_model(path), batch=8)


def test_batch_and_shapes_are_passed_on(cost_model: CostModel, convolution: ModelProto) -> None:
    """A larger batch costs more, however it is given; without one it is 1, with a warning."""
    one, eight = (cost_model.predict(convolution, batch=batch) for batch in (1, 8))
    assert eight.latency_us > one.latency_us
    assert cost_model.predict(convolution, shapes={"x": (8, 16, 28, 28)}).latency_us == eight.latency_us
    unsaid = cost_model.predict(convolution)
    assert unsaid.latency_us == one.latency_us
    assert any("symbolic" in warning for warning in unsaid.warnings)


def test_granularity_and_composition_are_passed_on(cost_model: CostModel, light_models: Mapping[str, Path]) -> None:
    """They are in the estimate, and have an effect."""
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
    """A measured model is its own answer, with no error of construction in the interval; else single layers are."""
    known = cost_model.predict(light_models["squeezenet"], granularity="auto")
    assert known.granularity == len(cost_model.predict(light_models["squeezenet"]).layers)
    assert (len(known.layers), known.coverage["measured"]) == (1, 1.0)
    assert known.interval_us[1] / known.latency_us == pytest.approx(1.05)  # as of every made-up measurement
    new = cost_model.predict(light_models["resnet50"], granularity="auto")
    assert (new.granularity, new.latency_us) == (1, cost_model.predict(light_models["resnet50"]).latency_us)
    for estimate in (known, new):
        assert any("taken" in warning for warning in estimate.warnings)


def test_the_cover_is_passed_on(cost_model: CostModel, light_models: Mapping[str, Path]) -> None:
    """It is in the estimate; where single layers are measured, and nothing longer, these are taken."""
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
    """To see what the regressor would say."""
    assert cost_model.predict(light_models["squeezenet"]).coverage["measured"] == 1
    assert cost_model.predict(light_models["squeezenet"], measured=False).coverage["measured"] == 0


def test_many_models_come_back_in_order(cost_model: CostModel, light_models: Mapping[str, Path]) -> None:
    """Each as if it were asked for alone."""
    paths = [light_models[name] for name in ("vgg19", "squeezenet", "vgg19")]
    estimates = cost_model.predict_many(paths)
    assert estimates == [cost_model.predict(path) for path in paths]
    assert cost_model.predict_many([]) == []


def test_sequences_are_priced_without_any_file(cost_model: CostModel, home: Home) -> None:
    """What is measured by its measurement, what is new by the regressor, in the order asked."""
    measured = next(iter(corpus(home.cache)["light_vgg19"].decomposition.unique.values()))
    new = elementwise(1, 64, 40, 40)
    costs = cost_model.predict_sequences([new, measured, new])
    assert [cost is not None and cost.source for cost in costs] == ["predicted", "measured", "predicted"]
    assert costs[0] == costs[2]


def test_without_a_regressor_unmeasured_sequences_have_no_cost(home: Home, tmp_path: Path) -> None:
    """None, not 0; a whole model is refused unless a part of the answer will do."""
    untrained = CostModel.load(SYSTEM.name, store=home.store_url, home=Home(tmp_path))
    assert untrained.predict_sequences([elementwise(1, 64, 40, 40)]) == [None]
    (resnet,) = (item for name, item in corpus(home.cache).items() if name == "light_resnet50")
    with pytest.raises(HoleError):
        untrained.predict(resnet.model)
    assert untrained.predict(resnet.model, partial=True).unpriced


def test_the_default_home_is_found(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where COSTMODEL_HOME says."""
    monkeypatch.setenv("COSTMODEL_HOME", str(home.root))
    assert CostModel.load(SYSTEM.name).system == SYSTEM.name


def test_a_host_that_was_never_measured_says_so(tmp_path: Path) -> None:
    """Without a name the system is this host, and the message says how to measure it."""
    with pytest.raises(UnknownSystemError, match="run `costmodel bench --system"):
        CostModel.load(home=Home(_made(tmp_path)))


def _made(root: Path) -> Path:
    (root / "data").mkdir()
    return root


def test_every_error_is_one_of_ours(cost_model: CostModel, parse: Parse, tmp_path: Path) -> None:
    """A program catches `CostModelError` and has caught what a model can do wrong."""
    (tmp_path / "empty.onnx").touch()
    with pytest.raises(ModelReadError):
        cost_model.predict(tmp_path / "empty.onnx")
    with pytest.raises(ShapeError):
        cost_model.predict(parse("(float[1, T] x) => (float[1, T] y) { y = Relu(x) }"))
    with pytest.raises(CostModelError):
        cost_model.predict(parse("(float[1] x) => (float[1] y) { y = no.such.Operator(x) }", domains=("no.such",)))


def test_new_measurements_are_seen_at_once(home: Home, tmp_path: Path) -> None:
    """A cost model reads the store when it is asked, so that a running bench fills it."""
    own = copied(home, tmp_path / "home")
    cost_model = CostModel.load(SYSTEM.name, home=own)
    new = elementwise(1, 64, 41, 41)
    (before,) = cost_model.predict_sequences([new])
    Store(own.store_url).put_measurement(SYSTEM.name, made_up_measurement(new.signature, 123.0), new)
    (after,) = cost_model.predict_sequences([new])
    assert before is not None
    assert after is not None
    assert (before.source, after.source) == ("predicted", "measured")
    assert after.latency_us == pytest.approx(123.0)


def test_a_model_is_cut_once(cost_model: CostModel, light_models: Mapping[str, Path]) -> None:
    """Its answer stays what it was; another cut, name or shape of it is another question."""
    model = read_model(light_models["squeezenet"])
    first = cost_model.decompose(model)
    assert cost_model.decompose(model) is first
    assert cost_model.decompose(read_model(light_models["squeezenet"])) is first
    assert cost_model.decompose(model, 2).granularity == 2
    renamed = read_model(light_models["squeezenet"], name="another")
    assert cost_model.decompose(renamed).model == "another"
    assert cost_model.predict(renamed).latency_us == cost_model.predict(model).latency_us
