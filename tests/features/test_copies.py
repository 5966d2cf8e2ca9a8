"""Copies that kernels make besides their arithmetic, and other things that decide the path through a kernel."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.features.access_pattern import access_pattern_of
from costmodel.features.cache_conflicts import claimed_bytes, crowding
from costmodel.features.kernel_path import KernelPath, kernel_path_of
from costmodel.features.work import layer_work
from costmodel.ir.graph import TensorType
from costmodel.ir.sequence import LayerSequence, SequenceLayer, Value

Shape = tuple[int, ...]


def layer_of(
    op_type: str, inputs: list[Shape], output: Shape, *, since: int = 13, blocked: bool = False, **attributes: object
) -> LayerSequence:
    """Returns a sequence of one layer."""
    kinds = {int: "i", str: "s", list: "ints"}
    values = [
        *(Value(TensorType("float32", shape, blocked and slot == 0), "input") for slot, shape in enumerate(inputs)),
        Value(TensorType("float32", output, blocked), "internal"),
    ]
    encoded = {name: {kinds[type(value)]: value} for name, value in attributes.items()}
    layer = SequenceLayer(op_type, "", since, encoded, tuple(range(len(inputs))), (len(inputs),))
    return LayerSequence((layer,), tuple(values), (len(inputs),))


def copies(sequence: LayerSequence) -> float:
    """Returns the copies of the only layer of a sequence."""
    return layer_work(sequence, sequence.layers[0]).copy_flops


def path_of(sequence: LayerSequence, *, with_vectors: bool = False) -> KernelPath:
    """Returns the kernel path of the only layer of a sequence, by default under ONNX Runtime."""
    layer = sequence.layers[0]
    pattern = access_pattern_of(sequence, layer)
    work = layer_work(sequence, layer)
    return kernel_path_of(sequence, layer, work, pattern.axes, pattern.inner_run, with_vectors=with_vectors)


def test_a_softmax_over_channels_transposes_twice() -> None:
    """A softmax along another axis than the last is transposed there and back; before version 13 it is not."""
    image = (1, 21, 60, 60)
    single = copies(layer_of("Transpose", [image], (1, 60, 60, 21), perm=[0, 3, 2, 1]))
    assert copies(layer_of("Softmax", [image], image, axis=1)) == 2 * single
    assert copies(layer_of("Softmax", [image], image, axis=-1)) == 0
    assert copies(layer_of("Softmax", [image], image, axis=1, since=11)) == 0


@pytest.mark.parametrize(
    ("blocked", "shape", "order"), [(False, (2, 24, 7, 5), [0, 2, 3, 1]), (True, (2, 7, 5, 24), [0, 3, 1, 2])]
)
def test_a_reorder_is_the_transposition_of_what_is_in_memory(blocked: bool, shape: Shape, order: list[int]) -> None:
    """OpenVINO's reorder of an image copies and strides as a Transpose that brings channels to the end, or back."""
    image = (2, 24, 7, 5)
    reorder = layer_of("Reorder", [image], image, blocked=blocked)
    transpose = layer_of("Transpose", [shape], tuple(shape[axis] for axis in order), perm=order)
    assert copies(reorder) == copies(transpose) > 0
    assert path_of(reorder) == path_of(transpose)
    walks = [access_pattern_of(one, one.layers[0]) for one in (reorder, transpose)]
    assert [(walk.last_axis_kept, walk.inner_run) for walk in walks] == [(False, 1)] * 2


