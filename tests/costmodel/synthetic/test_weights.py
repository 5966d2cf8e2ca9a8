"""Weights are written as far as a run reads them."""

import numpy as np
import pytest

from costmodel.ir.graph import TensorType
from costmodel.ir.sequence import LayerSequence, SequenceLayer, Value
from costmodel.synthetic.values import synthetic_value
from costmodel.synthetic.weights import write_weight

TABLE, UNWRITTEN = TensorType("float32", (50, 3)), 7.0


def lookup(axis: int = 0) -> LayerSequence:
    """Returns a Gather of a table by ids that are an input."""
    values = (
        Value(TABLE, "constant"),
        Value(TensorType("int64", (4,)), "input"),
        Value(TensorType("float32", (4, 3)), "internal"),
    )
    return LayerSequence((SequenceLayer("Gather", "", 13, {"axis": {"i": axis}}, (0, 1), (2,)),), values, (2,))


def written(sequence: LayerSequence, inputs: dict[int, np.ndarray]) -> np.ndarray:
    """Returns the memory of the first value after it was written; it held another number than synthetic values are."""
    out = np.full(sequence.values[0].type.shape, UNWRITTEN, np.float32)
    write_weight(sequence, 0, inputs, out)
    return out


def test_only_rows_that_are_looked_up_are_written() -> None:
    """Rows that ids name, also counted from the end, get synthetic values; no other row is touched."""
    out = written(lookup(), {1: np.array([3, 49, 3, -2])})
    touched = np.abs(out) <= 1
    assert np.flatnonzero(touched.all(axis=1)).tolist() == [3, 48, 49]
    assert (out[~touched] == UNWRITTEN).all()
    assert touched.sum() == 9


@pytest.mark.parametrize("axis", [1, -2])
def test_a_table_along_another_axis_is_written_whole(axis: int) -> None:
    """Unless the first axis is certain to be the one of the ids, all values are written."""
    assert (np.abs(written(lookup(axis), {1: np.array([0, 1, 2, 0])})) <= 1).all()


def test_other_weights_get_the_values_that_suit_their_layer() -> None:
    """The weight of a product, and a table whose ids are no input, are written as `synthetic_value` makes them."""
    kinds = (TensorType("float32", (9, 4)), TensorType("float32", (2, 9)), TensorType("float32", (2, 4)))
    values = tuple(map(Value, kinds, ("constant", "input", "internal")))
    product = LayerSequence((SequenceLayer("MatMul", "", 13, {}, (1, 0), (2,)),), values, (2,))
    for sequence in (product, lookup()):
        assert np.array_equal(written(sequence, {}), synthetic_value(sequence, 0))
