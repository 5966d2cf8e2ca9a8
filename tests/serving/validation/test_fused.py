"""Fused layers that clients send: their bodies are checked as sequences are."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from costmodel.errors import ModelError
from costmodel.ir.fused import FUSED_DOMAIN, MOST_FUSED, fuse
from costmodel.ir.graph import Layer, TensorType
from costmodel.ir.sequence import LayerSequence, build_sequence
from costmodel.serving.validation import check_sequence

KIND = TensorType("float32", (4, 8))
TYPES = {f"v{i}": KIND for i in range(MOST_FUSED + 3)}


def chain(length: int) -> LayerSequence:
    """Returns a sequence of one layer, into which a chain of activations is fused."""
    layers = [Layer(f"l{i}", "Relu", "", 14, {}, (f"v{i}",), (f"v{i + 1}",)) for i in range(length)]
    fused = fuse("fused", layers, TYPES, {}, {f"v{length}"})
    return build_sequence([fused], TYPES, {}, {f"v{length}"})


def with_body(change: Callable[[dict[str, Any]], dict[str, Any]]) -> LayerSequence:
    """Returns the sequence with changed attributes of its layer."""
    sequence = chain(2)
    layer = replace(sequence.layers[0], attributes=change(dict(sequence.layers[0].attributes)))
    return LayerSequence((layer,), sequence.values, sequence.outputs)


def test_a_fused_layer_is_accepted() -> None:
    """A layer that consists of valid operators is valid."""
    check_sequence(chain(2))


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda _: {}, "must have a body and nothing else"),
        (lambda given: {**given, "alpha": {"f": 1.0}}, "must have a body and nothing else"),
        (lambda _: {"body": {"s": "{}"}}, "a body that is no sequence of layers"),
        (lambda _: {"body": {"s": "[" * 100_000}}, "a body that is no sequence of layers"),
        (lambda given: {"body": {"s": given["body"]["s"].replace("Relu", "Conv")}}, "a body in which the layer 0"),
        (lambda given: {"body": {"s": given["body"]["s"].replace("[4,8]", "[4,9]")}}, "other types than its body"),
        (lambda _: chain(3).layers[0].attributes | {"body": {"i": 1}}, "a body that is no sequence of layers"),
    ],
)
def test_a_body_that_does_not_fit_is_refused(change: Callable[[dict[str, Any]], dict[str, Any]], fault: str) -> None:
    """Whatever is wrong with a body, the refusal says what, and nothing else happens."""
    with pytest.raises(ModelError, match=fault):
        check_sequence(with_body(change))


def test_a_body_has_a_limited_number_of_layers() -> None:
    """A client cannot hide a model of any size in one layer."""
    with pytest.raises(ModelError, match=f"a body of {MOST_FUSED + 1} layers, and {MOST_FUSED} are accepted"):
        check_sequence(chain(MOST_FUSED + 1))


def test_fused_layers_do_not_nest() -> None:
    """A body with a fused layer in it is refused before anything is unfolded."""
    inner = chain(2)
    nested = replace(inner.layers[0], attributes={"body": {"s": inner.text}})
    assert nested.domain == FUSED_DOMAIN
    with pytest.raises(ModelError, match="a body that is no sequence of layers"):
        check_sequence(LayerSequence((nested,), inner.values, inner.outputs))
