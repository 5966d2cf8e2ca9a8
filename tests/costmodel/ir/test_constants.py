"""Constants that are part of a signature, and names of element types."""

import numpy as np
import pytest
from onnx import TensorProto, numpy_helper

from costmodel.ir.constants import data_type_of, dtype_name, signature_data


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
    """Few 64-bit integers or booleans are kept as shape parameters; all other constants are weights."""
    assert signature_data(numpy_helper.from_array(array)) == (tuple(array.reshape(-1).tolist()) if kept else None)


def test_names_of_element_types_are_numpys_and_lead_back() -> None:
    """Every ONNX element type with a numpy name is found by that name."""
    for value in (TensorProto.FLOAT, TensorProto.BFLOAT16, TensorProto.BOOL, TensorProto.INT4, TensorProto.UINT64):
        assert data_type_of(dtype_name(value)) == value
    assert dtype_name(TensorProto.STRING) == "string"


def test_a_number_without_meaning_gets_a_name_all_the_same() -> None:
    """An unknown element type gets a name, so that the reader can refuse the file by it."""
    assert dtype_name(99) == "type 99"
