"""How products of integers are computed: through pointers to windows or copies of them, by which instruction."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.features.analytical_bound import bound_us, kernel_slowdown
from costmodel.features.channel_order import channels_first
from costmodel.features.integer_products import IntegerPath, IntegerProducts
from costmodel.features.schema import SCHEMA
from costmodel.features.tabular import Encoder
from costmodel.features.work import layer_work
from costmodel.ir.graph import TensorType
from costmodel.ir.sequence import LayerSequence, SequenceLayer, Value
from tests.synthetic import SYSTEM

SIDE = 14


def convolution(
    channels: int,
    filters: int,
    *,
    window: int = 3,
    group: int = 1,
    stride: int = 1,
    dilation: int = 1,
    weights: str = "int8",
    channels_last: bool = True,
    side: int = SIDE,
) -> LayerSequence:
    """Returns a quantised convolution of one image as a sequence."""

    def image(channels: int, side: int) -> TensorType:
        shape = (1, side, side, channels) if channels_last else (1, channels, side, side)
        return TensorType("uint8", shape)

    scale, zero = TensorType("float32", ()), TensorType("uint8", ())
    taps = (filters, channels // group, window, window)
    values = (
        Value(image(channels, side), "input"),
        Value(scale, "constant"),
        Value(zero, "constant"),
        Value(TensorType(weights, taps), "constant"),
        Value(TensorType("float32", (filters,)), "constant"),
        Value(TensorType(weights, (filters,)), "constant"),
        Value(scale, "constant"),
        Value(zero, "constant"),
        Value(image(filters, -(-side // stride)), "internal"),
    )
    attributes = {
        "channels_last": {"i": int(channels_last)},
        "group": {"i": group},
        "kernel_shape": {"ints": [window, window]},
        "strides": {"ints": [stride, stride]},
        "dilations": {"ints": [dilation, dilation]},
        "pads": {"ints": [window // 2 * dilation] * 4},
    }
    layer = SequenceLayer("QLinearConv", "com.microsoft", 1, attributes, tuple(range(8)), (8,))
    return LayerSequence((layer,), values, (8,))


def integers(sequence: LayerSequence) -> IntegerProducts:
    """Returns how the only layer of a sequence multiplies integers."""
    return layer_work(sequence, sequence.layers[0]).integers


@pytest.mark.parametrize(
    ("sequence", "path"),
    [
        (convolution(64, 64), IntegerPath.BY_POINTERS),
        (convolution(64, 64, window=1), IntegerPath.BY_POINTERS),
        (convolution(3, 64), IntegerPath.SIGNED),  # three channels cannot be multiplied by fours
        (convolution(64, 12), IntegerPath.SIGNED),  # fewer filters than are computed at once
        (convolution(64, 64, group=4), IntegerPath.SIGNED),
        (convolution(64, 64, weights="uint8"), IntegerPath.SAME_SIGN),
        (convolution(64, 64, group=64), IntegerPath.DEPTHWISE),
        (convolution(72, 72, group=72), IntegerPath.DEPTHWISE_REST),
        (convolution(64, 64, group=64, weights="uint8"), IntegerPath.DEPTHWISE_REST),
    ],
)
def test_channels_groups_and_signs_decide_the_path(sequence: LayerSequence, path: IntegerPath) -> None:
    """The path is that of ONNX Runtime's kernels, and a feature."""
    assert integers(sequence).path == path
    row = Encoder(SYSTEM).encode([sequence]).features[0]
    assert row[SCHEMA.names.index("integer_path")] == path


def test_a_convolution_copies_its_windows_group_by_group() -> None:
    """A window of all channels is copied row by row, one of a group's channels element by element, a dilated one too.

    With one element there is nothing to copy but the rows that the product packs.
    """
    whole, grouped = integers(convolution(30, 64)), integers(convolution(32, 64, group=8))
    assert grouped.copy_flops > 5 * whole.copy_flops
    assert integers(convolution(30, 64, dilation=2)).copy_flops > 1.5 * whole.copy_flops
    assert integers(convolution(30, 64, window=1)).copy_flops < whole.copy_flops / 4
    assert grouped.workspace_bytes == SIDE * SIDE * (32 * 9 + 4 * 64)


def test_a_convolution_by_pointers_copies_no_window() -> None:
    """It has a pointer for each element of each window, unless the windows are the elements of its input."""
    assert integers(convolution(64, 64)).workspace_bytes == 8 * 9 * SIDE * SIDE
    assert integers(convolution(64, 64, window=1)).workspace_bytes == 0
    assert integers(convolution(64, 64, window=1, stride=2)).workspace_bytes == 8 * SIDE * SIDE // 4
    assert integers(convolution(64, 64)).copy_flops < integers(convolution(62, 64)).copy_flops / 4


