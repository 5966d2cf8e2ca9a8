"""Operations of layers that resample images."""

import pytest

from costmodel.features.work import layer_work
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


def test_an_image_of_its_own_size_is_copied() -> None:
    """Nothing is interpolated if the size stays, whatever the mode."""
    assert flops("Resize", IMAGE, IMAGE, mode="cubic") == 1


def test_a_sample_has_a_place_of_its_own() -> None:
    """A GridSample looks a place up for each element, a multiple of what a Resize does."""
    assert flops("GridSample", IMAGE, DOUBLED, mode="bilinear") > 2 * flops("Resize", IMAGE, DOUBLED, mode="linear")
    same = layer_of("GridSample", [IMAGE], IMAGE, since=20, mode="linear")  # no copy, under any runtime
    work = layer_work(same, same.layers[0])
    assert work.other_flops > 2 * same.values[-1].type.elements
