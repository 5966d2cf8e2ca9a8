"""Inputs of types that numpy lacks, and time limits for endless loops."""

from collections.abc import Callable

import pytest
from onnx import helper

from costmodel.errors import LoweringError, MeasurementError, ModelError
from costmodel.ir.graph import LayerGraph, TensorType
from costmodel.onnx_io.model import read_model
from costmodel.partition.decomposition import decompose
from costmodel.runtimes.base import RuntimeSettings
from costmodel.runtimes.ort.adapter import OnnxRuntime
from costmodel.runtimes.ort.session import ort_value
from costmodel.synthetic.values import synthetic_tensor
from tests.zoo import Specimen

Lower = Callable[..., LayerGraph]


@pytest.mark.parametrize(
    "dtype",
    [
        "bool",
        "int4",
        "uint4",
        "int8",
        "float16",
        "bfloat16",
        "float32",
        "float8_e4m3fn",
        "float8_e5m2",
        "float8_e4m3fnuz",
    ],
)
@pytest.mark.parametrize("shape", [(), (3,), (2, 5)])
def test_values_of_every_type_are_fed(dtype: str, shape: tuple[int, ...]) -> None:
    """Inputs may have any type, also those that numpy lacks or onnxruntime packs two to a byte."""
    value = ort_value(synthetic_tensor(TensorType(dtype, shape)))
    assert tuple(value.shape()) == shape
    assert value.data_type() == f"tensor({ {'float32': 'float'}.get(dtype, dtype.replace('_', '')) })"


ENDLESS = """(float x, bool c) => (float y, float[n] z)
    { y, z = Loop (, c, x) <body = g (int64 i, bool d, float s) => (bool e, float t, float u)
                            { e = Identity(d) t = Abs(s) u = Neg(s) }> }"""


@pytest.fixture
def impatient() -> OnnxRuntime:
    """ONNX Runtime with a time limit of a fifth of a second."""
    return OnnxRuntime(patience_s=0.2)


def test_a_loop_without_an_end_is_refused_when_observed(impatient: OnnxRuntime) -> None:
    """A run for observing data-dependent shapes is stopped at the time limit."""
    with pytest.raises(LoweringError, match="a loop in it has no end"):
        impatient.lower(read_model(Specimen(ENDLESS).model()), "all")


def test_a_loop_in_a_local_function_is_stopped_too(impatient: OnnxRuntime) -> None:
    """ONNX Runtime puts the body of a function in the place of its call, loops included."""
    model = Specimen(ENDLESS).model()
    inputs, outputs = ([port.name for port in ports] for ports in (model.graph.input, model.graph.output))
    whole = helper.make_function("mine", "Whole", inputs, outputs, list(model.graph.node), list(model.opset_import))
    model.functions.append(whole)
    model.opset_import.append(helper.make_opsetid("mine", 1))
    del model.graph.node[:]
    model.graph.node.append(helper.make_node("Whole", inputs, outputs, domain="mine"))
    with pytest.raises(LoweringError, match="a loop in it has no end"):
        impatient.lower(read_model(model), "all")


def test_a_model_without_an_end_is_not_measured(impatient: OnnxRuntime, settings: RuntimeSettings) -> None:
    """An endless model is stopped in its trial run, before timing."""
    with pytest.raises(ModelError, match="a loop in it has no end"):
        impatient.open_model(read_model(Specimen(ENDLESS).model()), settings)


def test_a_sequence_without_an_end_is_not_measured(
    lower: Lower, impatient: OnnxRuntime, settings: RuntimeSettings
) -> None:
    """A loop that ends in its model may be endless on synthetic inputs, and is stopped."""
    text = """(float[9] x, bool c) => (float[9] y) <float most = {100.0}>
        { a = Abs(x)
          y = Loop (, c, a) <body = g (int64 i, bool d, float[9] s) => (bool e, float[9] t)
                             { t = Add(s, s) m = ReduceMin<keepdims = 0>(t) e = Less(m, most) }> }"""
    sequences = decompose("m", lower(Specimen(text).model())).unique.values()
    (loop,) = (sequence for sequence in sequences if sequence.kind == "Loop")
    with pytest.raises(MeasurementError, match="a loop in it has no end"):
        impatient.open_sequence(loop, settings)
