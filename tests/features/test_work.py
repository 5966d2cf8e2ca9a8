"""Arithmetic and memory traffic of layers, compared with numbers computed by hand."""

from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.features.analytical_bound import other_flops_of
from costmodel.features.work import Work, layer_work
from costmodel.ir.graph import LayerGraph, TensorType
from costmodel.ir.sequence import LayerSequence, SequenceLayer, Value
from costmodel.partition.decomposition import decompose
from tests.synthetic import SYSTEM

Shape = tuple[int, ...]


def work_of(
    op_type: str,
    inputs: list[Shape | None],
    outputs: list[Shape],
    *,
    weights: tuple[int, ...] = (),
    domain: str = "",
    dtype: str = "float32",
    since: int = 1,
    **attributes: Any,
) -> Work:
    """Returns the work of one layer; `weights` are the slots of constant inputs, None is an absent input."""
    values: list[Value] = []
    slots = []
    for slot, shape in enumerate(inputs):
        slots.append(-1 if shape is None else len(values))
        if shape is not None:
            values.append(Value(TensorType(dtype, shape), "constant" if slot in weights else "input"))
    made = tuple(range(len(values), len(values) + len(outputs)))
    values += [Value(TensorType(dtype, shape), "internal") for shape in outputs]
    kinds = {int: "i", float: "f", str: "s", list: "ints"}
    encoded = {name: {kinds[type(value)]: value} for name, value in attributes.items()}
    layer = SequenceLayer(op_type, domain, since, encoded, tuple(slots), made)
    return layer_work(LayerSequence((layer,), tuple(values), made), layer)


def test_convolution() -> None:
    """A convolution does two operations per output element, input channel and tap; each tensor is moved once."""
    work = work_of("Conv", [(1, 3, 224, 224), (64, 3, 7, 7), (64,)], [(1, 64, 112, 112)], weights=(1, 2))
    assert work.multiply_flops == 2 * 112 * 112 * 64 * 3 * 7 * 7
    assert work.other_flops == 64 * 112 * 112
    assert work.flops == work.multiply_flops + work.other_flops
    assert work.input_bytes == 4 * 3 * 224 * 224
    assert work.weight_bytes == 4 * (64 * 3 * 7 * 7 + 64)
    assert work.output_bytes == 4 * 64 * 112 * 112
    assert work.moved_bytes == work.input_bytes + work.weight_bytes + work.output_bytes


def test_grouped_convolution() -> None:
    """Each output channel reads only the input channels of its group."""
    work = work_of("Conv", [(2, 8, 10, 10), (16, 2, 3, 3)], [(2, 16, 10, 10)], weights=(1,), group=4)
    assert work.multiply_flops == 2 * (2 * 16 * 10 * 10) * (2 * 3 * 3)
    assert work.contraction is not None
    assert (work.contraction.batch, work.contraction.rows) == (2 * 4, 100)
    assert (work.contraction.columns, work.contraction.depth) == (4, 18)


def test_depthwise_convolution() -> None:
    """A depthwise convolution reads one input channel for each output channel."""
    work = work_of("Conv", [(1, 32, 56, 56), (32, 1, 3, 3)], [(1, 32, 56, 56)], weights=(1,), group=32)
    assert work.multiply_flops == 2 * 32 * 56 * 56 * 9


def test_quantised_convolution_reads_its_filter_from_the_fourth_input() -> None:
    """The filter of a QLinearConv is its fourth input, after scale and zero point of the data."""
    inputs: list[Shape | None] = [(1, 3, 8, 8), (), (), (4, 3, 3, 3), (4,), (4,), (), ()]
    work = work_of("QLinearConv", inputs, [(1, 4, 8, 8)], weights=(1, 2, 3, 4, 5, 6, 7), dtype="uint8")
    assert work.multiply_flops == 2 * (4 * 8 * 8) * (3 * 3 * 3)
    assert work.weight_bytes == 2 + 4 * 27 + 4 + 4 + 2


def test_channels_last_convolution_does_the_same_work() -> None:
    """A channels-last convolution has the same arithmetic as a channels-first one."""
    inputs: list[Shape | None] = [(1, 8, 8, 3), (), (), (4, 3, 3, 3), (), (), (), ()]
    work = work_of("QLinearConv", inputs, [(1, 8, 8, 4)], domain="com.microsoft", channels_last=1)
    assert work.multiply_flops == 2 * (4 * 8 * 8) * (3 * 3 * 3)
    assert work.contraction is not None
    assert work.contraction.rows == 64


