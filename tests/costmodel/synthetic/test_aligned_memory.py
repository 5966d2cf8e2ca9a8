"""Tests for the layout of synthetic tensors in memory."""

import gc

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from costmodel.ir.graph import TensorType
from costmodel.ir.sequence import LayerSequence, SequenceLayer, Value
from costmodel.synthetic.aligned_memory import aligned_arrays, aligned_copies, is_aligned
from costmodel.synthetic.values import synthetic_value

arrays = st.tuples(
    st.sampled_from(["float32", "int64", "bool", "float64", "uint8"]), st.lists(st.integers(0, 9), max_size=4)
)


@given(st.lists(arrays, max_size=6))
def test_copies_are_equal_aligned_and_apart(kinds: list[tuple[str, list[int]]]) -> None:
    """Copies have the content of the originals, begin at multiples of 64 bytes, and share no memory."""
    originals = [np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype) for dtype, shape in kinds]
    copies = aligned_copies(originals)
    for number, (original, copy) in enumerate(zip(originals, copies, strict=True)):
        assert np.array_equal(original, copy)
        assert (copy.dtype, copy.shape, is_aligned(copy)) == (original.dtype, original.shape, True)
        assert not any(np.may_share_memory(copy, other) for other in copies[:number])


@given(st.integers(1, 3000), st.sampled_from(["float32", "float16", "int64", "uint8"]))
def test_inputs_of_a_layer_are_aligned_and_apart(size: int, dtype: str) -> None:
    """Inputs that a layer reads together begin at multiples of 64 bytes and share no memory."""
    kind = TensorType(dtype, (size,))
    layer = SequenceLayer("Add", "", 14, {}, (0, 1), (2,))
    sequence = LayerSequence((layer,), (Value(kind, "input"), Value(kind, "input"), Value(kind, "internal")), (2,))
    one, other = (synthetic_value(sequence, i) for i in (0, 1))
    assert is_aligned(one)
    assert is_aligned(other)
    assert not np.may_share_memory(one, other)


def test_memory_is_used_again_once_nothing_is_in_it() -> None:
    """Memory of arrays that are gone serves later ones of about their size; a view keeps it from being used."""
    kind = (np.dtype(np.uint8), (12_345_678,))
    (array,) = aligned_arrays([kind])
    array[:] = 1
    place, view = array.ctypes.data, array[5:6]
    del array
    gc.collect()
    (other,) = aligned_arrays([kind])
    other[:] = 2
    assert view[0] == 1
    assert other.ctypes.data != place
    del view
    gc.collect()
    (later,) = aligned_arrays([(np.dtype(np.float32), (3_000_000,))])
    assert later.ctypes.data == place
