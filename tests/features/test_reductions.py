"""The way in which ONNX Runtime reduces a tensor, and what it costs."""

from dataclasses import replace
from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.features.analytical_bound import other_flops_of
from costmodel.features.reductions import ReductionPath, reduction_path
from costmodel.features.work import layer_work
from tests.fakes import fake_system
from tests.features.test_copies import Shape, layer_of, path_of


def flops(operator: str, shape: Shape, axes: list[int]) -> float:
    """Returns the operations of a reduction that keeps its axes, under ONNX Runtime."""
    output = tuple(1 if axis in axes else size for axis, size in enumerate(shape))
    sequence = layer_of(operator, [shape], output, axes=axes)
    work = layer_work(sequence, sequence.layers[0])
    return work.other_flops + work.one_by_one_flops


@pytest.mark.parametrize(
    ("shape", "axes", "path"),
    [
        ((2, 3, 4, 5), [0, 1, 2, 3], ReductionPath.ALL),
        ((2, 3, 4, 5), [2, 3], ReductionPath.LAST),
        ((2, 3, 4, 5), [1], ReductionPath.MIDDLE),
        ((2, 3, 4, 5), [0, 3], ReductionPath.OUTER),
        ((2, 3, 4, 5), [1, 3], ReductionPath.ONE_BY_ONE),
        # A batch of one is an axis that is kept, and too few rows for products.
        ((1, 64, 56, 56), [1], ReductionPath.ONE_BY_ONE),
        ((1, 64, 56, 56), [0, 1], ReductionPath.FIRST),
        ((64, 56, 56), [0], ReductionPath.FIRST),
        ((8, 56, 56), [0], ReductionPath.ONE_BY_ONE),  # too few rows
        ((64, 56), [0], ReductionPath.ONE_BY_ONE),  # too few of both
        ((2, 3), [], ReductionPath.NONE),
    ],
)
def test_paths(shape: Shape, axes: list[int], path: ReductionPath) -> None:
    """Means have kernels by which axes are kept, with enough rows; norms add up one element after another."""
    assert reduction_path("ReduceMean", shape, axes) == path
    others = (ReductionPath.ALL, ReductionPath.NONE)
    assert reduction_path("ReduceL2", shape, axes) == (path if path in others else ReductionPath.ONE_BY_ONE)


def test_a_layer_says_its_path() -> None:
    """A layer's kernel path names how it reduces; the axis of an ArgMax is an attribute of another name."""
    assert path_of(layer_of("ReduceMax", [(4, 80)], (4, 1), axes=[1])).reduction == ReductionPath.LAST
    assert path_of(layer_of("ArgMax", [(4, 80)], (4, 1), axis=1)).reduction == ReductionPath.ONE_BY_ONE
    assert path_of(layer_of("Relu", [(4, 80)], (4, 80))).reduction == ReductionPath.NONE


def test_a_runtime_with_vectors_for_any_axes_adds_up_nothing_one_by_one() -> None:
    """OpenVINO has kernels for each arrangement of axes, and reads no columns."""
    channels = layer_of("ReduceL2", [(1, 256, 32, 32)], (1, 1, 32, 32), axes=[1])
    path = path_of(channels, with_vectors=True)
    assert (path.reduction, path.crowding, path.column_bytes) == (ReductionPath.MIDDLE, 1, 0)
    assert path_of(channels).reduction == ReductionPath.ONE_BY_ONE
    work, system = layer_work(channels, channels.layers[0]), fake_system()
    assert other_flops_of(work, replace(system, runtime="openvino")) == 256 * 1024 < other_flops_of(work, system) / 10


def test_channels_of_images_whose_rows_are_a_power_of_two_apart_are_in_conflict() -> None:
    """Means over channels read a column for each position: all of its lines fall into one set if images are 32 x 32."""
    crowded, spread = (
        path_of(layer_of("ReduceMean", [(1, 256, side, 32)], (1, 1, side, 32), axes=[1])) for side in (32, 31)
    )
    assert (crowded.crowding, crowded.column_bytes) == (64, 256 * 4096)
    assert (spread.crowding, spread.column_bytes) == (1, 256 * 128)
    assert flops("ReduceMean", (1, 256, 32, 32), [1]) > 3 * flops("ReduceMean", (1, 256, 31, 32), [1])
    rows = path_of(layer_of("ReduceMean", [(1, 256, 32, 32)], (1, 256, 1, 1), axes=[2, 3]))
    assert (rows.crowding, rows.column_bytes) == (1, 0)


def test_small_products_take_as_long_to_begin_as_thousands_of_elements() -> None:
    """The mean over the middle axis is a product for each of the first: of 7 x 7 elements they take longer by far."""
    assert flops("ReduceMean", (64, 7, 7), [1]) > 50 * flops("ReduceMax", (64, 7, 7), [1])
    assert flops("ReduceMean", (2, 512, 512), [1]) < 1.02 * flops("ReduceMax", (2, 512, 512), [1])


@given(st.lists(st.integers(1, 5), min_size=1, max_size=5), st.data())
def test_a_path_is_one_of_the_kept_and_reduced_elements(shape: list[int], data: st.DataObject) -> None:
    """Reduced elements of LAST are adjacent in memory, those of FIRST are a row apart; each element costs something."""
    axes = sorted(data.draw(st.sets(st.sampled_from(range(len(shape))))))
    path = reduction_path("ReduceSum", shape, axes)
    assert (path == ReductionPath.NONE) == (not axes)
    if not axes:
        return
    of_one = np.arange(prod(shape)).reshape(shape)[tuple(slice(None) if a in axes else 0 for a in range(len(shape)))]
    steps = set(np.diff(of_one.ravel()).tolist())
    if path in (ReductionPath.ALL, ReductionPath.LAST):
        assert steps <= {1}
    if path in (ReductionPath.FIRST, ReductionPath.MIDDLE):
        assert len(steps) <= 1
    assert flops("ReduceSum", tuple(shape), axes) >= prod(shape)
