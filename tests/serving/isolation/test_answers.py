"""Answers of readers are small, strict JSON, and safe to display."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from onnx import ModelProto, TensorProto, helper

from costmodel.ir.graph import Layer, LayerGraph, TensorType
from costmodel.ir.sequence import LayerSequence
from costmodel.serving.isolation.limits import Limits
from costmodel.serving.isolation.names import NAME_LENGTH, SENTENCE_LENGTH, clean_name, clean_sentence
from tests.serving.isolation.readers import Reader, started

Parse = Callable[..., ModelProto]
LIMITS = Limits(memory_bytes=1 << 30, cpu_s=60, wall_s=60.0)


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    """A reader with the limits of the service."""
    with started(tmp_path_factory.mktemp("reader"), LIMITS) as reader:
        yield reader


def _lowered(reader: Reader, model: ModelProto) -> dict[str, object]:
    path = reader.models / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return reader.lower(path)


def _chain(count: int, attributes: Callable[[int], dict[str, object]] = lambda _: {}, op: str = "Relu") -> LayerGraph:
    """Returns a chain of layers that differ in their attributes."""
    layers = tuple(
        Layer(f"/model/layers.{i}/self_attention/projection/{op}_{i}", op, "", 17,
              {name: {"f": value} for name, value in attributes(i).items()}, (f"v{i}",), (f"v{i + 1}",))
        for i in range(count)
    )  # fmt: skip
    types = {f"v{i}": TensorType("float32", (1, 512, 4096)) for i in range(count + 1)}
    return LayerGraph(layers, types, {}, ("v0",), (f"v{count}",), 17)


def test_as_many_layers_as_are_accepted_fit_into_an_answer(reader: Reader) -> None:
    """20,000 different layers with typical exported names need less than half of the size limit of answers."""
    graph = _chain(LIMITS.layers, lambda i: {"alpha": i + 0.5, "beta": 0.25, "gamma": 1.0 / (i + 1)}, "LeakyRelu")
    found = reader.ask(name="large", graph=graph.to_dict(), granularity=1)
    assert len(found["segments"]) == len(found["sequences"]) == LIMITS.layers
    assert len(json.dumps(found)) < LIMITS.answer_bytes / 2


def test_more_than_an_answer_may_be_is_refused(tmp_path: Path) -> None:
    """A reader refuses an answer above the limit in one sentence and continues."""
    with started(tmp_path / "reader", replace(LIMITS, answer_bytes=1 << 20)) as reader:
        graph = _chain(5000, lambda i: {"alpha": i + 0.5})
        found = reader.ask(name="large", graph=graph.to_dict(), granularity=1)
        assert found["error"] == "ModelError"
        assert found["message"].startswith("large has ")
        assert "send parts of it" in found["message"]
        assert "error" not in reader.ask(name="small", graph=_chain(10).to_dict(), granularity=1)


def test_a_layer_with_long_attributes_is_refused(reader: Reader) -> None:
    """A tree ensemble of a million nodes is refused with the size of its attributes and the limit."""
    count = 25_000
    node = helper.make_node(
        "TreeEnsembleRegressor", ["x"], ["y"], domain="ai.onnx.ml", n_targets=1,
        nodes_treeids=list(range(count)), nodes_nodeids=[0] * count, nodes_featureids=[0] * count,
        nodes_modes=["LEAF"] * count, nodes_values=[0.0] * count, nodes_truenodeids=[0] * count,
        nodes_falsenodeids=[0] * count, target_treeids=list(range(count)), target_nodeids=[0] * count,
        target_ids=[0] * count, target_weights=np.linspace(0, 1, count).tolist(),
    )  # fmt: skip
    ports = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4])]
    ports.append(helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 1]))
    graph = helper.make_graph([node], "trees", ports[:1], ports[1:])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    found = _lowered(reader, helper.make_model(graph, ir_version=9, opset_imports=opsets))
    assert found["error"] == "LoweringError"
    assert "1024 KiB are accepted" in str(found["message"])


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf"), 1e308])
def test_attributes_that_are_not_finite(reader: Reader, parse: Parse, value: float) -> None:
    """Infinite and NaN attributes are written as text in JSON and restored."""
    model = parse("(float[2,3] x) => (float[2,3] y) { y = LeakyRelu(x) }")
    model.graph.node[0].attribute.append(helper.make_attribute("alpha", 0.5))
    model.graph.node[0].attribute[0].f = np.float32(value) if abs(value) != 1e308 else np.inf
    found = _lowered(reader, model)
    (text,) = found["sequences"]
    sequence = LayerSequence.from_text(text)
    assert sequence.text == text
    expected = "NaN" if np.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    assert sequence.layers[0].attributes == {"alpha": {"f": expected}}


def test_unreadable_names(reader: Reader, parse: Parse) -> None:
    """Long names, control characters and bidirectional marks become short, printable and still distinct."""
    model = parse("(float[2,3] x) => (float[2,3] y) { a = Relu(x) b = Tanh(a) c = Neg(b) y = Sigmoid(c) }")
    names = ["n" * 1_000_000, "n" * 1_000_000 + "m", "nul\0, escape\x1b[31m", "right\u202eto left"]
    for node, name in zip(model.graph.node, names, strict=True):
        node.name = name
    found = _lowered(reader, model)
    shown = [name for _, layers, _ in found["segments"] for name in layers]
    assert len(set(shown)) == 4
    assert all(name.isprintable() and len(name) <= NAME_LENGTH for name in shown)
    assert _lowered(reader, model) == found


@pytest.mark.parametrize("name", ["half of a pair \ud800", "nul\0", "m" * 100_000])
def test_models_with_such_names(reader: Reader, parse: Parse, name: str) -> None:
    """The name of an untrusted model is cleaned like the names in it, in answers and messages."""
    path = reader.models / "model.onnx"
    path.write_bytes(parse("(float[2,3] x) => (float[2,3] y) { y = Relu(x) }").SerializeToString())
    model = reader.lower(path, name=name)["model"]
    assert model == clean_name(name)
    model.encode()
    path.write_bytes(b"nothing")
    message = reader.lower(path, name=name)["message"]
    assert message.startswith(model)
    assert message.isprintable()


def test_operators_with_such_names(reader: Reader) -> None:
    """An operator with an unprintable name is refused as unknown, in a printable message."""
    graph = _chain(2).to_dict()
    graph["layers"][1]["op"] = "Relu\ud800\0"
    found = reader.ask(name="odd", graph=graph, granularity=1)
    assert found["error"] == "LoweringError"
    assert found["message"].isprintable()


def test_sentences_that_quote_a_model_end(reader: Reader, parse: Parse) -> None:
    """An error message that names every layer of a large model is truncated."""
    model = parse("(float[2,3] x) => (float[2,3] y) { y = Relu(x) }")
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "\x1b" + "s" * 100_000
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_param = "t"
    found = _lowered(reader, model)
    assert len(found["message"]) <= SENTENCE_LENGTH
    assert found["message"].isprintable()


def test_a_constant_with_too_many_dimensions(reader: Reader, parse: Parse) -> None:
    """A constant with 100,000 dimensions is refused without computing their product."""
    model = parse("(float[2,3] x) => (float[2,3] y) { y = Add(x, w) }")
    model.graph.initializer.add(name="w", data_type=TensorProto.FLOAT, dims=[2**31 - 1] * 100_000)
    found = _lowered(reader, model)
    assert found["error"] == "ShapeError"
    assert "100000 dimensions" in found["message"]


_texts = st.text(st.characters(), max_size=300)  # includes lone surrogates


@given(_texts)
def test_clean_names_are_names(text: str) -> None:
    """Cleaned names are printable, short and valid UTF-8; names that are so already are unchanged."""
    name = clean_name(text)
    assert name.isprintable()
    assert len(name) <= NAME_LENGTH
    name.encode()
    assert clean_name(name) == name
    assert (name == text) == (text.isprintable() and len(text) <= NAME_LENGTH)


@given(_texts, _texts)
def test_different_names_stay_different(one: str, other: str) -> None:
    """Different names stay different after replacement and truncation."""
    assert (clean_name(one) == clean_name(other)) == (one == other)


@given(_texts.map(lambda text: text * 10))
def test_clean_sentences_are_sentences(text: str) -> None:
    """Cleaned messages are printable and of readable length."""
    sentence = clean_sentence(text)
    assert sentence.isprintable()
    assert len(sentence) <= SENTENCE_LENGTH
    assert clean_sentence(sentence) == sentence


def test_a_library_s_source_is_no_part_of_an_answer() -> None:
    """Source paths and function names of libraries are removed from messages; layer names are kept."""
    source = "/onnxruntime_src/onnxruntime/core/reshape.h:23 virtual onnxruntime::common::Status)"
    said = f"m: Reshape failed ({source} in /features/0/conv"
    assert clean_sentence(said) == "m: Reshape failed (its source in /features/0/conv"