@pytest.mark.parametrize(
    ("inputs", "kernel", "group", "windows"),
    [
        ([(1, 8, 100), (8, 8, 5)], [5], 1, 8 * 100 * 5),
        ([(1, 4, 6, 7, 8), (9, 4, 3, 3, 3)], [3, 3, 3], 1, 6 * 7 * 8 * 4 * 27),
        ([(1, 4, 50), (9, 4, 1)], [1], 1, 0),
        ([(1, 8, 100), (8, 1, 5)], [5], 8, 8 * 100 * 5),
    ],
)
def test_convolutions_that_are_not_blocked_spread_out_their_windows(
    inputs: list[Shape], kernel: list[int], group: int, windows: int
) -> None:
    """Each window is copied before it is multiplied, unless it is a single position; volumes one by one."""
    output = (1, inputs[1][0], *inputs[0][2:])
    sequence = layer_of("Conv", inputs, output, kernel_shape=kernel, group=group, strides=[1] * len(kernel))
    again = (group - 1) * (6000 + 2 * math.prod(inputs[1]) // group)  # the other groups are products of their own
    assert copies(sequence) == (8 if len(kernel) < 3 else 13) * windows + again
    assert path_of(sequence).workspace_bytes == 4 * windows // group


def test_blocked_convolutions_spread_nothing() -> None:
    """A blocked convolution reads its input where it lies, and is described by its blocks of channels."""
    sequence = layer_of(
        "Conv", [(1, 64, 8, 8), (1, 64, 3, 3)], (1, 1, 8, 8), blocked=True, kernel_shape=[3, 3], strides=[1, 1]
    )
    work = layer_work(sequence, sequence.layers[0])
    assert (work.copy_flops, work.vectorised) == (0, 0)
    assert work.blocked is not None
    assert work.blocked.filters == 1


def test_lookups_count_runs() -> None:
    """A lookup takes time for each run of adjacent elements, however long."""
    rows = copies(layer_of("Gather", [(1000, 64), (7,)], (7, 64), axis=0))
    single = copies(layer_of("Gather", [(64, 1000), (7,)], (64, 7), axis=1))
    assert single == 64 * rows


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.data())
def test_the_span_of_a_broadcast(shape: list[int], data: st.DataObject) -> None:
    """Along a span, every operand is either contiguous or constant."""
    other = [data.draw(st.sampled_from([1, size])) for size in shape]
    span = path_of(layer_of("Add", [tuple(shape), tuple(other)], tuple(shape))).span
    index = np.broadcast_to(np.arange(np.prod(other)).reshape(other), shape).reshape(-1, span)
    steps = np.diff(index, axis=1)
    assert (steps == 1).all() or (steps == 0).all()


@pytest.mark.parametrize(
    ("other", "span"), [((1,), 1), ((), 1), ((1, 1, 1, 1), 30), ((5, 1), 5), ((1, 1), 30), ((1, 6, 5, 1), 30)]
)
def test_a_number_is_added_to_a_column_one_by_one(other: tuple[int, ...], span: int) -> None:
    """The runtime begins a loop at the last axis that is longer than 1, among those that both operands have."""
    column = (1, 6, 5, 1)
    sequence = layer_of("Add", [column, other], column)
    assert path_of(sequence).span == span
    row = layer_of("Add", [(30,)] * 2, (30,))
    in_one, loops = (layer_work(one, one.layers[0]).one_by_one_flops for one in (row, sequence))
    assert loops == pytest.approx(in_one * 30 / span)


def test_a_place_along_several_axes_takes_longer_to_look_up_than_a_row() -> None:
    """GatherND copies one run for each index, as Gather does, after it has computed the place."""
    table, found = (8, 16, 32), (128, 32)
    one = copies(layer_of("Gather", [(128, 32), (128,)], found, axis=0))
    several = copies(layer_of("GatherND", [table, (128, 2)], found))
    assert one < several == copies(layer_of("GatherND", [(128, 32), (128, 1)], found))
    assert copies(layer_of("GatherND", [table, (8, 4, 1)], (8, 4, 32), batch_dims=1)) == several / 4


def test_largest_elements_take_longer_to_find_if_their_places_are_returned_too() -> None:
    """A MaxPool that returns indices goes element by element."""
    image, pooled = (1, 16, 8, 8), (1, 16, 4, 4)
    sequence = layer_of("MaxPool", [image], pooled, kernel_shape=[2, 2], strides=[2, 2])
    indices = Value(TensorType("int64", pooled), "internal")
    layer = replace(sequence.layers[0], outputs=(1, 2))
    both = LayerSequence((layer,), (*sequence.values, indices), (1, 2))
    assert layer_work(both, layer).other_flops > 50 * layer_work(sequence, sequence.layers[0]).other_flops


