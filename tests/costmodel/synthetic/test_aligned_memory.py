"""Tests for the layout of synthetic tensors in memory."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from costmodel.ir.graph import TensorType
from costmodel.ir.sequence import LayerSequence, SequenceLayer, Value
from costmodel.synthetic.aligned_memory import aligned_copies, is_aligned
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
