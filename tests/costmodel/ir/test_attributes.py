"""Encoding of attributes as JSON."""

import json
from collections.abc import Callable
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from onnx import AttributeProto, GraphProto, ModelProto, TensorProto, TypeProto, ValueInfoProto, helper, numpy_helper

from costmodel.ir.attributes import captured_names, decode_attribute, encode_attribute, subgraphs

_FLOATS = st.floats(width=32, allow_nan=False)  # NaN is tested below, because it differs from itself
_VALUES = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    _FLOATS,
    st.text(),
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1),
    st.lists(_FLOATS, min_size=1),
    st.lists(st.text(), min_size=1),
)


@given(_VALUES)
def test_plain_attributes_survive_json(value: object) -> None:
    """Numbers, strings and lists of them survive JSON."""
    attribute = helper.make_attribute("a", value)
    assert decode_attribute("a", json.loads(json.dumps(encode_attribute(attribute), allow_nan=False))) == attribute


def test_what_is_no_number_survives_json() -> None:
    """NaN and infinities, alone, in lists and in one-element tensors, are text in JSON and numbers again after it."""
    numbers = [float("nan"), float("inf"), float("-inf"), 0.5]
    attributes = [helper.make_attribute("a", number) for number in numbers]
    attributes.append(helper.make_attribute("a", numbers))
    attributes += [helper.make_attribute("a", numpy_helper.from_array(np.array([n], np.float32))) for n in numbers]
    for attribute in attributes:
        text = json.dumps(encode_attribute(attribute), allow_nan=False)
        assert encode_attribute(decode_attribute("a", json.loads(text))) == encode_attribute(attribute)
        assert decode_attribute("a", json.loads(text)).SerializeToString() == attribute.SerializeToString()


@pytest.mark.parametrize("dims", [[1], [2]])
def test_a_tensor_elsewhere_is_not_looked_for(dims: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The values of external tensors are unknown, in attributes and in subgraphs."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "weights").write_bytes(np.array([7, 8]).tobytes())
    tensor = TensorProto(name="t", dims=dims, data_type=TensorProto.INT64, data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="weights")
    assert encode_attribute(helper.make_attribute("a", tensor)) == {"t": {"dtype": "int64", "shape": dims}}
    node = helper.make_node("Constant", [], ["o"], value=tensor)
    body = GraphProto(name="body", node=[node], initializer=[tensor], output=[ValueInfoProto(name="o")])
    (kept,) = subgraphs({"g": encode_attribute(helper.make_attribute("a", body))})
    assert b"weights" not in kept.SerializeToString()


def test_a_float_has_the_text_of_its_decimal() -> None:
    """0.1 in single precision is written 0.1, however it was computed."""
    assert encode_attribute(helper.make_attribute("a", 0.1)) == {"f": 0.1}
    assert encode_attribute(helper.make_attribute("a", float(np.float32(0.1)))) == {"f": 0.1}


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int64", "int8", "bool"])
def test_a_single_value_is_kept(dtype: str) -> None:
    """A one-element tensor, such as ConstantOfShape's value, keeps its value in every type."""
    attribute = helper.make_attribute("value", numpy_helper.from_array(np.array([1]).astype(dtype)))
    again = decode_attribute("value", json.loads(json.dumps(encode_attribute(attribute))))
    assert again.t.data_type == attribute.t.data_type
    assert numpy_helper.to_array(again.t).tolist() == [1]


def test_a_weight_is_reduced_to_its_type() -> None:
    """Float tensors that differ in their values are encoded alike."""
    one, other = (
        encode_attribute(helper.make_attribute("value", numpy_helper.from_array(np.full((3, 4), fill, np.float32))))
        for fill in (1, 2)
    )
    assert one == other
    assert list(decode_attribute("value", one).t.dims) == [3, 4]


def test_unknown_kinds_are_refused() -> None:
    """An attribute of a type proto is refused."""
    with pytest.raises(ValueError, match="TYPE_PROTO"):
        encode_attribute(AttributeProto(name="a", type=AttributeProto.TYPE_PROTO, tp=TypeProto()))


NESTED = """(int64 n, bool c, float[3] x, float[3] k) => (float[3] y)
{{ y = Loop (n, c, x) <body = g (int64 {i}, bool {d}, float[{symbol}] {s}) => (bool {e}, float[{symbol}] {t})
   {{ {e} = Identity({d})
     {t} = If ({d}) <then_branch = h () => (float[3] {u}) {{ {u} = Add({s}, k) }},
                   else_branch = f () => (float[3] {v}) {{ {v} = Mul({s}, x) }}> }}> }}"""


def test_names_inside_a_body_do_not_matter(parse: Callable[..., ModelProto]) -> None:
    """Subgraphs that differ in local names or symbolic dimensions are encoded alike."""
    texts = set()
    for names in (dict.fromkeys("idsetuv", ""), dict.fromkeys("idsetuv", "other_")):
        renamed = {key: prefix + key for key, prefix in names.items()}
        node = parse(NESTED.format(**renamed, symbol=renamed["i"])).graph.node[0]
        captured = captured_names(node)
        assert captured == ["k", "x"]
        texts.add(json.dumps(encode_attribute(node.attribute[0], {name: f"c{i}" for i, name in enumerate(captured)})))
    assert len(texts) == 1


def test_weights_inside_a_body_do_not_matter(parse: Callable[..., ModelProto]) -> None:
    """Subgraphs that differ in weights are encoded alike; those that differ in small integers are not."""

    def encoded(name: str, values: np.ndarray) -> dict[str, object]:
        node = parse(
            "(bool c) => (float y) { y = If(c) <then_branch = g () => (float a) { a = Add(w, w) }> }"
        ).graph.node[0]
        node.attribute[0].g.initializer.append(numpy_helper.from_array(values, name))
        return encode_attribute(node.attribute[0])

    assert encoded("w", np.zeros(5, np.float32)) == encoded("w", np.ones(5, np.float32))
    assert encoded("w", np.zeros(5, np.int64)) != encoded("w", np.ones(5, np.int64))
    (body,) = subgraphs({"then_branch": encoded("w", np.zeros(5, np.float32))})
    assert body.initializer[0].data_location == TensorProto.EXTERNAL


def test_how_a_constant_is_stored_does_not_matter(parse: Callable[..., ModelProto]) -> None:
    """Raw bytes and typed fields are encoded alike."""
    node = parse("(bool c) => (int64 y) { y = If(c) <then_branch = g () => (int64 a) { a = Add(w, w) }> }").graph.node[
        0
    ]
    texts = set()
    for tensor in (
        helper.make_tensor("w", TensorProto.INT64, [2], [3, 4]),
        numpy_helper.from_array(np.array([3, 4]), "w"),
    ):
        del node.attribute[0].g.initializer[:]
        node.attribute[0].g.initializer.append(tensor)
        texts.add(json.dumps(encode_attribute(node.attribute[0])))
    assert len(texts) == 1
