"""Memory access patterns of layers in ONNX's text form."""

from collections.abc import Callable

import pytest
from onnx import ModelProto

from costmodel.features.access_pattern import AccessPattern, access_pattern_of
from costmodel.ir.graph import LayerGraph
from costmodel.partition.decomposition import decompose

Walked = Callable[..., AccessPattern]


@pytest.fixture
def walked(parse: Callable[..., ModelProto], lower: Callable[..., LayerGraph]) -> Walked:
    """Returns the access pattern of the only layer of a model in text form."""

    def walked(text: str, opset: int = 21) -> AccessPattern:
        (segment,) = decompose("m", lower(parse(text, opset=opset), "none")).segments
        return access_pattern_of(segment.sequence, segment.sequence.layers[0])

    return walked


@pytest.mark.parametrize(
    ("order", "kept", "run"), [("[1, 0, 2]", True, 64), ("[0, 2, 1]", False, 1), ("[2, 1, 0]", False, 1)]
)
def test_a_transpose_knows_what_stays_together(walked: Walked, order: str, kept: bool, run: int) -> None:
    """A Transpose has the length of the runs that it copies: 64 contiguous numbers or single ones."""
    walk = walked(f"(float[4,8,64] x) => (float y) {{ y = Transpose<perm = {order}>(x) }}")
    assert (walk.last_axis_kept, walk.inner_run) == (kept, run)


@pytest.mark.parametrize(
    ("axis", "opset", "size", "run"), [(1, 21, 8, 64), (-1, 21, 64, 1), (None, 21, 64, 1), (1, 11, 512, 1)]
)
def test_softmax_has_the_axis_of_its_version(walked: Walked, axis: int | None, opset: int, size: int, run: int) -> None:
    """Softmax's default is the last axis; before version 13 it covers all axes from the given one."""
    named = "" if axis is None else f"<axis: int = {axis}>"
    walk = walked(f"(float[4,8,64] x) => (float[4,8,64] y) {{ y = Softmax{named}(x) }}", opset)
    assert (walk.axis_size, walk.inner_run, walk.last_axis_kept) == (size, run, run > 1)


@pytest.mark.parametrize(("axes", "size", "run"), [("{1}", 8, 64), ("{1, 2}", 512, 1), ("{0}", 4, 512)])
def test_a_reduction_has_the_axes_of_its_input(walked: Walked, axes: str, size: int, run: int) -> None:
    """The axes of a reduction are read from its constant input."""
    count = axes.count(",") + 1
    walk = walked(f"(float[4,8,64] x) => (float y) <int64[{count}] a = {axes}> {{ y = ReduceSum(x, a) }}")
    assert (walk.axis_size, walk.inner_run) == (size, run)


def test_a_reduction_without_axes_may_do_nothing(walked: Walked) -> None:
    """With `noop_with_empty_axes` no axis is reduced, without it all are."""
    text = "(float[4,8,64] x) => (float y) {{ y = ReduceSum{}(x) }}"
    assert walked(text.format("")).axis_size == 4 * 8 * 64
    assert walked(text.format("<noop_with_empty_axes: int = 1>")).axis_size == 1


@pytest.mark.parametrize(("axis", "size"), [(-1, 64), (1, 8 * 64)])
def test_a_normalisation_covers_all_axes_from_its_own(walked: Walked, axis: int, size: int) -> None:
    """A LayerNormalization along the second axis of three works along the third as well."""
    shape = "[64]" if axis == -1 else "[8,64]"
    text = f"(float[4,8,64] x, float{shape} s) => (float[4,8,64] y)"
    walk = walked(f"{text} {{ y = LayerNormalization<axis: int = {axis}>(x, s) }}")
    assert (walk.axis_size, walk.inner_run, walk.last_axis_kept) == (size, 1, False)


@pytest.mark.parametrize(("scales", "size"), [("", 1), ("[8]", 8)])
def test_one_scale_for_all_elements_has_no_axis(walked: Walked, scales: str, size: int) -> None:
    """A quantisation has an axis if it has a scale for each element along it."""
    text = f"(float[4,8,64] x, float{scales} s, uint8{scales} z) => (uint8[4,8,64] y)"
    assert walked(f"{text} {{ y = QuantizeLinear(x, s, z) }}").axis_size == size


def test_a_slice_copies_what_it_keeps(walked: Walked) -> None:
    """A Slice of half of the middle axis copies runs of 4 x 64 elements."""
    walk = walked(
        "(float[4,8,64] x) => (float[4,4,64] y) <int64[1] s = {0}, int64[1] e = {4}, int64[1] a = {1}>"
        " { y = Slice(x, s, e, a) }"
    )
    assert walk.inner_run == 4 * 64


@pytest.mark.parametrize(
    ("shape", "ratio", "inner"), [("64", 1 / 32, True), ("8,1", 1 / 256, False), ("1", 1 / 2048, False)]
)
def test_a_broadcast_operand_is_recognised(walked: Walked, shape: str, ratio: float, inner: bool) -> None:
    """Broadcasting along the last axis, per channel, and of a scalar are three different patterns."""
    walk = walked(f"(float[4,8,64] x, float[{shape}] b) => (float[4,8,64] y) {{ y = Add(x, b) }}")
    assert walk.other_operand == pytest.approx(ratio)
    assert walk.other_operand_inner is inner


@pytest.mark.parametrize(("mode", "expected"), [("nearest", 0), ("linear", 1), ("cubic", 2)])
def test_interpolation_is_recognised(walked: Walked, mode: str, expected: float) -> None:
    """Nearest interpolation reads one pixel, linear four, cubic sixteen."""
    walk = walked(
        "(float[1,3,8,8] x) => (float[1,3,16,16] y) <float[4] s = {1.0, 1.0, 2.0, 2.0}>"
        f' {{ y = Resize<mode = "{mode}">(x, , s) }}'
    )
    assert walk.interpolation == expected
