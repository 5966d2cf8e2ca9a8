"""Constants that belong to a signature, and names of element types."""

import numpy as np
import pytest
from onnx import TensorProto, numpy_helper

from costmodel.constants import data_of, data_type_of, dtype_name


@pytest.mark.parametrize(
    ("array", "kept"),
    [
        (np.array([1, -1]), True),
        (np.array(7), True),
        (np.array([True, False]), True),
        (np.arange(64), True),
        (np.arange(65), False),
        (np.array([0.5], np.float32), False),
        (np.array([3], np.int32), False),
        (np.array([3], np.int8), False),
    ],
)
def test_small_integers_are_kept_and_weights_are_not(array: np.ndarray, kept: bool) -> None:
    """Parameters of shape are 64-bit integers or booleans, and few; everything else is a weight."""
    assert data_of(numpy_helper.from_array(array)) == (tuple(array.reshape(-1).tolist()) if kept else None)


def test_names_of_element_types_are_numpys_and_lead_back() -> None:
    """Every element type of ONNX that numpy has a name for is found again by it."""
    for value in (TensorProto.FLOAT, TensorProto.BFLOAT16, TensorProto.BOOL, TensorProto.INT4, TensorProto.UINT64):
        assert data_type_of(dtype_name(value)) == value
    assert dtype_name(TensorProto.STRING) == "string"


def test_a_number_without_meaning_gets_a_name_all_the_same() -> None:
    """A damaged file is refused by who reads it, not by a failing look-up."""
    assert dtype_name(99) == "type 99"
