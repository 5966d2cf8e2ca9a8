"""The cache of lowered graphs, keyed by content."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from onnx import ModelProto

from costmodel.errors import LoweringError
from costmodel.ir.graph import LayerGraph
from costmodel.onnx_io.model import Model, read_model
from costmodel.runtimes.lowering_cache import lower_cached
from costmodel.runtimes.ort.adapter import OnnxRuntime
from tests.fakes import FakeRuntime

TEXT = """(float[1,8,4,4] x) => (float[1,8,4,4] y) <int64[1] axes = {1}> {
    a = Relu(x)
    b = Clip(a, low, high)
    c = Unsqueeze(b, axes)
    d = Squeeze(c, axes)
    y = HardSigmoid<alpha = 0.3>(d)
}"""


@pytest.fixture
def model(parse: Callable[..., ModelProto]) -> Model:
    """A small model with attributes, small constants and weights."""
    return read_model(parse(TEXT, weights={"low": (), "high": ()}), name="small")


def test_a_model_is_lowered_once(model: Model, tmp_path: Path) -> None:
    """A model is lowered once, and the cached graph is equal."""
    runtime = FakeRuntime()
    graph = lower_cached(runtime, model, "all", tmp_path / "new")
    assert lower_cached(runtime, model, "all", tmp_path / "new") == graph == runtime.lower(model, "all")
    assert runtime.lowered == ["small", "small"]


@pytest.mark.parametrize("name", ["squeezenet", "inception_v1"])
def test_a_real_graph_comes_out_of_the_cache_as_it_went_in(
    name: str, light_models: dict[str, Path], runtime: OnnxRuntime, tmp_path: Path
) -> None:
    """Layers, types, constants, attributes and sources of a real graph survive the cache."""
    real = read_model(light_models[name])
    graph = lower_cached(runtime, real, "all", tmp_path)
    assert lower_cached(_Refusing(), real, "all", tmp_path) == graph


class _Refusing(OnnxRuntime):
    def lower(self, model: Model, level: str) -> LayerGraph:
        raise AssertionError("it is in the cache")


def test_what_a_graph_depends_on_is_in_its_key(model: Model, parse: Callable[..., ModelProto], tmp_path: Path) -> None:
    """Level, runtime, version and shapes are part of the key; name and weights are not."""
    runtime = FakeRuntime()
    lower_cached(runtime, model, "all", tmp_path)
    lower_cached(runtime, replace(model, name="other"), "all", tmp_path)
    assert len(runtime.lowered) == 1
    lower_cached(runtime, model, "none", tmp_path)
    lower_cached(
        runtime, read_model(parse(TEXT.replace("[1,", "[2,"), weights={"low": (), "high": ()})), "all", tmp_path
    )
    assert len(runtime.lowered) == 3
    other = FakeRuntime(version="2.0")
    lower_cached(other, model, "all", tmp_path)
    assert len(other.lowered) == 1


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"null", b"1", b'"text"', b"{}", b"\xff\xfe", b'{"layers": [1]}', b'{"layers": {"a": 1}}'],
)
def test_a_damaged_file_is_ignored_and_replaced(content: bytes, model: Model, tmp_path: Path) -> None:
    """A damaged file is ignored and replaced."""
    runtime = FakeRuntime()
    graph = lower_cached(runtime, model, "all", tmp_path)
    (file,) = (path for path in tmp_path.rglob("*") if path.is_file())
    file.write_bytes(content)
    assert lower_cached(runtime, model, "all", tmp_path) == graph
    assert lower_cached(runtime, model, "all", tmp_path) == graph
    assert len(runtime.lowered) == 2


@pytest.mark.parametrize("part", ["layers", "types", "constants", "inputs", "outputs", "opset", "data_dependent"])
@pytest.mark.parametrize("value", [None, 5, [5], {"x": 5}, {"x": [5]}, [{"name": 5}]])
def test_a_file_with_a_damaged_part_never_ends_the_job(part: str, value: object, model: Model, tmp_path: Path) -> None:
    """A part of the wrong type makes the file ignored, or is read as written."""
    lower_cached(FakeRuntime(), model, "all", tmp_path)
    (file,) = (path for path in tmp_path.rglob("*") if path.is_file())
    file.write_text(json.dumps({**json.loads(file.read_text()), part: value}))
    lower_cached(FakeRuntime(), model, "all", tmp_path)


def test_a_cache_that_cannot_be_written_costs_time_only(model: Model, tmp_path: Path) -> None:
    """If the cache cannot be written, lowering still works and leaves nothing behind."""
    (tmp_path / "file").write_text("")
    runtime = FakeRuntime()
    for _ in range(2):
        assert lower_cached(runtime, model, "all", tmp_path / "file") == lower_cached(runtime, model, "all", tmp_path)
    assert len(runtime.lowered) == 3


def test_a_write_that_fails_half_way_leaves_nothing(model: Model, tmp_path: Path) -> None:
    """A failed write leaves no partial file."""
    lower_cached(FakeRuntime(), model, "all", tmp_path)
    (file,) = (path for path in tmp_path.rglob("*") if path.is_file())
    file.unlink()
    file.mkdir()  # a folder that no file can replace
    lower_cached(FakeRuntime(), model, "all", tmp_path)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_model_that_cannot_be_lowered_leaves_no_trace(model: Model, tmp_path: Path) -> None:
    """A refusal is not cached."""

    class Refusing(FakeRuntime):
        def lower(self, model: Model, level: str) -> LayerGraph:
            raise LoweringError(f"{model.name} is refused")

    for _ in range(2):
        with pytest.raises(LoweringError, match="small is refused"):
            lower_cached(Refusing(), model, "all", tmp_path)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
