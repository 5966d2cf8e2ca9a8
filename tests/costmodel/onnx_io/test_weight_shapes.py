"""Models whose weights do not fit what they are applied to."""

from collections.abc import Callable, Mapping

import numpy as np
import onnxruntime as ort
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import ModelProto, TensorProto, helper, numpy_helper
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidArgument, RuntimeException

from costmodel.errors import LoweringError
from costmodel.ir.graph import LayerGraph
from costmodel.onnx_io.shape_inference import infer_model
from costmodel.onnx_io.weight_shapes import check_weight_shapes

REFUSALS = (Fail, InvalidArgument, RuntimeException)
IMAGE = (1, 4, 6, 6)
STEPS = (5, 1, 8)
Weights = Mapping[str, tuple[int, ...]]
# Operator, shape of its input, weights that fit, weights that do not, and attributes.
CASES: list[tuple[str, tuple[int, ...], list[Weights], list[Weights], dict[str, int]]] = [
    ("Conv", IMAGE, [{"w": (6, 2, 3, 3), "b": (6,)}], [{"w": (6, 4, 3, 3)}, {"w": (5, 2, 3, 3)}], {"group": 2}),
    ("Conv", IMAGE, [{"w": (6, 4, 3, 3)}], [{"w": (6, 3, 3, 3)}, {"w": (6, 4, 3, 3), "b": (5,)}], {}),
    ("ConvTranspose", IMAGE, [{"w": (4, 3, 2, 2), "b": (6,)}], [{"w": (3, 4, 2, 2)}], {"group": 2}),
    ("InstanceNormalization", IMAGE, [{"s": (4,), "b": (4,)}], [{"s": (5,), "b": (5,)}], {}),
    ("LayerNormalization", IMAGE, [{"s": (6,), "b": (6,)}, {"s": (6,)}], [{"s": (5,)}, {"s": (6,), "b": (7,)}], {}),
    ("PRelu", IMAGE, [{"s": (4, 1, 1)}, {"s": (1,)}], [{"s": (5, 1, 1)}], {}),
    ("Gemm", (3, 8), [{"w": (8, 4), "b": (4,)}, {"w": (8, 4), "b": (3, 1)}], [{"w": (8, 4), "b": (5,)}], {}),
    ("Gemm", (8, 3), [{"w": (4, 8), "b": (3, 4)}], [{"w": (4, 8), "b": (8, 4)}], {"transA": 1, "transB": 1}),
    ("Conv", (4, 3), [], [{"w": (6, 4)}], {}),
    ("RNN", STEPS, [{"w": (1, 4, 8), "r": (1, 4, 4)}], [{"w": (1, 4, 7), "r": (1, 4, 4)}], {"hidden_size": 4}),
    ("GRU", STEPS, [{"w": (1, 12, 8), "r": (1, 12, 4)}], [{"w": (1, 12, 8), "r": (1, 12, 5)}], {"hidden_size": 4}),
    ("GRU", STEPS, [], [{"w": (1, 12, 8), "r": (12,)}], {"hidden_size": 4}),
    ("LSTM", STEPS, [{"w": (1, 16, 8), "r": (1, 16, 4)}], [{"w": (1, 12, 8), "r": (1, 12, 4)}], {"hidden_size": 4}),
]  # fmt: skip


def one_layer(op_type: str, shape: tuple[int, ...], weights: Weights, attributes: Mapping[str, int]) -> ModelProto:
    """Returns a model of one layer with the given weights."""
    node = helper.make_node(op_type, ["x", *weights], ["y"], "layer", **attributes)
    graph = helper.make_graph(
        [node],
        "one",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_empty_tensor_value_info("y")],
        [numpy_helper.from_array(np.zeros(size, np.float32), name) for name, size in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def runs(model: ModelProto) -> bool:
    """Returns whether ONNX Runtime runs a model."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    try:
        session = ort.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
        session.run(None, {port.name: np.zeros(port.shape, np.float32) for port in session.get_inputs()})
    except REFUSALS:
        return False
    return True


def fits(model: ModelProto) -> bool:
    """Returns whether the weights of a model pass the check."""
    try:
        check_weight_shapes("one", model, infer_model(model))
    except LoweringError:
        return False
    return True


@pytest.mark.parametrize(("op_type", "shape", "fitting", "others", "attributes"), CASES)
def test_what_does_not_run_is_refused(
    op_type: str,
    shape: tuple[int, ...],
    fitting: list[Weights],
    others: list[Weights],
    attributes: dict[str, int],
) -> None:
    """The check agrees with what ONNX Runtime says when it runs the model."""
    for weights, expected in [*((w, True) for w in fitting), *((w, False) for w in others)]:
        model = one_layer(op_type, shape, weights, attributes)
        assert (runs(model), fits(model)) == (expected, expected), weights


@settings(max_examples=60, deadline=None)
@given(
    channels=st.integers(1, 6),
    inner=st.integers(1, 6),
    outputs=st.integers(1, 6),
    group=st.integers(1, 3),
    bias=st.none() | st.integers(1, 6),
)
def test_convolutions(channels: int, inner: int, outputs: int, group: int, bias: int | None) -> None:
    """Whatever the sizes of a convolution are, it is refused if and only if ONNX Runtime does not run it."""
    weights = {"w": (outputs, inner, 3, 3)} | ({} if bias is None else {"b": (bias,)})
    model = one_layer("Conv", (1, channels, 5, 5), weights, {"group": group})
    assert fits(model) == runs(model)


def test_the_sentence(lower: Callable[[ModelProto], LayerGraph]) -> None:
    """A model is refused before it gets a price, by a sentence with the layer and the shapes."""
    model = one_layer("Conv", IMAGE, {"w": (6, 3, 3, 3)}, {})
    with pytest.raises(
        LoweringError, match=r"the Conv layer reads \[1, 4, 6, 6\] with .* \[6, 3, 3, 3\], which do not"
    ):
        lower(model)


def test_an_unknown_shape_is_passed() -> None:
    """What is not known of a model is not held against it."""
    model = one_layer("Conv", IMAGE, {"w": (6, 3, 3, 3)}, {})
    model.graph.input[0].type.tensor_type.ClearField("shape")
    assert fits(model)
