"""Reading a model's bytes without its weights."""

import contextlib
from pathlib import Path
from types import MappingProxyType

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from onnx import AttributeProto, GraphProto, ModelProto, SparseTensorProto, TensorProto, helper, numpy_helper

from costmodel.ir.constants import OMITTED
from costmodel.onnx_io.external_data import all_tensors
from costmodel.onnx_io.strip_weights import MalformedProtobufError, keeps_values, strip_weights

_PAYLOADS = ("float_data", "int32_data", "int64_data", "double_data", "uint64_data")


@st.composite
def _tensors(draw: st.DrawFn) -> TensorProto:
    """Strategy for tensors of several types, below and above the size limit, raw or in typed fields."""
    dtype = draw(st.sampled_from(["float32", "int64", "float64", "int8", "bool", "uint64"]))
    count = draw(st.sampled_from([0, 1, 7, 128, 129, 300, 131_073]))
    array = np.arange(count).astype(dtype)
    if draw(st.booleans()):
        return numpy_helper.from_array(array, "t")
    return helper.make_tensor("t", helper.np_dtype_to_tensor_dtype(array.dtype), [count], array.tolist())


@st.composite
def _models(draw: st.DrawFn) -> ModelProto:
    """Strategy for models with tensors in initialisers, attributes, subgraphs and functions."""

    def graph(depth: int) -> GraphProto:
        made = GraphProto(name="g", doc_string=draw(st.text(max_size=5)))
        for tensor in draw(st.lists(_tensors(), max_size=2)):
            made.initializer.append(tensor)
        if draw(st.booleans()):
            made.sparse_initializer.append(SparseTensorProto(values=draw(_tensors()), indices=draw(_tensors())))
        node = made.node.add(op_type="Constant", output=["c"])
        node.attribute.append(helper.make_attribute("value", draw(_tensors())))
        node.attribute.append(
            AttributeProto(name="s", sparse_tensor=SparseTensorProto(values=draw(_tensors()), indices=draw(_tensors())))
        )
        if depth:
            body = made.node.add(op_type="If", input=["c"], output=["o"])
            body.attribute.append(helper.make_attribute("then_branch", graph(depth - 1)))
        return made

    function = helper.make_function(
        "own", "F", ["a"], ["b"], [helper.make_node("Constant", [], ["b"], value=draw(_tensors()))], []
    )
    function.attribute_proto.append(helper.make_attribute("default", draw(_tensors())))
    model = helper.make_model(graph(draw(st.integers(0, 2))), producer_name="p", functions=[function])
    helper.set_model_props(model, {"key": "value" * draw(st.integers(0, 400))})
    return model


def _without_large_values(model: ModelProto) -> ModelProto:
    expected = ModelProto()
    expected.CopyFrom(model)
    for tensor in all_tensors(expected):
        size = len(tensor.raw_data) + sum(_packed(tensor, name) for name in _PAYLOADS)
        if not keeps_values(tensor.data_type, size):
            for name in ("raw_data", *_PAYLOADS):
                tensor.ClearField(name)
            tensor.external_data.add(key="location", value=OMITTED)
            tensor.data_location = TensorProto.EXTERNAL
    return expected


def _packed(tensor: TensorProto, field: str) -> int:
    alone = TensorProto()
    getattr(alone, field).extend(getattr(tensor, field))
    size = alone.ByteSize()
    return size - 2 - (size > 130) - (size > 16_387) if size else 0  # minus the bytes of tag and length


@given(_models())
def test_only_the_values_of_large_tensors_are_left_out(model: ModelProto) -> None:
    """The stripped model equals the original in everything but the values of its large tensors."""
    stripped = ModelProto.FromString(strip_weights(memoryview(model.SerializeToString())))
    assert stripped == _without_large_values(model)


def test_real_files_without_weights_are_left_as_they_are(light_models: MappingProxyType[str, Path]) -> None:
    """A file without large tensors is unchanged byte for byte."""
    for path in light_models.values():
        data = path.read_bytes()
        assert strip_weights(memoryview(data)) == data


def test_weights_are_gone_and_nothing_else() -> None:
    """A tensor of 40 MB keeps its name, type and shape only."""
    model = helper.make_model(
        GraphProto(initializer=[TensorProto(name="w", dims=[10], data_type=1, raw_data=b"1" * 40)])
    )
    model.graph.initializer[0].raw_data = bytes(40_000_000)
    short = strip_weights(memoryview(model.SerializeToString()))
    assert len(short) < 200
    (tensor,) = ModelProto.FromString(short).graph.initializer
    assert (tensor.name, list(tensor.dims), tensor.data_location) == ("w", [10], TensorProto.EXTERNAL)


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_stripped_or_refused(data: bytes) -> None:
    """For arbitrary bytes the only exception is MalformedProtobufError."""
    with contextlib.suppress(MalformedProtobufError):
        strip_weights(memoryview(data))


def test_bodies_nested_without_end_are_refused() -> None:
    """Subgraphs nested deeply enough to exhaust the stack are refused."""

    def field(number: int, content: bytes) -> bytes:
        size = len(content)
        return bytes([number << 3 | 2, size & 0x7F | 0x80, size >> 7 & 0x7F | 0x80, size >> 14]) + content

    graph = GraphProto(name="innermost" * 200).SerializeToString()
    for _ in range(1000):
        graph = field(1, field(5, field(6, graph)))  # node, attribute, subgraph
    with pytest.raises(MalformedProtobufError, match="nested"):
        strip_weights(memoryview(field(7, graph)))
