"""Features of fused layers: those of the main operator, in the layouts that its values have in memory."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from costmodel.features.fused import operator_of
from costmodel.features.integer_products import IntegerPath
from costmodel.features.schema import SCHEMA
from costmodel.features.tabular import encode_all
from costmodel.ir.fused import fuse
from costmodel.ir.graph import Layer, TensorType
from costmodel.ir.sequence import LayerSequence, build_sequence
from tests.synthetic import SYSTEM

IMAGE = TensorType("float32", (1, 8, 6, 6))
LAST = replace(IMAGE, blocked=True)
FILTER = TensorType("float32", (8, 8, 3, 3))
WINDOW = {"kernel_shape": {"ints": [3, 3]}, "pads": {"ints": [1, 1, 1, 1]}}
CONVOLUTION = Layer("conv", "Conv", "", 11, WINDOW, ("x", "w"), ("c",))


def layer(op_type: str, inputs: Sequence[str], output: str, **attributes: Any) -> Layer:
    """Returns a layer with one output."""
    return Layer(output, op_type, "", 13, attributes, tuple(inputs), (output,))


def fused(layers: Sequence[Layer], types: Mapping[str, TensorType], output: str = "y") -> LayerSequence:
    """Returns the layers as one fused layer; "w", "s" and "shape" are constants."""
    constants = {name: None for name in ("w", "s", "shape") if name in types}
    together = fuse("fused", layers, types, constants, {output})
    return build_sequence([together], types, constants, {output})


def features(sequence: LayerSequence) -> dict[str, float]:
    """Returns the features of the only layer of a sequence, by name."""
    encoded = encode_all([sequence], SYSTEM)
    return dict(zip(SCHEMA.names, encoded.features[0].tolist(), strict=True))


def activated(op_type: str, kind: TensorType = LAST) -> LayerSequence:
    """Returns a convolution with an activation."""
    slope = ("s",) if op_type == "PRelu" else ()
    types = {"x": kind, "w": FILTER, "c": IMAGE, "y": kind} | dict.fromkeys(slope, TensorType("float32", (1, 8, 1, 1)))
    return fused([CONVOLUTION, layer(op_type, ("c", *slope), "y")], types)


def test_a_fused_convolution_writes_in_the_layout_that_the_layer_does() -> None:
    """What lies between a convolution and its activation is laid out like what the convolution reads."""
    types = {"x": LAST, "w": FILTER, "c": LAST}
    alone = features(build_sequence([CONVOLUTION], types, {"w": None}, {"c"}))
    together = features(activated("Relu"))
    assert (together["blocked_input"], together["blocked_output"]) == (1.0, 1.0)
    different = {name for name, value in together.items() if value != alone[name]}
    assert different <= {"activation", "log_other_flops", "log_bound_us", "log_intensity", "memory_share", "since"}
    plain = features(activated("Relu", IMAGE))
    assert (plain["blocked_input"], plain["blocked_output"]) == (0.0, 0.0)


def test_activations_are_ranked_by_what_they_take() -> None:
    """An activation of a few instructions is nearer to none than one that computes an exponential."""
    ranks = [features(activated(name))["activation"] for name in ("Relu", "PRelu", "Clip", "HardSwish", "Sigmoid")]
    assert ranks == sorted(set(ranks))
    assert ranks[-2] < (ranks[-1] + ranks[2]) / 2
    works = [features(activated(name))["log_other_flops"] for name in ("Relu", "PRelu", "HardSwish", "Sigmoid")]
    assert works == sorted(set(works))


def test_only_what_is_read_after_a_convolution_is_a_sum() -> None:
    """An image that is added counts as a fused sum; tokens that become the image do not."""
    types = {"x": LAST, "w": FILTER, "s": TensorType("float32", (8,)), "c": IMAGE, "r": LAST, "y": LAST}
    biased = replace(CONVOLUTION, inputs=("x", "w", "s"))
    assert features(fused([biased, layer("Add", ("c", "r"), "y")], types))["fused_sum"] == 1.0
    tokens = {"t": TensorType("float32", (1, 36, 8)), "z": TensorType("float32", (1, 8, 36)), "x": IMAGE}
    shape = {"shape": TensorType("int64", (4,))}
    turned = [
        layer("Transpose", ("t",), "z", perm={"ints": [0, 2, 1]}),
        layer("Reshape", ("z", "shape"), "x"),
        replace(biased, outputs=("y",)),
    ]
    found = features(fused(turned, {**types, **tokens, **shape}))
    assert (found["fused_sum"], found["blocked_input"], found["blocked_output"]) == (0.0, 1.0, 1.0)


def test_a_product_of_dequantised_integers_is_one_of_integers() -> None:
    """It is bound like one of integers, and nothing is counted for turning them into floats, which nobody does."""

    def product(weights: str) -> dict[str, float]:
        types = {
            "q": TensorType("uint8", (64, 256)), "x": TensorType("float32", (64, 256)),
            "w": TensorType(weights, (256, 512)), "v": TensorType("float32", (256, 512)),
            "s": TensorType("float32", ()), "y": TensorType("float32", (64, 512)),
        }  # fmt: skip
        dequantised = [layer("DequantizeLinear", ("q", "s"), "x")]
        if weights == "int8":
            dequantised.append(layer("DequantizeLinear", ("w", "s"), "v"))
        operand = "v" if weights == "int8" else "w"
        return features(fused([*dequantised, layer("MatMul", ("x", operand), "y")], types))

    integers, floats = product("int8"), product("float32")
    assert (integers["integer_path"], floats["integer_path"]) == (IntegerPath.FUSED, IntegerPath.NONE)
    assert integers["log_slowdown"] < floats["log_slowdown"]
    assert integers["log_other_flops"] == floats["log_other_flops"]
    assert integers["log_bound_us"] < floats["log_bound_us"] - 0.5


def test_products_around_a_softmax_are_an_attention() -> None:
    """Two products with a softmax between them are an operator of their own; a product with an activation is not."""
    heads, scores = TensorType("float32", (1, 2, 5, 4)), TensorType("float32", (1, 2, 5, 5))
    types = {"q": heads, "k": TensorType("float32", (1, 2, 4, 5)), "v": heads, "a": scores, "b": scores, "y": heads}
    layers = [layer("MatMul", ("q", "k"), "a"), layer("Softmax", ("a",), "b"), layer("MatMul", ("b", "v"), "y")]
    assert operator_of(fused(layers, types).layers[0]) == "Attention"
    assert operator_of(fused(layers[:2], types, "b").layers[0]) == "MatMul"
    assert operator_of(build_sequence(layers[:1], types, {}, {"a"}).layers[0]) == "MatMul"


@pytest.mark.parametrize("last", [True, False])
def test_a_shuffle_moves_single_channels_where_they_are_last(last: bool) -> None:
    """In a channels-last layout, a channel shuffle is described as a transposition of the last two axes."""
    kind = LAST if last else IMAGE
    types = {
        "x": kind, "p": TensorType("float32", (1, 2, 4, 6, 6)), "q": TensorType("float32", (1, 4, 2, 6, 6)),
        "y": kind, "shape": TensorType("int64", (5,)),
    }  # fmt: skip
    shuffle = [
        layer("Reshape", ("x", "shape"), "p"),
        layer("Transpose", ("p",), "q", perm={"ints": [0, 2, 1, 3, 4]}),
        layer("Reshape", ("q", "shape"), "y"),
    ]
    found = features(fused(shuffle, types))
    assert found["log_inner_run"] == (0.0 if last else pytest.approx(3.5835, abs=1e-4))
    in_memory = {"a": TensorType("float32", (1, 6, 6, 2, 4)), "b": TensorType("float32", (1, 6, 6, 4, 2))}
    transpose = layer("Transpose", ("a",), "b", perm={"ints": [0, 1, 2, 4, 3]})
    expected = features(build_sequence([transpose], in_memory, {}, {"b"}))
    assert (found == expected) is last