def test_transposed_convolution() -> None:
    """A transposed convolution multiplies each input element with the kernel of every output channel of its group."""
    work = work_of("ConvTranspose", [(1, 16, 8, 8), (16, 4, 2, 2)], [(1, 8, 16, 16)], weights=(1,), group=2)
    assert work.multiply_flops == 2 * (16 * 8 * 8) * (4 * 2 * 2)


def test_convolution_along_one_axis() -> None:
    """A 1-D convolution has a 1-D window."""
    work = work_of("Conv", [(1, 80, 3000), (384, 80, 3)], [(1, 384, 3000)], weights=(1,))
    assert work.multiply_flops == 2 * 384 * 3000 * 80 * 3


@pytest.mark.parametrize(("transposed", "a"), [(0, (5, 7)), (1, (7, 5))])
def test_gemm(transposed: int, a: Shape) -> None:
    """The depth of a Gemm is the axis of A that is not a row of the result, for either value of transA."""
    work = work_of("Gemm", [a, (7, 3), (3,)], [(5, 3)], weights=(1, 2), transA=transposed)
    assert work.multiply_flops == 2 * 5 * 3 * 7
    assert work.other_flops == 15


def test_batched_matrix_product() -> None:
    """A batched MatMul has one product for each matrix of the batch."""
    work = work_of("MatMul", [(2, 12, 128, 64), (2, 12, 64, 128)], [(2, 12, 128, 128)])
    assert work.multiply_flops == 2 * (2 * 12) * 128 * 128 * 64
    assert work.contraction is not None
    assert work.contraction.batch == 24


def test_matrix_product_with_one_matrix_folds_the_batch_into_rows() -> None:
    """With one right-hand matrix for the whole batch, MatMul is a single product with more rows."""
    work = work_of("MatMul", [(4, 128, 768), (768, 3072)], [(4, 128, 3072)], weights=(1,))
    assert work.multiply_flops == 2 * 4 * 128 * 3072 * 768
    assert work.contraction is not None
    assert (work.contraction.batch, work.contraction.rows) == (1, 4 * 128)


@pytest.mark.parametrize(
    ("a", "b", "made"),
    [((64,), (64,), ()), ((8, 64), (64,), (8,)), ((64,), (64, 8), (8,)), ((64,), (3, 64, 8), (3, 8))],
)
def test_matrix_product_with_vectors(a: Shape, b: Shape, made: Shape) -> None:
    """A vector operand of MatMul is a matrix with one row or column."""
    assert work_of("MatMul", [a, b], [made]).multiply_flops == 2 * 64 * prod(made)


def test_fused_matrix_product_with_transposed_left_side() -> None:
    """FusedMatMul's depth is the last axis but one with transA, and the first with transBatchA too."""
    plain = work_of("FusedMatMul", [(2, 64, 5), (2, 64, 7)], [(2, 5, 7)], domain="com.microsoft", transA=1)
    batched = work_of(
        "FusedMatMul", [(64, 2, 5), (2, 64, 7)], [(2, 5, 7)], domain="com.microsoft", transA=1, transBatchA=1
    )
    assert plain.multiply_flops == batched.multiply_flops == 2 * 2 * 5 * 7 * 64


