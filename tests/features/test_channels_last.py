"""Layers of a runtime that keeps the channels of images last: convolutions, reorders, transpositions, pooling."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.features.analytical_bound import copy_flops_of, kernel_slowdown
from costmodel.features.work import layer_work
from costmodel.ir.graph import TensorType
from costmodel.ir.sequence import LayerSequence, SequenceLayer, Value
from tests.synthetic import SYSTEM

OPENVINO = replace(SYSTEM, runtime="openvino")
Shape = tuple[int, ...]


def layer_of(
    op_type: str,
    shape: Shape,
    result: Shape,
    *,
    dtype: str = "float32",
    last: tuple[bool, bool] = (True, True),
    weights: Shape | None = None,
    **attributes: int | list[int],
) -> LayerSequence:
    """Returns a layer that reads and writes an image, with the channels last in memory or not."""
    values = [Value(TensorType(dtype, shape, last[0]), "input"), Value(TensorType(dtype, result, last[1]), "internal")]
    if weights is not None:
        values.append(Value(TensorType("float32", weights), "constant"))
    encoded = {name: {"ints" if isinstance(value, list) else "i": value} for name, value in attributes.items()}
    layer = SequenceLayer(op_type, "", 13, encoded, (0, *range(2, len(values))), (1,))
    return LayerSequence((layer,), tuple(values), (1,))


def convolution(
    channels: int, filters: int, *, window: int = 3, stride: int = 1, group: int = 1, side: int = 32
) -> LayerSequence:
    """Returns a convolution of an image whose channels are last, as a layer."""
    return layer_of(
        "Conv",
        (1, channels, side, side),
        (1, filters, side // stride, side // stride),
        weights=(filters, channels // group, window, window),
        group=group,
        kernel_shape=[window, window],
        strides=[stride, stride],
        pads=[window // 2] * 4,
    )


def slowdown(sequence: LayerSequence) -> float:
    """Returns the slowdown of the products of the only layer of a sequence under OpenVINO."""
    return kernel_slowdown(layer_work(sequence, sequence.layers[0]), OPENVINO)


def copies(sequence: LayerSequence) -> float:
    """Returns the copies of the only layer of a sequence under OpenVINO."""
    return copy_flops_of(layer_work(sequence, sequence.layers[0]), OPENVINO)


def test_the_channels_of_an_image_are_not_padded_but_those_of_a_result_are() -> None:
    """A convolution of three channels takes little longer than its products; one with three filters fills a vector."""
    assert slowdown(convolution(64, 64)) < 1.1
    assert slowdown(convolution(3, 64)) < 2
    assert slowdown(convolution(64, 3)) > 2


def test_narrow_groups_and_single_channels_are_slow() -> None:
    """Groups of eight channels are computed well, those of two are padded, and each channel by itself waits."""
    assert slowdown(convolution(64, 64, group=8)) < 2
    assert slowdown(convolution(64, 64, group=32)) > 5
    depthwise = [slowdown(convolution(64, 64, group=64, stride=stride)) for stride in (1, 2)]
    assert 1 < depthwise[0] < depthwise[1]


@given(channels=st.integers(1, 80), filters=st.integers(1, 80), window=st.integers(1, 5))
def test_no_convolution_is_faster_than_full_vectors(channels: int, filters: int, window: int) -> None:
    """Products take at least as long as if all units were busy, and finitely long."""
    assert 1 <= slowdown(convolution(channels, filters, window=window)) < 100


def test_a_runtime_with_blocks_of_channels_computes_in_another_way() -> None:
    """The same convolution under ONNX Runtime fills blocks of input channels."""
    sequence = convolution(3, 64)
    assert kernel_slowdown(layer_work(sequence, sequence.layers[0]), SYSTEM) > 1.5 * slowdown(sequence)


def test_a_transposition_copies_whole_rows_in_vectors() -> None:
    """Rows of 64 bytes are copied at once; shorter ones, and single elements, one by one."""
    rows = [layer_of("Transpose", (8, 16, n), (16, 8, n), dtype="uint8", last=(False, False), perm=[1, 0, 2])
            for n in (64, 63)]  # fmt: skip
    columns = layer_of("Transpose", (8, 16, 64), (8, 64, 16), dtype="uint8", last=(False, False), perm=[0, 2, 1])
    assert copies(rows[1]) > 10 * copies(rows[0])
    assert copies(columns) > 10 * copies(rows[0])


def test_a_transposition_is_of_what_is_in_memory() -> None:
    """What brings channels to the end moves nothing if they are there already, and everything if they are not."""
    image, result = (1, 32, 14, 14), (1, 14, 14, 32)
    moved, kept = (
        copies(layer_of("Transpose", image, result, last=(last, False), perm=[0, 2, 3, 1])) for last in (False, True)
    )
    assert moved > 10 * kept


@pytest.mark.parametrize("op_type", ["Relu", "MaxPool", "Resize", "DequantizeLinear"])
def test_a_layer_that_changes_the_place_of_channels_contains_a_reorder(op_type: str) -> None:
    """It copies as many elements as the reorder beside it would."""
    image = (1, 32, 14, 14)
    for before, after in ((True, False), (False, True)):
        reorder = layer_of("Reorder", image, image, last=(before, after))
        assert copies(layer_of(op_type, image, image, last=(before, after))) == copies(reorder) > 0
    assert copies(layer_of(op_type, image, image)) == 0


def test_a_convolution_reads_pixels_as_they_come() -> None:
    """It reorders its result, but not what it reads."""
    pixels = layer_of("Conv", (1, 3, 8, 8), (1, 16, 8, 8), last=(False, True), weights=(16, 3, 1, 1), kernel_shape=[1])
    result = layer_of("Conv", (1, 16, 8, 8), (1, 3, 8, 8), last=(True, False), weights=(3, 16, 1, 1), kernel_shape=[1])
    assert copies(pixels) == 0
    assert copies(result) == copies(layer_of("Reorder", (1, 3, 8, 8), (1, 3, 8, 8), last=(True, False)))


def test_bytes_are_pooled_position_by_position() -> None:
    """Sixteen channels of bytes take as long as sixty-four, which are a vector."""

    def pooling(channels: int) -> float:
        image, result = (1, channels, 64, 64), (1, channels, 32, 32)
        sequence = layer_of("MaxPool", image, result, dtype="uint8", kernel_shape=[2, 2], strides=[2, 2])
        return layer_work(sequence, sequence.layers[0]).other_flops

    assert pooling(16) == pooling(64) < pooling(65) < 2 * pooling(64)


def fused_gate(gate: Shape, image: Shape) -> LayerSequence:
    """Returns a sigmoid of a gate times an image, which a runtime computes as one layer."""
    body = {
        "layers": [
            {"attrs": {}, "captured": 0, "domain": "", "in": [0], "op": "Sigmoid", "out": [2], "since": 13},
            {"attrs": {}, "captured": 0, "domain": "", "in": [2, 1], "op": "Mul", "out": [3], "since": 14},
        ],
        "outputs": [3],
        "values": [
            ["float32", gate, 0, "input", None],
            ["float32", image, 0, "input", None],
            ["float32", gate, 0, "internal", None],
            ["float32", image, 0, "internal", None],
        ],
    }
    values = (
        Value(TensorType("float32", gate), "input"),
        Value(TensorType("float32", image), "input"),
        Value(TensorType("float32", image), "internal"),
    )
    layer = SequenceLayer("Sigmoid", "costmodel.fused", 1, {"body": {"s": json.dumps(body)}}, (0, 1), (2,))
    return LayerSequence((layer,), values, (2,))


def test_one_loop_computes_what_it_broadcasts_for_each_element() -> None:
    """A sigmoid for each channel, times an image, takes as long as one for each pixel."""
    image = (1, 16, 20, 20)
    of_channels, of_pixels = (
        layer_work(sequence, sequence.layers[0]).other_flops
        for sequence in (fused_gate((1, 16, 1, 1), image), fused_gate(image, image))
    )
    assert of_channels == of_pixels > 5 * 16 * 20 * 20


@pytest.mark.parametrize("op_type", ["MaxPool", "Resize"])
def test_a_result_without_channels_has_a_cost(op_type: str) -> None:
    """A client may describe a layer whose result has a single axis, which no runtime makes of an image."""
    sequence = layer_of(op_type, (1, 3, 8, 8), (4,), dtype="uint8", last=(True, False))
    assert layer_work(sequence, sequence.layers[0]).other_flops > 0
