"""Validates the bodies of fused layers: the operators that a runtime executes as one layer."""

from collections.abc import Callable

from costmodel.errors import ModelError
from costmodel.ir.fused import MOST_FUSED, body_of, outer_values
from costmodel.ir.graph import TensorType
from costmodel.ir.sequence import LayerSequence, SequenceLayer

__all__ = ["fault_of_body"]


def fault_of_body(sequence: LayerSequence, layer: SequenceLayer, check: Callable[[LayerSequence], None]) -> str | None:
    """Returns what is wrong with the body of a fused layer; None if nothing is.

    The text is a predicate, such as "has a body that is no sequence", before which the caller puts a name for the
    layer.

    Args:
        sequence: Sequence that contains the layer; its values are valid.
        layer: Fused layer, whose inputs and outputs are indices of values.
        check: Function that raises `ModelError` if a sequence is invalid.
    """
    if layer.attributes.keys() != {"body"} or layer.num_captured:
        return "is fused, and must have a body and nothing else"
    try:
        body = body_of(layer)
        assert body is not None
    except (ValueError, RecursionError):
        return "has a body that is no sequence of layers"
    if len(body.layers) > MOST_FUSED:
        return f"has a body of {len(body.layers)} layers, and {MOST_FUSED} are accepted"
    try:
        check(body)
    except ModelError as error:
        return f"has a body in which {str(error).removesuffix(': correct it, and ask again')}"
    outer = [body.values[i].type for i in outer_values(body)]
    if outer != _types(sequence, layer.inputs) or [body.values[i].type for i in body.outputs] != _types(
        sequence, layer.outputs
    ):
        return "has inputs or outputs of other types than its body"
    return None


def _types(sequence: LayerSequence, indices: tuple[int, ...]) -> list[TensorType | None]:
    return [sequence.values[i].type if i >= 0 else None for i in indices]
