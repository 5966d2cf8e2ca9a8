"""Footprints: how much memory sequences and models touch."""

from collections.abc import Callable

from costmodel.ir.footprint import Footprint, activation_bytes, read_bytes
from costmodel.ir.graph import LayerGraph, TensorType
from costmodel.ir.sequence import LayerSequence, SequenceLayer, Value
from costmodel.partition.decomposition import decompose
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
