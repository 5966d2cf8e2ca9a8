"""Footprints: how much memory sequences and models touch."""

from collections.abc import Callable

from onnx import ModelProto

from costmodel.ir.footprint import Footprint, activation_bytes, read_bytes
from costmodel.ir.graph import LayerGraph, TensorType
from costmodel.ir.sequence import LayerSequence, SequenceLayer, Value
from costmodel.partition.decomposition import decompose, whole_model
from costmodel.serving.isolation.wire import decomposition_from_dict, decomposition_to_dict
from tests.fakes import elementwise


def product(rows: int, depth: int, columns: int) -> LayerSequence:
    """Returns a matrix product with constant weights."""
    shapes = ((rows, depth), (depth, columns), (rows, columns))
    roles = ("input", "constant", "internal")
    return LayerSequence(
        layers=(SequenceLayer("MatMul", "", 13, {}, (0, 1), (2,)),),
        values=tuple(Value(TensorType("float32", s), role) for s, role in zip(shapes, roles, strict=True)),  # type: ignore[arg-type]
        outputs=(2,),
    )


def test_every_run_reads_weights_and_each_different_sequence_its_activations() -> None:
    """A layer that occurs twice reads two sets of weights, but is measured once, on one set of activations."""
    one, other = product(8, 16, 32), elementwise(5, 7)
    assert Footprint.of([one, other, one]) == Footprint(
        weights=2 * 4 * 16 * 32, activations=4 * (8 * 16 + 8 * 32) + 2 * 4 * 5 * 7
    )
    assert Footprint.of([]) == Footprint(0.0, 0.0)


def test_the_footprint_of_a_model_is_that_of_its_sequences(
    light_name: str, lowered_light: Callable[..., LayerGraph]
) -> None:
    """Repetitions count for the weights only."""
    cut = decompose(light_name, lowered_light(light_name))
    assert cut.footprint.weights == sum(read_bytes(segment.sequence) for segment in cut.segments)
    assert cut.footprint.activations == sum(map(activation_bytes, cut.unique.values()))


def test_weights_that_layers_share_count_once(
    parse: Callable[..., ModelProto], lower: Callable[..., LayerGraph]
) -> None:
    """Three blocks with the same weights, as ALBERT has them, read one set of weights."""
    text = "(float[8,16] x) => (float[8,16] y) { a = MatMul(x, w) b = MatMul(a, w) y = MatMul(b, w) }"
    cut = decompose("shared", lower(parse(text, weights={"w": (16, 16)})))
    assert len(cut.segments) == 3
    assert cut.footprint.weights == 4 * 16 * 16
    assert decomposition_from_dict(decomposition_to_dict(cut)).footprint == cut.footprint


def test_a_table_that_is_looked_up_twice(parse: Callable[..., ModelProto], lower: Callable[..., LayerGraph]) -> None:
    """The rows of both lookups count, and all of the table where it is also multiplied, as tied embeddings are."""
    text = "(int64[3] i, int64[4] k) => (float[3,8] y, float[4,8] z) {{ y = Gather(w, i) z = Gather(w, k) {more} }}"
    rows = whole_model(lower(parse(text.format(more=""), weights={"w": (100, 8)})))
    assert read_bytes(rows) == (3 + 4) * 8 * 4
    tied = text.replace("[4,8] z)", "[4,8] z, float[3,100] s)")
    tied = tied.format(more="t = Transpose(w) n = Neg(y) s = MatMul(n, t)")
    assert read_bytes(whole_model(lower(parse(tied, weights={"w": (100, 8)})))) >= 100 * 8 * 4