def test_a_convolution_with_channels_first_transposes_its_images() -> None:
    """It costs more than with channels last, by the same for any window."""
    more = [
        integers(convolution(64, 32, window=window, channels_last=False)).copy_flops
        - integers(convolution(64, 32, window=window)).copy_flops
        for window in (1, 3)
    ]
    assert more[0] == more[1] > 0


def test_products_of_unsigned_with_signed_integers_are_quickest() -> None:
    """With an instruction of their own they are twice as quick as without it, and than others."""
    host = SYSTEM.host
    assert host is not None
    without = tuple(name for name in host.isa if "vnni" not in name)
    plain, quick = (replace(SYSTEM, host=replace(host, isa=isa)) for isa in (without, (*without, "avx512_vnni")))
    signed, same = convolution(64, 64), convolution(64, 64, weights="uint8")
    for sequence, factor in ((signed, 2.0), (same, 1.0)):
        work = layer_work(sequence, sequence.layers[0])
        assert kernel_slowdown(work, plain) == factor * kernel_slowdown(work, quick)
    assert bound_us(signed, quick) < bound_us(same, quick)


@given(
    group=st.sampled_from((1, 2, 16, 48)),
    width=st.integers(1, 40),
    window=st.integers(1, 5),
    stride=st.integers(1, 3),
    channels_last=st.booleans(),
    weights=st.sampled_from(("int8", "uint8")),
)
def test_more_positions_never_cost_less(
    group: int, width: int, window: int, stride: int, channels_last: bool, weights: str
) -> None:
    """On a larger image, copies, workspace and bound of any convolution are at least as large."""
    small, large = (
        convolution(
            group * width,
            group * width,
            window=window,
            group=group,
            stride=stride,
            channels_last=channels_last,
            weights=weights,
            side=side,
        )
        for side in (7, 15)
    )
    assert integers(small).copy_flops <= integers(large).copy_flops
    assert integers(small).workspace_bytes <= integers(large).workspace_bytes
    assert bound_us(small, SYSTEM) <= bound_us(large, SYSTEM)


def test_layers_are_described_alike_wherever_their_channels_are() -> None:
    """The features of an image's channels, positions and padding do not depend on the order of its axes."""
    first, last = (
        Encoder(SYSTEM).encode([convolution(64, 32, channels_last=channels_last)]).features[0]
        for channels_last in (False, True)
    )
    for name in ("log_in_channels", "log_out_channels", "log_in_positions", "log_out_width", "padding_share", "stride"):
        column = SCHEMA.names.index(name)
        assert first[column] == last[column], name
    layer = convolution(64, 32).layers[0]
    assert channels_first(layer, TensorType("uint8", (2, 5, 7, 64))).shape == (2, 64, 5, 7)
    assert channels_first(layer, TensorType("int32", (64,))).shape == (64,)


@pytest.mark.parametrize(("weights", "path"), [("int8", IntegerPath.SIGNED_FIRST), ("uint8", IntegerPath.SAME_SIGN)])
def test_a_convolution_multiplies_its_filters_by_its_data(weights: str, path: IntegerPath) -> None:
    """So signed filters are the first operand, for which there is no kernel with vectors of bytes."""
    image = TensorType("uint8", (1, 64, 30))
    values = (
        Value(image, "input"),
        Value(TensorType(weights, (32, 64, 3)), "constant"),
        Value(TensorType("int32", (1, 32, 30)), "internal"),
    )
    window = {"kernel_shape": {"ints": [3]}, "pads": {"ints": [1, 1]}}
    layer = SequenceLayer("ConvInteger", "", 10, window, (0, 1), (2,))
    found = integers(LayerSequence((layer,), values, (2,)))
    assert (found.path, found.columns, found.workspace_bytes) == (path, 30, 64 * 3 * 30)


@pytest.mark.parametrize("weights", ["int8", "uint8"])
def test_a_convolution_that_does_not_rescale_packs_its_windows_for_any_number_of_filters(weights: str) -> None:
    """It takes time for each byte, more for short rows and for bytes that are no neighbours, none of it for filters."""

    def copied(filters: int, image: tuple[int, int], window: int = 3, stride: int = 1) -> float:
        sizes = tuple(size // stride for size in image)
        values = (
            Value(TensorType("uint8", (1, 8, *image)), "input"),
            Value(TensorType(weights, (filters, 8, window, window)), "constant"),
            Value(TensorType("int32", (1, filters, *sizes)), "internal"),
        )
        attributes = {"kernel_shape": {"ints": [window] * 2}, "strides": {"ints": [stride] * 2}}
        layer = SequenceLayer("ConvInteger", "", 10, attributes, (0, 1), (2,))
        return integers(LayerSequence((layer,), values, (2,))).copy_flops / (8 * window**2 * sizes[0] * sizes[1])

    wide, narrow, strided = copied(4, (8, 128)), copied(4, (128, 8)), copied(4, (16, 256), stride=2)
    assert copied(400, (8, 128)) == wide
    assert copied(4, (8, 128), window=1) < wide < min(narrow, strided)
