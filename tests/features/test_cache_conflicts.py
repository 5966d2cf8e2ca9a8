"""Conflicts of a reorder's writes in the level 1 cache."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.features.analytical_bound import layer_bound_us
from costmodel.features.work import layer_work
from costmodel.ir.graph import TensorType
from costmodel.ir.sequence import LayerSequence, SequenceLayer, Value
from tests.fakes import fake_system

CAPABILITIES = {"gemm_gflops": 100.0, "memory_gbps": 20.0, "layer_us": 1.0, "scalar_ns": 5.0}


def reorder(
    shape: tuple[int, ...], *, dtype: str = "float32", op_type: str = "Reorder", to_plain: bool = True
) -> LayerSequence:
    """Returns a reorder from blocks of channels to a plain layout, or the other way."""
    values = (
        Value(TensorType(dtype, shape, blocked=to_plain), "input"),
        Value(TensorType(dtype, shape, blocked=not to_plain), "internal"),
    )
    return LayerSequence((SequenceLayer(op_type, "", 1, {}, (0,), (1,)),), values, (1,))


def conflicting(sequence: LayerSequence) -> int:
    """Returns the conflicting writes of the only layer of a sequence."""
    return layer_work(sequence, sequence.layers[0]).conflicting_writes


@pytest.mark.parametrize(
    ("shape", "conflicts"),
    [
        ((1, 32, 64, 64), True),  # rows of 16 KiB: all begin in the same set
        ((1, 32, 56, 56), False),  # rows of 196 lines: 32 rows in 16 sets
        ((1, 19, 64, 64), True),
        ((1, 8, 64, 64), False),  # a set has as many lines
        ((1, 64, 16, 16), True),  # rows of 1 KiB: 64 rows in 4 sets
        ((1, 65, 64, 64), False),  # in another order
        ((1, 64, 1024), False),  # tokens
    ],
)
def test_rows_whose_distance_is_a_power_of_two_conflict(shape: tuple[int, ...], conflicts: bool) -> None:
    """All elements of the output conflict, or none, as OpenVINO's reorders were measured."""
    sequence = reorder(shape)
    assert conflicting(sequence) == (sequence.values[1].type.elements if conflicts else 0)


def test_only_a_reorder_to_rows_conflicts() -> None:
    """Reading in conflict costs little, and ONNX Runtime's ReorderOutput writes whole lines."""
    assert conflicting(reorder((1, 32, 64, 64), to_plain=False)) == 0
    assert conflicting(reorder((1, 32, 64, 64), op_type="ReorderOutput")) == 0


def test_a_resize_that_ends_in_a_plain_layout_contains_a_reorder() -> None:
    """What an operator does besides makes no difference: its output is written row by row."""
    small, large = (1, 19, 32, 64), (1, 19, 256, 512)
    values = (
        Value(TensorType("float32", small, blocked=True), "input"),
        Value(TensorType("float32", large), "internal"),
    )
    sequence = LayerSequence((SequenceLayer("Resize", "", 19, {}, (0,), (1,)),), values, (1,))
    assert conflicting(sequence) == 19 * 256 * 512


@given(rows=st.integers(9, 64), width=st.integers(1, 64), dtype=st.sampled_from(["float32", "uint8"]))
def test_a_bound_is_longer_by_what_conflicts(rows: int, width: int, dtype: str) -> None:
    """The bound grows by some nanoseconds for each conflicting element, and else not at all."""
    sequence, system = reorder((1, rows, 64, width), dtype=dtype), fake_system(capabilities=CAPABILITIES)
    work = layer_work(sequence, sequence.layers[0])
    without = layer_bound_us(replace(work, conflicting_writes=0), system)
    elements = rows * 64 * width
    assert work.conflicting_writes in (0, elements)
    assert without <= layer_bound_us(work, system) <= without + 0.01 * work.conflicting_writes
    if work.conflicting_writes and elements > 1000:
        assert layer_bound_us(work, system) > without
