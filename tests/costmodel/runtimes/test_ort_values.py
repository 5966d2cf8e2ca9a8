"""What onnxruntime is fed and how long it is waited for: types that numpy does not have, loops without an end."""

from collections.abc import Callable

import pytest

from costmodel.decomposition import decompose
from costmodel.errors import LoweringError, MeasurementError, ModelError
from costmodel.graph import LayerGraph, TensorType
from costmodel.model import read_model
from costmodel.runtimes import RuntimeSettings, ort_session
from costmodel.runtimes.ort import OnnxRuntime
from costmodel.runtimes.ort_session import ort_value
from costmodel.synthesis import synthetic_like
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
    """Also of types that are no numpy types, and of those that onnxruntime packs two to a byte."""
    value = ort_value(synthetic_like(TensorType(dtype, shape)))
    assert tuple(value.shape()) == shape
    assert value.data_type() == f"tensor({ {'float32': 'float'}.get(dtype, dtype.replace('_', '')) })"


ENDLESS = """(float x, bool c) => (float y, float[n] z)
    { y, z = Loop (, c, x) <body = g (int64 i, bool d, float s) => (bool e, float t, float u)
                            { e = Identity(d) t = Abs(s) u = Neg(s) }> }"""


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fifth of a second is enough for a loop."""
    monkeypatch.setattr(ort_session, "PATIENCE_S", 0.2)


@pytest.mark.usefixtures("impatient")
def test_a_loop_without_an_end_is_refused_when_observed(lower: Lower) -> None:
    """Its results have shapes that only a run can tell, and that run is stopped."""
    with pytest.raises(LoweringError, match="a loop in it has no end"):
        lower(Specimen(ENDLESS).model())


@pytest.mark.usefixtures("impatient")
def test_a_model_without_an_end_is_not_measured(runtime: OnnxRuntime, settings: RuntimeSettings) -> None:
    """It is tried once before it is timed."""
    with pytest.raises(ModelError, match="a loop in it has no end"):
        runtime.open_model(read_model(Specimen(ENDLESS).model()), settings)


@pytest.mark.usefixtures("impatient")
def test_a_brick_without_an_end_is_not_measured(lower: Lower, runtime: OnnxRuntime, settings: RuntimeSettings) -> None:
    """In its model the loop doubles what is positive; by itself it is fed negative numbers too."""
    text = """(float[9] x, bool c) => (float[9] y) <float most = {100.0}>
        { a = Abs(x)
          y = Loop (, c, a) <body = g (int64 i, bool d, float[9] s) => (bool e, float[9] t)
                             { t = Add(s, s) m = ReduceMin<keepdims = 0>(t) e = Less(m, most) }> }"""
    bricks = decompose("m", lower(Specimen(text).model())).unique.values()
    (loop,) = (brick for brick in bricks if brick.kind == "Loop")
    with pytest.raises(MeasurementError, match="a loop in it has no end"):
        runtime.open_sequence(loop, settings)
