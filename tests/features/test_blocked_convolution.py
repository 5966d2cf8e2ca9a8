"""How well blocked convolutions fill the vector units: geometry counted by hand, and what must be slower than what."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.features.blocked_convolution import BlockedConvolution
from costmodel.ir.graph import TensorType
from costmodel.ir.sequence import SequenceLayer


def _conv(
    image: tuple[int, int, int, int],
    filters: int,
    kernel: tuple[int, int] = (3, 3),
    *,
    stride: int = 1,
    dilation: int = 1,
    pads: tuple[int, int, int, int] = (0, 0, 0, 0),
    group: int = 1,
    blocked: bool = True,
) -> BlockedConvolution:
    """Returns a convolution of a blocked image, or of one that is not blocked."""
    sides = [(image[2 + i] + pads[i] + pads[2 + i] - dilation * (kernel[i] - 1) - 1) // stride + 1 for i in range(2)]
    attributes = {
        "kernel_shape": {"ints": list(kernel)}, "strides": {"ints": [stride] * 2},
        "dilations": {"ints": [dilation] * 2},
        "pads": {"ints": list(pads)}, "group": {"i": group},
    }  # fmt: skip
    layer = SequenceLayer("Conv", "com.microsoft.nchwc", 1, attributes, (0, 1), (2,))
    output = TensorType("float32", (image[0], filters, *sides), blocked=True)
    found = BlockedConvolution.of(layer, TensorType("float32", image, blocked=blocked), output)
    assert found is not None
    return found


@given(
    size=st.integers(1, 12), window=st.integers(1, 5), stride=st.integers(1, 3), dilation=st.integers(1, 3),
    before=st.integers(0, 6), after=st.integers(0, 6),
)  # fmt: skip
def test_elements_in_the_padding_are_not_multiplied(
    size: int, window: int, stride: int, dilation: int, before: int, after: int
) -> None:
    """Positions and elements of the window inside the image are those that a loop over all of them counts."""
    after += max(0, dilation * (window - 1) + 1 - size - before - after)
    conv = _conv((1, 16, size, 6), 16, (window, 1), stride=stride, dilation=dilation, pads=(before, 0, after, 0))
    rows = conv.rows
    positions = range(rows.inside + rows.outside)
    taps = [
        sum(0 <= position * stride - before + element * dilation < size for element in range(window))
        for position in positions
    ]
    assert rows.taps == sum(taps)
    assert rows.inside == sum(found == window for found in taps)


@pytest.mark.parametrize("units", [1.0, 2.0])
def test_a_convolution_that_fits_keeps_the_units_busy(units: float) -> None:
    """Four blocks of filters and rows of six times six positions take little more than the multiplications."""
    for kernel in ((1, 1), (3, 3)):
        conv = _conv((1, 256, 40, 36 + kernel[0] - 1), 256, kernel)
        assert 1.0 <= conv.slowdown(16, units) < 1.1


@pytest.mark.parametrize(
    ("slower", "quicker"),
    [
        (_conv((1, 64, 30, 3), 64, pads=(1, 0, 1, 0)), _conv((1, 64, 30, 8), 64)),  # one position in a row, or six
        (_conv((1, 64, 30, 1), 64, (3, 1), dilation=2), _conv((1, 64, 30, 1), 64, (3, 1))),  # row by row, or as one row
        (_conv((1, 64, 30, 1), 16, (9, 1), dilation=2), _conv((1, 16, 30, 1), 16, (3, 1), dilation=2)),  # long chains
        (_conv((1, 64, 30, 26), 16), _conv((1, 64, 30, 26), 64)),  # one block of filters, or four
        (_conv((1, 64, 30, 26), 50), _conv((1, 64, 30, 26), 64)),  # a block that is not full
        (_conv((1, 64, 30, 26), 64, group=64), _conv((1, 64, 30, 26), 64)),  # each channel alone, or all together
        (_conv((1, 3, 30, 26), 64, blocked=False), _conv((1, 64, 30, 26), 64)),  # few channels
        (_conv((1, 64, 30, 9), 64, (1, 1), stride=2), _conv((1, 64, 15, 5), 64, (1, 1))),  # rows one by one
    ],
)
@pytest.mark.parametrize("units", [1.0, 2.0])
def test_what_leaves_units_idle_is_slower(
    slower: BlockedConvolution, quicker: BlockedConvolution, units: float
) -> None:
    """Small segments, blocks that are not full, and few multiplications for each call cost time."""
    assert slower.slowdown(16, units) > quicker.slowdown(16, units)


def test_a_window_as_wide_as_the_image_moves_along_one_row() -> None:
    """A plain convolution of a column takes as long as that of a row, to the last position."""
    column, row = _conv((1, 64, 100, 1), 64, (5, 1)), _conv((1, 64, 1, 100), 64, (1, 5))
    assert column.slowdown(16, 2.0) == row.slowdown(16, 2.0)
    assert column.flops == row.flops
    wide = _conv((1, 64, 100, 4), 64, (5, 4))
    assert (wide.columns.inside, wide.columns.window, wide.flops) == (96, 20, 2 * 64 * 64 * 96 * 20)


def test_padding_saves_multiplications() -> None:
    """A dilated window that lies mostly in the padding takes less time than its multiplications without padding."""
    assert _conv((1, 64, 12, 12), 64, dilation=12, pads=(12, 12, 12, 12)).slowdown(16, 2.0) < 0.8


@given(
    sizes=st.tuples(*[st.integers(0, 40)] * 4), filters=st.integers(0, 40), pad=st.integers(0, 10**9),
    lanes=st.sampled_from([4, 8, 16]),
)  # fmt: skip
def test_a_slowdown_is_positive_and_finite(
    sizes: tuple[int, int, int, int], filters: int, pad: int, lanes: int
) -> None:
    """Absurd paddings and empty tensors give a positive finite number at once."""
    conv = _conv((sizes[0], sizes[1], sizes[2] + 3, sizes[3] + 3), filters, pads=(pad, pad, pad, pad))
    assert 0 < conv.slowdown(lanes, 2.0) < float("inf")


def test_other_layers_are_not_blocked() -> None:
    """Pooling, sequences, volumes and convolutions whose output is not blocked have no blocks of channels."""
    image, sequence = (
        TensorType("float32", (1, 16, 8, 8), blocked=True),
        TensorType("float32", (1, 16, 8), blocked=True),
    )
    plain = TensorType("float32", (1, 16, 8, 8))
    square, line = {"kernel_shape": {"ints": [3, 3]}}, {"kernel_shape": {"ints": [3]}}
    for (op_type, attributes), (data, output) in product(
        [("MaxPool", square), ("Conv", line), ("Conv", {})], [(image, image), (sequence, sequence)]
    ):
        layer = SequenceLayer(op_type, "", 1, attributes, (0, 1), (2,))
        assert BlockedConvolution.of(layer, data, output) is None
    assert BlockedConvolution.of(SequenceLayer("Conv", "", 1, square, (0, 1), (2,)), image, plain) is None
