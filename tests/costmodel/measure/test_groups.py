"""Groups of sequences that are loaded together."""

from collections.abc import Callable

import hypothesis.strategies as st
from hypothesis import given
from onnx import ModelProto

from costmodel.ir.footprint import read_bytes, weight_bytes
from costmodel.ir.graph import LayerGraph, TensorType
from costmodel.ir.sequence import LayerSequence, SequenceLayer, Value
from costmodel.measure.groups import evicted_bytes, fits_in_core, grouped
from costmodel.partition.decomposition import decompose
from tests.fakes import elementwise
from tests.synthetic import SYSTEM

MOST_LOADED = 256
MOST_BYTES = 2 << 30


def product(columns: int) -> LayerSequence:
    """Returns a matrix product with a weight of `kib` KiB."""
    kinds = [TensorType("float32", shape) for shape in ((1, 256), (256, columns), (1, columns))]
    return LayerSequence(
        (SequenceLayer("MatMul", "", 13, {}, (0, 1), (2,)),),
        tuple(Value(kind, role) for kind, role in zip(kinds, ("input", "constant", "internal"), strict=True)),
        (2,),
    )


@given(st.lists(st.integers(1, 3 << 20), max_size=40), st.integers(0, 600))
def test_groups_fit_into_memory_and_leave_nothing_out(kibibytes: list[int], light: int) -> None:
    """Groups partition the sequences in order, fit into memory, and none ends earlier than necessary."""
    sequences = [*map(product, kibibytes), *(elementwise(1, size) for size in range(1, light + 1))]
    groups = grouped(sequences)
    assert [sequence for group in groups for sequence in group.sequences] == sequences
    of_group = [sum(map(weight_bytes, group.sequences)) for group in groups]
    for group, nbytes in zip(groups, of_group, strict=True):
        assert 1 <= len(group.sequences) <= MOST_LOADED
        assert nbytes <= MOST_BYTES or len(group.sequences) == 1
    for group, nbytes, following in zip(groups, of_group, groups[1:], strict=False):
        assert len(group.sequences) == MOST_LOADED or nbytes + weight_bytes(following.sequences[0]) > MOST_BYTES


def test_groups_of_no_model_say_what_they_begin_with() -> None:
    """Groups without a model are named after their first sequence and assume cold caches."""
    (group,) = grouped([product(1), elementwise(3)])
    assert (group.label, group.whole, group.model, group.footprint_bytes) == ("MatMul", None, None, None)
    assert grouped([]) == []


def test_of_a_table_only_what_is_found_is_read(
    parse: Callable[..., ModelProto], lower: Callable[..., LayerGraph]
) -> None:
    """An embedding counts the rows that it reads, not its table."""
    text = "(int64[5] words) => (float[5,64] y) { e = Gather(table, words) y = MatMul(e, w) }"
    graph = lower(parse(text, weights={"table": (3000, 64), "w": (64, 64)}))
    look_up, product_ = decompose("m", graph).unique.values()
    assert (weight_bytes(look_up), read_bytes(look_up)) == (4 * 3000 * 64, 4 * 5 * 64)
    assert read_bytes(product_) == weight_bytes(product_) == 4 * 64 * 64


def test_what_is_swept_makes_up_for_the_rest_of_the_model() -> None:
    """Cache eviction covers the model's weights outside the group, at most twice the shared cache."""
    assert SYSTEM.host is not None
    both = 2 * SYSTEM.host.l3_bytes
    assert evicted_bytes(1000, 400, SYSTEM.host) == 600
    assert evicted_bytes(400, 1000, SYSTEM.host) == 0
    assert evicted_bytes(both * 10, 0, SYSTEM.host) == evicted_bytes(None, 0, SYSTEM.host) == both
    assert evicted_bytes(None, 0, None) > 0


def test_what_fits_in_the_cache_of_a_core() -> None:
    """A model fits if its weights take at most half of the cache; a collection without weights is no model."""
    assert SYSTEM.host is not None
    half = SYSTEM.host.l2_bytes // 2
    assert [fits_in_core(nbytes, SYSTEM.host) for nbytes in (1, half, half + 1, 0, None)] == [True, True, *[False] * 3]
    assert not fits_in_core(1, None)


def test_weights_are_what_is_not_written_down() -> None:
    """Inputs, outputs and constants of the signature do not count as weights."""
    assert weight_bytes(product(3)) == 3 << 10
    assert weight_bytes(elementwise(1000)) == 0
    shape = TensorType("int64", (2,))
    reshape = LayerSequence(
        (SequenceLayer("Reshape", "", 14, {}, (0, 1), (2,)),),
        (
            Value(TensorType("float32", (6,)), "input"),
            Value(shape, "constant", (2, 3)),
            Value(TensorType("float32", (2, 3)), "internal"),
        ),
        (2,),
    )
    assert weight_bytes(reshape) == 0