def test_an_expand_copies_runs_that_double() -> None:
    """The last axis is repeated by copies of one element and of twice as many each time, for each row; rows at once."""
    elements = copies(layer_of("Expand", [(64, 1)], (64, 32)))
    rows = copies(layer_of("Expand", [(1, 64)], (32, 64)))
    assert elements == (64 + 64 * 5) * rows / (1 + 5) > 0
    assert copies(layer_of("Expand", [(64,)], (32, 64))) == rows
    assert copies(layer_of("Expand", [(3, 64)], (3, 64))) == 0
    assert copies(layer_of("Expand", [(4, 1, 8, 1)], (4, 2, 8, 2))) == (32 + 32 + 4) * rows / 6


def test_a_recurrent_layer_reads_its_weights_in_each_step() -> None:
    """The weights of the recurrence are read again in each step, those of the input once for all steps."""
    shapes = [(10, 1, 40), (1, 128, 40), (1, 128, 32)]
    sequence = layer_of("LSTM", shapes, (10, 1, 1, 32), hidden_size=32)
    twice = layer_of("LSTM", [(20, 1, 40), *shapes[1:]], (20, 1, 1, 32), hidden_size=32)
    assert path_of(sequence).recurrent_bytes == 4 * 128 * 32
    assert copies(twice) == 2 * copies(sequence) > 0


def test_transposed_operands() -> None:
    """A matrix product says which of its operands are transposed."""
    plain = layer_of("Gemm", [(4, 8), (8, 5)], (4, 5))
    both = layer_of("Gemm", [(8, 4), (5, 8)], (4, 5), transA=1, transB=1)
    assert (path_of(plain).transposed_operands, path_of(both).transposed_operands) == (0, 3)


def test_a_transposition_reads_few_sets_where_rows_are_far_apart_by_a_power_of_two() -> None:
    """Rows of 64 KiB fall into one set of the cache; a byte more for each row and they fall into all of them."""
    crowded = path_of(layer_of("Transpose", [(1, 32, 128, 128)], (1, 128, 128, 32), perm=[0, 2, 3, 1]))
    spread = path_of(layer_of("Transpose", [(1, 32, 127, 129)], (1, 127, 129, 32), perm=[0, 2, 3, 1]))
    assert (crowded.crowding, spread.crowding) == (64, 1)
    assert path_of(layer_of("Transpose", [(8, 1024)], (1024, 8), perm=[1, 0])).crowding == 1  # eight lines have room
    assert path_of(layer_of("Softmax", [(32, 1024)], (32, 1024))).crowding == 1
    assert (crowded.column_bytes, spread.column_bytes) == (32 * 65536, 32 * 64)


