"""Inputs that become constants, as the flags and rates that control a model."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import onnx
import pytest
from hypothesis import given
from onnx import ModelProto, numpy_helper

from costmodel.errors import ModelReadError
from costmodel.ir.graph import LayerGraph, TensorType
from costmodel.onnx_io.input_values import constants_for
from costmodel.onnx_io.model import read_model
from costmodel.runtimes.base import Runtime, RuntimeSettings
from costmodel.runtimes.openvino.adapter import OpenVino
from costmodel.runtimes.ort.adapter import OnnxRuntime


def operators(graph: LayerGraph) -> list[str]:
    """Returns the operators of the layers of a graph."""
    return [layer.op_type for layer in graph.layers]


def test_a_flag_chooses_the_branch(branches: ModelProto, runtime: OnnxRuntime) -> None:
    """With the value of the condition, only the layers of its branch are left; each value has a digest of its own."""
    cached, whole = (read_model(branches, values={"cached": flag}) for flag in (1, 0))
    assert list(cached.inputs) == ["x"]
    assert len({read_model(branches).digest, cached.digest, whole.digest}) == 3
    assert operators(runtime.lower(cached, "all")) == ["Tanh"]
    assert sorted(operators(runtime.lower(whole, "all"))) == ["MatMul", "Tanh"]
    open_model = read_model(branches)
    assert "If" in operators(runtime.lower(open_model, "all"))
    assert open_model.warnings == (
        "which layers run depends on the input cached: give its value with the option value",
    )
    assert not cached.warnings


def test_data_that_choose_a_branch_are_no_option(parse: Callable[..., ModelProto]) -> None:
    """No value is asked for where what decides is computed from data, or from nothing that is fed."""
    branch = (
        "= If(c) < then_branch = g1 () => (float a) { a = Neg(s) }, else_branch = g2 () => (float a) { a = Abs(s) } >"
    )
    computed = parse(f"(float[99] x) => (float y) {{ s = ReduceSum<keepdims = 0>(x) c = Cast<to = 9>(s) y {branch} }}")
    assert not read_model(computed).warnings
    shaped = parse(f"(float[8] x) => (float y) {{ s = ReduceSum<keepdims = 0>(x) c = Cast<to = 9>(s) y {branch} }}")
    assert "depends on the input x" in read_model(shaped).warnings[0]


@pytest.mark.parametrize("kind", [OnnxRuntime, OpenVino])
@pytest.mark.parametrize("where", ["file", "memory"])
@pytest.mark.parametrize("version", [3, 8])
def test_the_whole_model_runs_with_the_value(
    branches: ModelProto, tmp_path: Path, kind: type[Runtime], where: str, version: int
) -> None:
    """The model is run without the input, from a file and from memory, also where constants are listed as inputs."""
    branches.ir_version = version
    if version == 3:
        branches.graph.input.append(onnx.helper.make_tensor_value_info("w", onnx.TensorProto.FLOAT, (64, 64)))
    onnx.save(branches, tmp_path / "m.onnx")
    source = branches if where == "memory" else tmp_path / "m.onnx"
    for flag in (0, 1):
        kind().open_model(read_model(source, values={"cached": flag}), RuntimeSettings(spinning=False)).run()
    assert [port.name for port in branches.graph.input][:2] == ["x", "cached"]


def test_a_rate_may_be_a_scalar(parse: Callable[..., ModelProto], runtime: OnnxRuntime) -> None:
    """A value fills an input of any shape; what is computed from it alone is folded."""
    proto = parse("(float[8] x, int64 rate) => (float[8] y) { r = Cast<to = 1>(rate) s = Sqrt(r) y = Mul(x, s) }")
    assert operators(runtime.lower(read_model(proto, values={"rate": 16_000}), "all")) == ["Mul"]


@given(
    st.sampled_from(["bool", "int8", "uint8", "int32", "int64", "float16", "float32", "float64"]),
    st.lists(st.integers(1, 4), max_size=3),
    st.one_of(st.integers(-70_000, 70_000), st.floats(-1e5, 1e5)),
)
def test_a_constant_is_what_was_given(dtype: str, shape: list[int], value: float) -> None:
    """A constant has the input's type and shape, and the value everywhere; another value is never taken instead."""
    kind = TensorType(dtype, tuple(shape))
    with suppress(ModelReadError):
        (tensor,) = constants_for("m", {"x": kind}, {"x": value})
        array = numpy_helper.to_array(tensor)
        assert (tensor.name, str(array.dtype), array.shape) == ("x", dtype, tuple(shape))
        np.testing.assert_allclose(array.astype(np.float64), value, rtol=0.01 if "float" in dtype else 0)


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"cached": 2}, "input cached has elements of bool, which cannot be 2"),
        ({"flag": 1}, "has no input named flag: its inputs are x, cached"),
        ({"x": 0}, "input x has 256 elements: only inputs that control"),
        ({"cached": 0.5}, "input cached has elements of bool, which cannot be 0.5"),
    ],
)
def test_values_that_do_not_fit(branches: ModelProto, values: dict[str, float], sentence: str) -> None:
    """An unknown input, data and a value of another type are refused in one sentence."""
    with pytest.raises(ModelReadError, match=sentence):
        read_model(branches, values=values)
