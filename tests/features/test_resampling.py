"""Operations of layers that resample images."""

import pytest

from costmodel.features.resampling import cubic_table_bytes
from costmodel.features.work import layer_work
from costmodel.ir.graph import TensorType
from tests.features.test_copies import Shape, layer_of

IMAGE, DOUBLED = (1, 64, 28, 28), (1, 64, 56, 56)


def flops(op_type: str, data: Shape, output: Shape, *, blocked: bool = False, **attributes: object) -> float:
    """Returns the operations of a layer for an element of its output, under ONNX Runtime."""
    sequence = layer_of(op_type, [data], output, since=19, blocked=blocked, **attributes)
    work = layer_work(sequence, sequence.layers[0])
    return (work.other_flops + work.one_by_one_flops) / sequence.values[-1].type.elements


def test_an_element_costs_more_the_more_pixels_it_is_interpolated_from() -> None:
    """The nearest pixel is cheaper than four, these than eight, and these than a cubic kernel."""
    nearest = flops("Resize", IMAGE, DOUBLED)
    four = flops("Resize", IMAGE, DOUBLED, mode="linear")
    eight = flops("Resize", (1, 8, 8, 8, 8), (1, 8, 16, 16, 16), mode="linear")
    cubic = flops("Resize", IMAGE, DOUBLED, mode="cubic")
    assert 0 < nearest < four < eight == 2 * four < cubic / 10


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_channels_that_are_last_or_in_blocks_are_resized_by_vectors(mode: str) -> None:
    """With vectors of channels an element takes a quarter, whether channels are in blocks or last."""
    plain = flops("Resize", IMAGE, DOUBLED, mode=mode)
    assert flops("Resize", (1, 28, 28, 64), (1, 56, 56, 64), mode=mode) == plain / 4
    assert flops("Upsample", IMAGE, DOUBLED, blocked=True, mode=mode) == plain / 4
    assert flops("Resize", IMAGE, DOUBLED, blocked=True, mode=mode) < plain  # by positions


def test_a_cubic_kernel_costs_more_the_less_of_its_rows_is_used_again() -> None:
    """Each row of the image is interpolated once: where it becomes smaller, fewer elements share that."""
    larger, smaller = flops("Resize", IMAGE, DOUBLED, mode="cubic"), flops("Resize", DOUBLED, IMAGE, mode="cubic")
    assert 1.5 * larger < smaller < 4 * larger


@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_antialiasing_reads_all_pixels_and_needs_no_table(mode: str) -> None:
    """An antialiased element costs more the more pixels it has, and never as much as a cubic kernel without it."""
    halved = flops("Resize", DOUBLED, IMAGE, mode=mode, antialias=1)
    quartered = flops("Resize", DOUBLED, (1, 64, 14, 14), mode=mode, antialias=1)
    assert flops("Resize", IMAGE, DOUBLED, mode=mode, antialias=1) < halved < quartered / 2
    assert quartered < flops("Resize", DOUBLED, IMAGE, mode="cubic")


def table_bytes(data: Shape, output: Shape, **attributes: object) -> int:
    """Returns the bytes of the hash maps of a Resize."""
    (layer,) = layer_of("Resize", [data], output, since=19, **attributes).layers
    return cubic_table_bytes(layer, TensorType("float32", data), TensorType("float32", output))


def test_a_cubic_kernel_has_tables_of_what_it_interpolated() -> None:
    """Hash maps grow with the columns of the output and the rows of the image; other modes have none."""
    small, large = (table_bytes((1, 3, 28, 28), (1, 3, height, 33), mode="cubic") for height in (33, 66))
    assert small == large > 0  # rows of the output are interpolated from entries that are there
    assert table_bytes((1, 3, 28, 28), (1, 3, 33, 45), mode="cubic") == small * 45 / 33
    assert table_bytes((1, 3, 59, 28), (1, 3, 33, 33), mode="cubic") == 2 * small
    assert table_bytes(IMAGE, DOUBLED, mode="cubic") == 0  # two maps, which are read in order
    for attributes in ({"mode": "linear"}, {"mode": "cubic", "antialias": 1}):
        assert table_bytes((1, 3, 28, 28), (1, 3, 33, 33), **attributes) == 0


def test_scattered_tables_cost_more() -> None:
    """Where the columns lie at many distances from pixels and the image is large, entries come from farther away."""
    scattered = flops("Resize", (1, 3, 240, 240), (1, 3, 224, 224), mode="cubic")
    assert scattered > 1.2 * flops("Resize", (1, 3, 24, 24), (1, 3, 22, 22), mode="cubic")


def test_an_image_of_its_own_size_is_copied() -> None:
    """Nothing is interpolated if the size stays, whatever the mode."""
    assert flops("Resize", IMAGE, IMAGE, mode="cubic") == 1


def test_a_sample_has_a_place_of_its_own() -> None:
    """A GridSample looks a place up for each element, a multiple of what a Resize does."""
    assert flops("GridSample", IMAGE, DOUBLED, mode="bilinear") > 2 * flops("Resize", IMAGE, DOUBLED, mode="linear")
    same = layer_of("GridSample", [IMAGE], IMAGE, since=20, mode="linear")  # no copy, under any runtime
    work = layer_work(same, same.layers[0])
    assert work.other_flops > 2 * same.values[-1].type.elements
