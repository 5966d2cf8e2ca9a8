"""How kernels divide what is not a product, and how long threads wait for each other."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.features.analytical_bound import threads_speedup, waiting_us
from costmodel.features.divided_kernels import Division, division_of
from costmodel.features.thread_division import divide_work
from costmodel.features.work import layer_work
from costmodel.ir.graph import TensorType
from costmodel.ir.sequence import LayerSequence, SequenceLayer, Value
from tests.fakes import elementwise
from tests.synthetic import SYSTEM


def _division(
    op_type: str,
    inputs: Sequence[Sequence[int]],
    output: Sequence[int],
    *,
    blocked: bool = False,
    **attributes: dict[str, Any],
) -> Division:
    slots = tuple(range(len(inputs)))
    layer = SequenceLayer(op_type, "", 13, attributes, slots, (len(inputs),), 0)
    reads = [TensorType("float32", tuple(shape), blocked) for shape in inputs]
    return division_of(layer, reads, [TensorType("float32", tuple(output))])


@given(st.floats(1, 1e6), st.floats(0, 1), st.integers(1, 256))
def test_threads_bring_between_one_and_their_number(parts: float, undivided: float, threads: int) -> None:
    """Nothing becomes slower, and nothing quicker than by the number of threads."""
    division = Division(parts, 1, undivided)
    assert 1 - 1e-9 <= division.speedup(threads) <= threads + 1e-9
    assert division.speedup(1) == pytest.approx(1)


_WITH_RULES = (
    "Add", "Concat", "Gather", "Softmax", "ReduceSum", "MaxPool", "Resize", "ReorderInput", "ReorderOutput",
    "LayerNormalization", "GatherND",
)  # fmt: skip
_SHAPES = st.lists(st.integers(0, 40), max_size=5)


@given(st.sampled_from(_WITH_RULES), _SHAPES, _SHAPES, _SHAPES, st.booleans())
def test_any_shapes_have_a_division(
    op_type: str, data: list[int], other: list[int], output: list[int], blocked: bool
) -> None:
    """Shapes that do not fit each other, which a client may send, are no error."""
    found = _division(op_type, [data, other], output, blocked=blocked, mode={"s": "linear"}, channels_last={"i": 1})
    assert found.parts >= 1
    assert 0 <= found.undivided <= 1


@pytest.mark.parametrize("op_type", ["Resize", "ReorderInput", "ReorderOutput", "Softmax", "LayerNormalization"])
def test_attributes_of_another_kind_are_ignored(op_type: str) -> None:
    """Attributes of an operator that is unknown to the service are not checked there."""
    wrong = {"mode": {"i": 1}, "channels_last": {"s": "a"}, "axis": {"s": "b"}}
    assert _division(op_type, [(2, 24, 7, 7)], (2, 24, 7, 7), **wrong).parts >= 1


@pytest.mark.parametrize(("parts", "threads", "speedup"), [(3, 2, 1.5), (9, 8, 4.5), (5, 8, 5), (math.inf, 8, 8)])
def test_parts_stay_whole(parts: float, threads: int, speedup: float) -> None:
    """The thread with the most parts decides."""
    assert Division(parts, 1).speedup(threads) == pytest.approx(speedup)


@pytest.mark.parametrize(
    ("op_type", "since", "axis", "parts"),
    [
        ("Softmax", 13, 1, 65),  # rows are spread by size
        ("Softmax", 11, 1, 64),  # before opset 13, all axes from one on are a row
        ("LayerNormalization", 17, 1, 64),
        ("LayerNormalization", 17, -1, 64 * 16 * 32),
    ],
)
def test_rows(op_type: str, since: int, axis: int, parts: int) -> None:
    """A row is a part: what is normalised together."""
    kind = TensorType("float32", (64, 16, 32, 32))
    layer = SequenceLayer(op_type, "", since, {"axis": {"i": axis}}, (0,), (1,), 0)
    assert division_of(layer, [kind], [kind]).parts == parts


@pytest.mark.parametrize(
    ("order", "shape", "parts", "regions"),
    [
        ([0, 2, 1], (56, 128, 41), 128, 56),  # a matrix at a time, each handed out anew
        ([0, 2, 1], (1, 128, 41), 128, 1),
        ([0, 3, 1, 2], (4, 8, 16, 32), 8 * 16, 4),  # the last axis moves outwards
        ([0, 2, 1, 3], (64, 64, 6, 10), None, 1),  # runs of ten elements: as many parts as the work is worth
        ([0, 2, 1, 3], (4, 8, 6, 10), 1, 0),  # too little work
        ([3, 2, 1, 0], (4, 8, 6, 10), 1, 0),  # any other order is on one thread
        ([0, 1, 2], (64, 64, 64), 1, 0),  # a copy
    ],
)
def test_transpositions(order: list[int], shape: tuple[int, ...], parts: int | None, regions: int) -> None:
    """A transposition is divided only if single elements or runs of them move along one axis."""
    found = _division("Transpose", [shape], [shape[axis] for axis in order], perm={"ints": order})
    assert found.regions == regions
    assert found.parts > 1 if parts is None else found.parts == parts


@pytest.mark.parametrize(
    ("op_type", "inputs", "output", "divided"),
    [
        ("Relu", [(80_000,)], (80_000,), False),  # the runtime divides what it expects to take 210,000 cycles
        ("Relu", [(90_000,)], (90_000,), True),
        ("LeakyRelu", [(9_000,)], (9_000,), True),
        ("Add", [(300, 300), (300, 300)], (300, 300), True),
        ("Add", [(300, 300), (300,)], (300, 300), True),
        ("Add", [(1, 90_000), (1, 90_000)], (1, 90_000), True),
        ("Gather", [(30_000, 512), (64,)], (64, 512), False),
        ("Gather", [(30_000, 512), (256,)], (256, 512), True),
        ("Softmax", [(8, 32)], (8, 32), False),
        ("Softmax", [(256, 128)], (256, 128), True),
        ("LayerNormalization", [(2, 8)], (2, 8), True),  # a row for each thread, however short
        ("LayerNormalization", [(1, 8)], (1, 8), False),
        ("ReduceMean", [(1, 64, 4096)], (1, 1, 1), False),  # a single result
        ("ReduceMean", [(1, 64, 4096)], (1, 64, 1), True),
        ("DepthToSpace", [(1, 256, 64, 64)], (1, 64, 128, 128), False),
        ("Cast", [(10**6,)], (10**6,), False),
    ],
)
def test_what_is_worth_dividing(
    op_type: str, inputs: list[tuple[int, ...]], output: tuple[int, ...], divided: bool
) -> None:
    """A kernel with one part, or with too little work, uses one thread and wakes no other."""
    found = _division(op_type, inputs, output)
    assert (found.parts > 1, found.regions > 0) == (divided, divided)


def test_spans_between_repeated_operands_stay_whole() -> None:
    """An operand that is repeated along an axis leaves spans, which are the parts."""
    assert _division("Mul", [(2, 3, 10_000_000), (2, 3, 1)], (2, 3, 10_000_000)).parts == 6


def test_tensors_are_copied_one_after_the_other() -> None:
    """Of the inputs of a Concat, those that are large enough are each divided, and the others copied by one thread."""
    found = _division("Concat", [(1000, 200), (1000, 200), (1000, 10)], (1000, 410))
    assert found.regions == 2
    assert found.undivided == pytest.approx(10 / 410)


@pytest.mark.parametrize(
    ("mode", "antialias", "divided"),
    [("nearest", 0, False), ("cubic", 0, False), ("linear", 0, True), ("cubic", 1, True), ("linear", 1, True)],
)
def test_resizes(mode: str, antialias: int, divided: bool) -> None:
    """Only a linear interpolation and an antialiased one are divided."""
    sampled = {"mode": {"s": mode}, "antialias": {"i": antialias}}
    found = _division("Resize", [(1, 64, 32, 32)], (1, 64, 64, 64), **sampled)
    assert (found.parts > 1) == divided


@pytest.mark.parametrize(
    ("op_type", "blocked", "parts"),
    [
        ("MaxPool", False, 2 * 24),  # images and channels
        ("MaxPool", True, 4 * 7),  # the rows of blocks of channels
        ("GlobalAveragePool", True, 4),
        ("ReorderInput", True, 4),
        ("ReorderOutput", True, 4),
    ],
)
def test_blocks_of_channels(op_type: str, blocked: bool, parts: int) -> None:
    """Two images of 24 channels have two blocks each, the second one half empty."""
    size = 1 if op_type.startswith("Global") else 7
    assert _division(op_type, [(2, 24, 14, 14)], (2, 24, size, 7 if size > 1 else 1), blocked=blocked).parts == parts


@pytest.mark.parametrize(("op_type", "speedup"), [("Relu", 4.0), ("Cast", 1.0), ("Where", 1.0)])
def test_some_kernels_use_one_thread(op_type: str, speedup: float) -> None:
    """A kernel that is not parallel takes as long with more threads, and its threads need not wait."""
    sequence = elementwise(10**6, op_type=op_type)
    work = layer_work(sequence, sequence.layers[0])
    assert threads_speedup(work, SYSTEM, 4) == pytest.approx(speedup, rel=0.02)
    assert threads_speedup(work, SYSTEM, 1) == 1
    assert (waiting_us(work, SYSTEM, 4) > 0) == (speedup > 1)
    assert waiting_us(work, SYSTEM, 1) == 0


def test_without_rules_all_work_is_divided_evenly() -> None:
    """Kernels of a runtime that nothing is known of are taken to be parallel, and to wait for nothing."""
    sequence, unknown = elementwise(10**6, op_type="Cast"), replace(SYSTEM, runtime="another")
    work = layer_work(sequence, sequence.layers[0])
    assert threads_speedup(work, unknown, 4) == 4
    assert waiting_us(work, unknown, 4) == 0
    division = divide_work([sequence] * 2, unknown, 4)
    assert (division.threads, [*division.speedups], [*division.waits_us]) == (4, [4, 4], [0, 0])


def test_a_sequence_is_divided_as_its_layers_are() -> None:
    """Of two layers of which one uses one thread, about half is divided, and a wait counts as often as it occurs."""
    parallel, serial = (elementwise(10**6, op_type=op_type) for op_type in ("Relu", "Cast"))
    alone = divide_work([parallel, serial], SYSTEM, 4)
    values = (*parallel.values, parallel.values[-1])
    second = replace(serial.layers[0], inputs=parallel.layers[0].outputs, outputs=(len(values) - 1,))
    both = LayerSequence((*parallel.layers, second), values, (len(values) - 1,))
    together = divide_work([both], SYSTEM, 4)
    assert alone.speedups[1] == pytest.approx(1)
    assert together.speedups[0] == pytest.approx(2 / (1 / alone.speedups[0] + 1), rel=0.1)
    assert together.waits_us[0] == pytest.approx(alone.waits_us.sum())
    assert divide_work([both], SYSTEM, 1).speedups[0] == 1


def test_threads_wait_for_each_matrix_and_for_the_rows_that_they_share() -> None:
    """Many small transpositions take longer with two threads; the more rows a result has, the longer.

    On a Zen 4, 16,384 matrices of 14 x 14 take 9.3 ms with two threads and 0.75 ms with one.
    """

    def waits(*shape: int) -> float:
        values = (Value(TensorType("float32", shape), "input"), Value(TensorType("float32", shape), "internal"))
        order = {"perm": {"ints": [0, 2, 1]}}
        sequence = LayerSequence((SequenceLayer("Transpose", "", 13, order, (0,), (1,)),), values, (1,))
        return waiting_us(layer_work(sequence, sequence.layers[0]), SYSTEM, 2)

    assert 5e3 < waits(16_384, 14, 14) < 20e3
    assert waits(8, 28, 768) > 5 * waits(8, 768, 28)
    assert waits(1, 1, 768) == 0
