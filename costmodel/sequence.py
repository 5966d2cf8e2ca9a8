"""Layer sequences and their signatures.

A sequence is written down without names: values are numbered in the order in which its layers, themselves in
canonical order, first mention them. Two sequences that do the same work therefore have the same text, whatever
their models called things and in whatever order branches were listed, and the signature is the digest of that text.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from costmodel.canonical import canonical_order
from costmodel.graph import Attributes, Layer, TensorType

__all__ = ["LayerSequence", "SequenceLayer", "Value", "build_sequence"]

SIGNATURE_HEX_DIGITS = 32


@dataclass(frozen=True, slots=True)
class Value:
    """One tensor of a sequence.

    Attributes:
        type: Element type, logical shape, layout.
        role: "input" (arrives from outside), "constant" (known beforehand) or "internal".
        data: Values of a constant that shapes the work; None for weights and for everything that is no constant.
    """

    type: TensorType
    role: str
    data: tuple[Any, ...] | None = None


@dataclass(frozen=True, slots=True)
class SequenceLayer:
    """One layer of a sequence; inputs and outputs are indices into the sequence's values, -1 where absent."""

    op_type: str
    domain: str
    since: int
    attributes: Attributes
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    captured: int = 0


@dataclass(frozen=True)
class LayerSequence:
    """A chain of layers that is runnable by itself, in canonical form.

    Attributes:
        layers: In canonical topological order.
        values: Every tensor, in order of first mention.
        outputs: Indices of the values that leave the sequence, ascending.
    """

    layers: tuple[SequenceLayer, ...]
    values: tuple[Value, ...]
    outputs: tuple[int, ...]

    @cached_property
    def text(self) -> str:
        """The canonical JSON that the signature is the digest of; `from_text` reads it back.

        Raises:
            ValueError: An attribute or a constant holds a number that JSON does not have: NaN or an infinity.
        """
        return json.dumps(
            {
                "layers": [
                    {
                        "op": layer.op_type,
                        "domain": layer.domain,
                        "since": layer.since,
                        "attrs": layer.attributes,
                        "in": layer.inputs,
                        "out": layer.outputs,
                        "captured": layer.captured,
                    }
                    for layer in self.layers
                ],
                "values": [[v.type.dtype, v.type.shape, int(v.type.blocked), v.role, v.data] for v in self.values],
                "outputs": self.outputs,
            },
            sort_keys=True,
            separators=(",", ":"),
            allow_nan=False,
        )

    @cached_property
    def signature(self) -> str:
        """Identity of the sequence: 32 hexadecimal digits."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:SIGNATURE_HEX_DIGITS]

    @cached_property
    def kind(self) -> str:
        """Operator types in order, for people and for grouping: "Conv", "Conv+MaxPool"."""
        return "+".join(layer.op_type for layer in self.layers)

    @classmethod
    def from_text(cls, text: str) -> "LayerSequence":
        """The sequence that `text` describes.

        Raises:
            ValueError: `text` is not the canonical JSON of a sequence.
        """
        try:
            data = json.loads(text, parse_constant=_refuse_constant)
            sequence = cls(
                layers=tuple(
                    SequenceLayer(
                        op_type=item["op"],
                        domain=item["domain"],
                        since=item["since"],
                        attributes=item["attrs"],
                        inputs=tuple(item["in"]),
                        outputs=tuple(item["out"]),
                        captured=item["captured"],
                    )
                    for item in data["layers"]
                ),
                values=tuple(
                    Value(
                        TensorType(dtype, tuple(shape), bool(blocked)),
                        role,
                        None if values is None else tuple(values),
                    )
                    for dtype, shape, blocked, role, values in data["values"]
                ),
                outputs=tuple(data["outputs"]),
            )
            mentioned = [i for layer in sequence.layers for i in (*layer.inputs, *layer.outputs) if i != -1]
            if not all(0 <= i < len(sequence.values) for i in (*mentioned, *sequence.outputs)):
                raise ValueError("not a layer sequence: it mentions values that it does not have")
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not a layer sequence: {error}") from error
        return sequence


def _refuse_constant(name: str) -> float:
    """Refuse `NaN` and `Infinity`, which Python's parser takes although JSON does not have them."""
    raise ValueError(f"not a layer sequence: {name} is no number in JSON")


def build_sequence(
    layers: Sequence[Layer],
    types: Mapping[str, TensorType],
    constants: Mapping[str, tuple[Any, ...] | None],
    read_outside: Iterable[str],
) -> LayerSequence:
    """The canonical sequence made of `layers`, given in a valid order.

    Outputs are the produced values in `read_outside`; a layer whose values nobody reads at all keeps its first one,
    because a runtime would drop it otherwise.

    Args:
        layers: At least one layer.
        types: Type of every value that they touch.
        constants: Values known before the model runs, as in `LayerGraph`.
        read_outside: Names that a layer outside the sequence, or the model's caller, reads.
    """
    outside = set(read_outside)
    ordered = canonical_order(layers, types, constants, outside)
    produced = {name for layer in ordered for name in layer.outputs if name}
    index: dict[str, int] = {}
    values: list[Value] = []

    def number(name: str) -> int:
        if not name:
            return -1
        if name not in index:
            index[name] = len(values)
            role = "internal" if name in produced else "constant" if name in constants else "input"
            values.append(Value(types[name], role, constants.get(name) if role == "constant" else None))
        return index[name]

    numbered = tuple(
        SequenceLayer(
            op_type=layer.op_type,
            domain=layer.domain,
            since=layer.since,
            attributes=layer.attributes,
            inputs=tuple(number(name) for name in layer.inputs),
            outputs=tuple(number(name) for name in layer.outputs),
            captured=layer.captured,
        )
        for layer in ordered
    )
    read_inside = {name for layer in ordered for name in layer.inputs}
    leaving = {name for name in produced if name in outside}
    for layer in ordered:
        # A dangling layer still runs: its first output must leave, or the runtime would drop the layer.
        if not any(name in leaving or name in read_inside for name in layer.outputs):
            leaving.add(next(name for name in layer.outputs if name))
    return LayerSequence(numbered, tuple(values), tuple(sorted(index[name] for name in leaving)))