@given(rows=st.integers(1, 5000), row_bytes=st.integers(1, 1 << 20))
def test_crowding_is_the_share_of_sets_that_a_column_does_not_reach(rows: int, row_bytes: int) -> None:
    """It is the number of sets over that of those which the lines of many rows reach; 1 where all lines have room."""
    reached = {row * row_bytes // 64 % 64 for row in range(4096)}
    expected = 64 / len(reached) if rows > 8 * len(reached) else 1
    assert crowding(rows, row_bytes) == expected


@given(data=st.data(), power=st.integers(6, 11), ways=st.sampled_from([8, 16]))
def test_a_column_has_room_in_a_cache_of_the_bytes_that_it_claims(data: st.DataObject, power: int, ways: int) -> None:
    """As many rows as claim all bytes of a cache fill the sets into which they fall, whatever the number of ways."""
    sets = 1 << power
    lines = data.draw(st.integers(1, sets))
    room = ways * len({row * lines % sets for row in range(sets)})
    assert claimed_bytes(room, 64 * lines) == 64 * sets * ways


def test_short_runs_take_longer_to_join_and_cut_than_long_ones() -> None:
    """Pairs that are joined along the last axis are copied one by one, rows along an earlier one at once."""
    pairs = copies(layer_of("Concat", [(64, 32, 1), (64, 32, 1)], (64, 32, 2), axis=-1))
    rows = copies(layer_of("Concat", [(64, 32, 1), (64, 32, 1)], (64, 64, 1), axis=1))
    assert pairs == 32 * rows > 0
    cut = copies(layer_of("Split", [(64, 32, 2)], (64, 32, 1), axis=-1))
    assert cut == 32 * copies(layer_of("Split", [(64, 32, 2)], (64, 16, 2), axis=1)) > pairs / 2
    sliced = copies(layer_of("Slice", [(64, 32, 9)], (64, 32, 5)))
    assert sliced == 32 * copies(layer_of("Slice", [(64, 32, 9)], (64, 5, 9))) > 0
    padded = copies(layer_of("Pad", [(64, 32, 7)], (64, 32, 9)))
    assert padded == 32 * copies(layer_of("Pad", [(64, 30, 9)], (64, 32, 9))) > sliced


def test_a_slice_with_steps_copies_elements_one_by_one() -> None:
    """Each second element of the last axis is a run of its own; each second row is a whole run."""

    def every_second(axis: int, output: Shape) -> float:
        numbers = [(0,), (1 << 31,), (axis,), (2,)]
        data = [Value(TensorType("float32", (64, 32)), "input")]
        data += [Value(TensorType("int64", (1,)), "constant", number) for number in numbers]
        values = (*data, Value(TensorType("float32", output), "internal"))
        layer = SequenceLayer("Slice", "", 13, {}, (0, 1, 2, 3, 4), (5,))
        return copies(LayerSequence((layer,), values, (5,)))

    assert every_second(-1, (64, 16)) == 16 * every_second(0, (32, 32)) * 2
    assert every_second(0, (32, 32)) > 0


def test_each_image_and_group_of_a_plain_convolution_is_a_product() -> None:
    """A convolution that is not blocked reads its filters again for each image, and begins each product anew."""
    one, two, four = (
        copies(layer_of("Conv", [(images, 4, 50), (9, 4, 1)], (images, 9, 50), kernel_shape=[1], strides=[1]))
        for images in (1, 2, 4)
    )
    assert (one, four) == (0, 3 * two)
    grouped = layer_of("Conv", [(1, 8, 50), (8, 1, 1)], (1, 8, 50), kernel_shape=[1], strides=[1], group=8)
    assert copies(grouped) > two


def test_strided_windows_are_copied_one_by_one() -> None:
    """With a stride along the last axis no two elements of a window's row are neighbours."""
    adjacent, strided = (
        copies(layer_of("Conv", [(1, 3, 9, 9), (4, 3, 3, 3)], (1, 4, 4, 4), kernel_shape=[3, 3], strides=[2, stride]))
        for stride in (1, 2)
    )
    assert strided > adjacent > 0


def test_products_are_added_to_the_result_of_a_transposed_convolution() -> None:
    """Neighbours are added fastest; with strides, and in volumes, each product finds its own place."""

    def added(rank: int, stride: int) -> float:
        sizes = (12,) * rank
        shapes = [(1, 4, *sizes), (4, 5, *(2,) * rank)]
        sequence = layer_of("ConvTranspose", shapes, (1, 5, *sizes), kernel_shape=[2] * rank, strides=[stride] * rank)
        return copies(sequence) / (12**rank * 5 * 2**rank)

    assert added(2, 1) < added(2, 2) < added(3, 1)


@pytest.mark.parametrize("op_type", ["MatMul", "FusedMatMul", "MatMulInteger"])
def test_products_of_a_batch_are_begun_one_by_one(op_type: str) -> None:
    """Ten thousand tiny products take longer than a few hundred, and a single one takes no time to begin."""
    many = layer_of(op_type, [(100, 100, 4, 8), (100, 100, 8, 2)], (100, 100, 4, 2))
    few = layer_of(op_type, [(2, 100, 4, 8), (2, 100, 8, 2)], (2, 100, 4, 2))
    assert copies(many) > 49 * copies(few) > 0
    assert copies(layer_of(op_type, [(4, 8), (8, 2)], (4, 2))) == 0