@pytest.mark.parametrize(("op_type", "gates"), [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
@pytest.mark.parametrize("directions", [1, 2])
def test_recurrent_layers(op_type: str, gates: int, directions: int) -> None:
    """In each step and direction, every gate reads the input and the hidden state."""
    steps, batch, width, hidden = 10, 3, 40, 32
    work = work_of(
        op_type,
        [(steps, batch, width), (directions, gates * hidden, width), (directions, gates * hidden, hidden)],
        [(steps, directions, batch, hidden)],
        weights=(1, 2),
        hidden_size=hidden,
    )
    assert work.multiply_flops == 2 * steps * directions * batch * gates * hidden * (width + hidden)


def test_quantised_recurrent_layer_has_transposed_weights() -> None:
    """DynamicQuantizeLSTM does the work of LSTM, although its weights' last two axes are exchanged."""
    work = work_of(
        "DynamicQuantizeLSTM", [(10, 3, 40), (1, 40, 128), (1, 32, 128)], [(10, 1, 3, 32)], domain="com.microsoft"
    )
    assert work.multiply_flops == 2 * 10 * 3 * 128 * (40 + 32)


@pytest.mark.parametrize(
    ("equation", "inputs", "made", "multiplications"),
    [
        ("bhqd,bhkd->bhqk", [(2, 4, 5, 8), (2, 4, 6, 8)], (2, 4, 5, 6), 2 * 4 * 5 * 6 * 8),
        ("ij, jk -> ik", [(3, 4), (4, 5)], (3, 5), 60),
        ("ij,ij->", [(3, 4), (3, 4)], (), 12),
        ("ij,jk", [(3, 4), (4, 5)], (3, 5), 60),
        ("ij,jk->ik", [(1, 4), (4, 5)], (1, 5), 20),
        ("...ij,...jk->...ik", [(2, 3, 4), (2, 4, 5)], (2, 3, 5), 120),
        ("i,j,k->ijk", [(2,), (3,), (4,)], (2, 3, 4), 2 * 3 + 2 * 3 * 4),
    ],
)
def test_einsum(equation: str, inputs: list[Shape | None], made: Shape, multiplications: int) -> None:
    """Each product of an Einsum has one multiplication for each combination of the indices of its operands."""
    assert work_of("Einsum", inputs, [made], equation=equation).multiply_flops == 2 * multiplications


def test_attention_over_queries_keys_and_values() -> None:
    """Attention counts two products, scores and weighted sum, for each pair of query and key."""
    shapes: list[Shape | None] = [(2, 8, 10, 64), (2, 8, 20, 64), (2, 8, 20, 64)]
    assert work_of("Attention", shapes, [(2, 8, 10, 64)]).multiply_flops == 2 * 2 * (2 * 8) * 10 * 20 * 64


def test_attention_counts_the_keys_of_earlier_calls() -> None:
    """Attention counts cached keys like new ones."""
    work = work_of(
        "Attention",
        [(2, 1, 512), (2, 1, 512), (2, 1, 512), None, (2, 8, 99, 64), (2, 8, 99, 64)],
        [(2, 1, 512), (2, 8, 100, 64), (2, 8, 100, 64)],
        q_num_heads=8,
        kv_num_heads=8,
    )
    assert work.multiply_flops == 2 * 2 * (2 * 8) * 1 * 100 * 64


def test_attention_with_weights_also_projects() -> None:
    """com.microsoft's Attention also projects its one input to queries, keys and values."""
    work = work_of(
        "Attention", [(1, 128, 768), (768, 2304), (2304,)], [(1, 128, 768)],
        weights=(1, 2), domain="com.microsoft", num_heads=12,
    )  # fmt: skip
    assert work.multiply_flops == 2 * 128 * 2304 * 768 + 2 * 2 * 12 * 128 * 128 * 64
    assert work.contraction is not None
    assert work.contraction.columns == 2304


def test_grouped_query_attention_of_packed_queries() -> None:
    """Work of grouped-query attention follows the query heads, also with keys and values packed into the query."""
    work = work_of(
        "GroupQueryAttention",
        [(1, 16, (8 + 2 * 2) * 64), None, None, (1, 2, 0, 64), (1, 2, 0, 64), (1,), ()],
        [(1, 16, 512), (1, 2, 16, 64), (1, 2, 16, 64)],
        domain="com.microsoft",
        num_heads=8,
        kv_num_heads=2,
    )
    assert work.multiply_flops == 2 * 2 * 8 * 16 * 16 * 64


def test_pools() -> None:
    """A pool reads a window for each output element; a global pool reads each input element once.

    From opset 19 on, averages are computed one element at a time where channels are not blocked.
    """
    for op_type, since, each in (("MaxPool", 12, 1), ("AveragePool", 11, 1), ("AveragePool", 19, 30)):
        window = {"kernel_shape": [3, 3], "strides": [2, 2]}
        work = work_of(op_type, [(1, 64, 55, 55)], [(1, 64, 27, 27)], since=since, **window)
        assert (work.multiply_flops, work.other_flops) == (0, each * 64 * 27 * 27 * 9)
    assert work_of("GlobalAveragePool", [(1, 64, 7, 7)], [(1, 64, 1, 1)]).other_flops == 64 * 7 * 7


def test_local_response_normalisation() -> None:
    """LRN counts a window of channels and one power for each element, which takes most of the time."""
    elements = 96 * 54 * 54
    narrow, wide = (work_of("LRN", [(1, 96, 54, 54)], [(1, 96, 54, 54)], size=size) for size in (3, 5))
    assert wide.other_flops - narrow.other_flops == 2 * elements
    assert narrow.one_by_one_flops == wide.one_by_one_flops > 100 * elements
    assert wide.scalar_calls == elements


def test_elementwise_layers() -> None:
    """An addition counts one operation per element, an exponential several, a power one scalar call."""
    shape = (8, 100)
    assert work_of("Add", [shape, shape], [shape]).other_flops == 800
    assert work_of("Add", [shape, (100,)], [shape], weights=(1,)).weight_bytes == 400
    assert work_of("Sum", [shape] * 4, [shape]).other_flops == 3 * 800
    assert work_of("Erf", [shape], [shape]).other_flops > 5 * 800
    assert work_of("Pow", [shape, shape], [shape]).scalar_calls == 800
    assert work_of("ReduceMean", [shape], [(8, 1)]).other_flops == 800
    assert work_of("LayerNormalization", [shape, (100,), (100,)], [shape], weights=(1, 2)).other_flops == 8 * 800


@pytest.mark.parametrize(("exponent", "calls"), [((2.0,), 0), ((3.0,), 0), ((2,), 0), ((2.5,), 800), (None, 800)])
def test_a_square_is_a_product(exponent: tuple[float, ...] | None, calls: int) -> None:
    """Pow with the constant exponent 2 is a product; other or unknown exponents are scalar calls."""
    data, power = TensorType("float32", (8, 100)), TensorType("float32", ())
    values = (Value(data, "input"), Value(power, "constant", exponent), Value(data, "internal"))
    layer = SequenceLayer("Pow", "", 7, {}, (0, 1), (2,))
    assert layer_work(LayerSequence((layer,), values, (2,)), layer).scalar_calls == calls


def test_the_same_input_twice_is_read_once() -> None:
    """A layer that reads the same tensor twice moves it once."""
    layer = SequenceLayer("Mul", "", 7, {}, (0, 0), (1,))
    kind = TensorType("float32", (10,))
    sequence = LayerSequence((layer,), (Value(kind, "input"), Value(kind, "internal")), (1,))
    assert layer_work(sequence, layer).input_bytes == 40


def test_views_compute_nothing() -> None:
    """Reshape has no arithmetic, and Shape does not read its input."""
    assert work_of("Reshape", [(2, 8), (1,)], [(16,)], weights=(1,)).flops == 0
    shape = work_of("Shape", [(1000, 1000)], [(2,)])
    assert (shape.flops, shape.input_bytes) == (0, shape.output_bytes)


def test_a_look_up_reads_only_what_it_writes() -> None:
    """Gather reads only the selected rows of its table."""
    work = work_of("Gather", [(50_000, 768), (1, 16)], [(1, 16, 768)], weights=(0,))
    assert work.weight_bytes == work.output_bytes == 4 * 16 * 768
    work = work_of("Slice", [(1000, 8), (1,), (1,)], [(10, 8)], weights=(1, 2))
    assert work.input_bytes == 4 * 80


def test_half_a_byte_each() -> None:
    """4-bit block-quantised weights count half a byte each."""
    work = work_of(
        "MatMulNBits", [(1, 16, 64), (32, 2, 16), (64,)], [(1, 16, 32)], domain="com.microsoft", N=32, K=64, bits=4
    )
    assert work.multiply_flops == 2 * 16 * 32 * 64
    assert TensorType("uint4", (32, 64)).nbytes == 32 * 64 // 2


@given(batch=st.integers(1, 64), channels=st.integers(1, 8), size=st.integers(1, 12), group=st.integers(1, 3))
def test_operations_grow_linearly_with_the_batch(batch: int, channels: int, size: int, group: int) -> None:
    """Twice the batch has twice the arithmetic and the same weights, for every layer."""

    def works(images: int) -> list[Work]:
        data = (images, channels * group, size, size)
        flat = (images, channels * size)
        return [
            work_of("Conv", [data, (5 * group, channels, 1, 1)], [(images, 5 * group, size, size)],
                    weights=(1,), group=group),
            work_of("ConvTranspose", [data, (channels * group, 5, 1, 1)], [(images, 5 * group, size, size)],
                    weights=(1,), group=group),
            work_of("Gemm", [flat, (channels * size, 7)], [(images, 7)], weights=(1,)),
            work_of("MatMul", [data, data], [(*data[:2], size, size)]),
            work_of("MaxPool", [data], [data], kernel_shape=[3, 3]),
            work_of("GlobalAveragePool", [data], [(images, channels * group, 1, 1)]),
            work_of("Softmax", [flat], [flat]),
            work_of("LRN", [data], [data], size=5),
            work_of("LSTM", [(size, images, 4), (1, 12, 4), (1, 12, 3)], [(size, 1, images, 3)], weights=(1, 2)),
            work_of("Attention", [(images, 2, size, 8)] * 3, [(images, 2, size, 8)]),
        ]  # fmt: skip

    for one, many in zip(works(1), works(batch), strict=True):
        assert many.multiply_flops == batch * one.multiply_flops
        assert many.other_flops == batch * one.other_flops
        assert many.scalar_calls == batch * one.scalar_calls
        assert many.weight_bytes == one.weight_bytes


def test_work_of_real_layers_is_finite_and_counts_every_product(
    light_name: str, lowered_light: Callable[[str], LayerGraph]
) -> None:
    """Work of the light models' layers is finite, and every convolution and product has arithmetic."""
    for sequence in decompose(light_name, lowered_light(light_name)).unique.values():
        for layer in sequence.layers:
            work = layer_work(sequence, layer)
            amounts = (work.multiply_flops, work.other_flops, work.scalar_calls, work.moved_bytes)
            assert all(0 <= amount < 1e15 for amount in amounts)
            assert (work.output_bytes == 0) == (
                layer.op_type in ("Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity")
            )
            assert (work.multiply_flops > 0) == (layer.op_type in ("Conv", "FusedConv", "Gemm", "FusedGemm", "MatMul"))


def test_the_arithmetic_of_a_known_model(lowered_light: Callable[[str], LayerGraph]) -> None:
    """VGG-19 takes 19.6 billion multiply-adds for one image (Simonyan and Zisserman, 2014)."""
    segments = decompose("vgg19", lowered_light("vgg19")).segments
    total = sum(layer_work(segment.sequence, segment.sequence.layers[0]).multiply_flops for segment in segments)
    assert total / 2 == pytest.approx(19.6e9, rel=0.01)


@pytest.mark.parametrize(("length", "transforms"), [(512, 1.0), (400, 2.3)])
def test_short_fourier_transforms_take_as_long_as_so_many_of_their_length(length: int, transforms: float) -> None:
    """Each frame is transformed; a length that is no power of two needs longer transforms, and more of them."""
    frames, bins = 100, length // 2 + 1
    work = work_of("STFT", [(1, 16000), (), (length,)], [(1, frames, bins, 2)], weights=(2,), since=17)
    padded = length if transforms == 1 else 1024
    one = work_of("DFT", [(1, frames, padded, 1)], [(1, frames, bins, 2)], since=17, axis=2)
    assert work.other_flops == pytest.approx(transforms * one.other_flops, rel=0.01)


@pytest.mark.parametrize("op_type", ["Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity", "ExpandDims"])
def test_a_view_is_an_empty_layer(op_type: str) -> None:
    """The runtime passes the buffer on, whatever its size."""
    work = work_of(op_type, [(64, 1024, 1024)], [(64, 1, 1024, 1024)])
    assert (work.moved_bytes, work.flops, work.copy_flops) == (0, 0, 0)


@pytest.mark.parametrize("op_type", ["SkipLayerNormalization", "Softplus", "Selu", "PRelu", "DepthToSpace"])
def test_what_is_computed_one_by_one_takes_longer_than_vectors(op_type: str) -> None:
    """ONNX Runtime has no vectors for it; a runtime that has them does not count it."""
    work = work_of(op_type, [(1, 8, 32, 32)] * 2, [(1, 8, 32, 32)])
    assert work.one_by_one_flops > work.other_flops > 0
    with_vectors = replace(SYSTEM, runtime="openvino")
    assert other_flops_of(work, SYSTEM) == work.other_flops + work.one_by_one_flops
    assert other_flops_of(work, with_vectors) == work.other_flops
