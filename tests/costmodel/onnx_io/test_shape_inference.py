"""Shape inference by ONNX's own rules."""

from collections.abc import Callable

import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper

from costmodel.ir.graph import TensorType
from costmodel.onnx_io.shape_inference import infer_model, infer_node

IMAGE = TensorType("float32", (1, 8, 6, 6))
FILTER = TensorType("float32", (16, 8, 3, 3))


def test_every_value_of_a_model_gets_its_type(parse: Callable[..., ModelProto]) -> None:
    """Inputs, outputs and intermediate values get types, also where shapes come from constants."""
    model = parse(
        "(float[1,8,6,6] x) => (float[2,144] y) <int64[2] shape = {2, -1}> { a = Relu(x) \n y = Reshape(a, shape) }"
    )
    types = infer_model(model)
    assert (types["x"], types["a"]) == (IMAGE, IMAGE)
    assert types["y"] == TensorType("float32", (2, 144))


def test_what_depends_on_data_gets_no_type(parse: Callable[..., ModelProto]) -> None:
    """A data-dependent dimension gets no type."""
    types = infer_model(parse("(float[4,4] x) => (int64[2,n] y) { y = NonZero(x) }"))
    assert types == {"x": TensorType("float32", (4, 4))}


@pytest.mark.parametrize(
    ("op_type", "domain"),
    [("Conv", ""), ("Conv", "com.microsoft.nchwc"), ("FusedConv", "com.microsoft")],
)
def test_a_fused_convolution_is_shaped_like_a_plain_one(op_type: str, domain: str) -> None:
    """A fused activation or sum does not change a convolution's shape."""
    node = helper.make_node(
        op_type,
        ["x", "w", "b", "z"] if domain else ["x", "w"],
        ["y"],
        domain=domain,
        kernel_shape=[3, 3],
        strides=[2, 2],
    )
    if domain:
        node.attribute.append(helper.make_attribute("activation", "Relu"))
    types = {"x": IMAGE, "w": FILTER, "b": TensorType("float32", (16,)), "z": TensorType("float32", (1, 16, 2, 2))}
    assert infer_node(node, types, {}, 21) == {"y": TensorType("float32", (1, 16, 2, 2))}


def test_channels_may_come_last() -> None:
    """A channels-last quantised convolution has a channels-last output."""
    node = helper.make_node(
        "QLinearConv", ["x", "s", "z", "w", "s", "z", "s", "z"], ["y"], domain="com.microsoft", channels_last=1
    )
    types = {
        "x": TensorType("uint8", (1, 9, 6, 8)), "w": TensorType("uint8", (16, 8, 3, 3)),
        "s": TensorType("float32", ()), "z": TensorType("uint8", ()),
    }  # fmt: skip
    assert infer_node(node, types, {}, 21) == {"y": TensorType("uint8", (1, 7, 4, 16))}


def test_constants_are_looked_at() -> None:
    """A Reshape's constant shape is used; without it the output has no type."""
    node = helper.make_node("Reshape", ["x", "s"], ["y"])
    types = {"x": IMAGE, "s": TensorType("int64", (2,))}
    shape = helper.make_tensor("s", TensorProto.INT64, [2], [4, -1])
    assert infer_node(node, types, {"s": shape}, 21) == {"y": TensorType("float32", (4, 72))}
    assert infer_node(node, types, {}, 21) == {}


def test_absent_values_do_not_matter() -> None:
    """Optional inputs and outputs may be absent."""
    node = helper.make_node("Clip", ["x", "", "high"], ["y"])
    assert infer_node(node, {"x": IMAGE, "high": TensorType("float32", ())}, {}, 21) == {"y": IMAGE}
    node = helper.make_node("MaxPool", ["x"], ["y", ""], kernel_shape=[2, 2])
    assert infer_node(node, {"x": IMAGE}, {}, 21)["y"] == TensorType("float32", (1, 8, 5, 5))


@pytest.mark.parametrize(
    ("node", "types"),
    [
        (helper.make_node("NoSuchOperator", ["x"], ["y"]), {"x": IMAGE}),
        (helper.make_node("MatMul", ["x", "w"], ["y"]), {"x": IMAGE, "w": TensorType("float32", (5, 7))}),
        (helper.make_node("Concat", ["x", "x"], ["y"]), {"x": IMAGE}),
    ],
    ids=["unknown operator", "matrix sizes", "attribute missing"],
)
def test_nothing_follows_from_what_does_not_fit(node: NodeProto, types: dict[str, TensorType]) -> None:
    """An impossible layer raises no error and gets no type."""
    assert infer_node(node, types, {}, 21) == {}


@pytest.mark.parametrize(("attributes", "bins"), [("", 201), ("<onesided = 1>", 201), ("<onesided = 0>", 400)])
def test_short_fourier_transforms_are_one_sided(parse: Callable[..., ModelProto], attributes: str, bins: int) -> None:
    """ONNX's inference takes the default for 0, which its definition says is 1."""
    model = parse(
        f"""(float[1,16000] x) => (float y) <float[400] w = {{{",".join(["1"] * 400)}}}, int64 s = {{160}}>
        {{ z = STFT{attributes}(x, s, w) y = Neg(z) }}"""
    )
    assert infer_model(model)["z"].shape == (1, 98, bins, 2)
    node, tensors = model.graph.node[0], {tensor.name: tensor for tensor in model.graph.initializer}
    types = {"x": TensorType("float32", (1, 16000)), "s": TensorType("int64", ()), "w": TensorType("float32", (400,))}
    assert infer_node(node, types, tensors, 18)["z"].shape == (1, 98, bins, 2)
