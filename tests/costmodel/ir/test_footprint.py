"""Footprints: how much memory sequences and models touch."""

from collections.abc import Callable

import pytest
from onnx import ModelProto

from costmodel.ir.footprint import Footprint, activation_bytes, read_bytes
from costmodel.ir.graph import LayerGraph, TensorType
from costmodel.ir.sequence import LayerSequence, SequenceLayer, Value
from costmodel.partition.decomposition import decompose
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
    """Repetitions count for the weights only, and equal weights, which the runtime keeps once, count once."""
    cut = decompose(light_name, lowered_light(light_name))
    read = sum(read_bytes(segment.sequence) for segment in cut.segments)
    assert cut.footprint.weights == read - cut.shared_bytes
    assert 0 <= cut.shared_bytes < read
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


@pytest.mark.parametrize(("operators", "rows"), [(["Gather", "Gather"], 3 + 4), (["Gather", "MatMul"], 100)])
def test_a_table_that_is_read_twice(operators: list[str], rows: int) -> None:
    """The rows of both lookups count, or all of the table if it is multiplied as well, as tied embeddings are."""
    shapes = ((100, 8), (3,), (4,) if "MatMul" not in operators else (8, 100), (3, 8), (4, 8))
    roles = ("constant", "input", "input", "internal", "internal")
    slots = {"Gather": (0, 2), "MatMul": (2, 0)}
    layers = (
        SequenceLayer("Gather", "", 13, {}, (0, 1), (3,)),
        SequenceLayer(operators[1], "", 13, {}, slots[operators[1]], (4,)),
    )
    values = tuple(Value(TensorType("float32", s), role) for s, role in zip(shapes, roles, strict=True))  # type: ignore[arg-type]
    assert read_bytes(LayerSequence(layers, values, (3, 4))) == rows * 8 * 4
