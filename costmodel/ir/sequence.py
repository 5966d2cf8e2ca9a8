"""Layer sequences and their signatures.

The canonical form of a sequence has no names: layers are in canonical order, and values are numbered in the order in
which the layers first mention them. Two sequences that do the same work therefore have the same canonical text,
whatever names and order of branches their models have. The signature is the digest of that text.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from costmodel.ir.canonical_order import canonical_order
from costmodel.ir.graph import Attributes, Layer, TensorType

__all__ = [
    "LayerSequence",
    "SequenceLayer",
    "Value",
    "build_named_sequence",
    "build_sequence",
    "input_indices",
    "weight_indices",
]

SIGNATURE_HEX_DIGITS = 32


@dataclass(frozen=True, slots=True)
class Value:
    """One tensor that a layer of a sequence reads or writes.

    Attributes:
        type: Element type, logical shape and layout.
        role: "input" (fed from outside), "constant" (known before the run) or "internal" (produced by a layer).
        data: Numbers in a constant that determines the work, such as a shape; None for weights, inputs and internal
            values.
    """

    type: TensorType
    role: str
    data: tuple[Any, ...] | None = None


@dataclass(frozen=True, slots=True)
class SequenceLayer:
    """One layer of a sequence.

    Attributes:
        op_type: Operator, for example "Conv".
        domain: Operator domain, "" for ONNX's own.
        since: Version of the operator.
        attributes: Attributes in canonical form.
        inputs: Indices, among the values of the sequence, of the values read; -1 for an absent input.
        outputs: Indices, likewise, of the values produced; -1 for an absent output.
        num_captured: Number of inputs, counted from the end, that are captured by subgraphs.
    """

    op_type: str
    domain: str
    since: int
    attributes: Attributes
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    num_captured: int = 0


@dataclass(frozen=True)
class LayerSequence:
    """Layers that follow each other and can run in isolation, in canonical form.

    Attributes:
        layers: Layers in canonical topological order.
        values: Every tensor that a layer reads or writes, in order of first mention.
        outputs: Indices, among `values`, of the values that are read outside the sequence, ascending.
    """

    layers: tuple[SequenceLayer, ...]
    values: tuple[Value, ...]
    outputs: tuple[int, ...]

    @cached_property
    def text(self) -> str:
        """Canonical JSON of the sequence, whose digest is the signature; `from_text` reads it.

        Raises:
            ValueError: An attribute or a constant holds NaN or an infinity, which JSON cannot represent.
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
                        "captured": layer.num_captured,
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
        """Digest that identifies the sequence: 32 hexadecimal digits."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:SIGNATURE_HEX_DIGITS]

    @cached_property
    def kind(self) -> str:
        """Names of the operators in order, for display and grouping: "Conv", "Conv+MaxPool"."""
        return "+".join(layer.op_type for layer in self.layers)

    @classmethod
    def from_text(cls, text: str) -> "LayerSequence":
        """Returns the sequence whose canonical JSON is `text`.

        Raises:
            ValueError: `text` is not the canonical JSON of a sequence.
        """
        try:
            data = json.loads(text, parse_constant=_reject_nonfinite)
            sequence = cls(
                layers=tuple(
                    SequenceLayer(
                        op_type=item["op"],
                        domain=item["domain"],
                        since=item["since"],
                        attributes=item["attrs"],
                        inputs=tuple(item["in"]),
                        outputs=tuple(item["out"]),
                        num_captured=item["captured"],
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


def _reject_nonfinite(name: str) -> float:
    """Raises ValueError for `NaN` and `Infinity`, which Python's JSON parser accepts although JSON lacks them."""
    raise ValueError(f"not a layer sequence: {name} is no number in JSON")


def build_sequence(
    layers: Sequence[Layer],
    types: Mapping[str, TensorType],
    constants: Mapping[str, tuple[Any, ...] | None],
    read_outside: Iterable[str],
) -> LayerSequence:
    """Returns the canonical sequence of `layers`; see `build_named_sequence`."""
    return build_named_sequence(layers, types, constants, read_outside)[0]


def build_named_sequence(
    layers: Sequence[Layer],
    types: Mapping[str, TensorType],
    constants: Mapping[str, tuple[Any, ...] | None],
    read_outside: Iterable[str],
) -> tuple[LayerSequence, tuple[str, ...]]:
    """Returns the canonical sequence of `layers`, and the name that each of its values has among them.

    The outputs of the sequence are the produced values in `read_outside`. If nothing reads any output of a layer, the
    first output of the layer becomes an output of the sequence too, because a runtime would otherwise remove the layer.

    Args:
        layers: At least one layer, topologically sorted.
        types: Type of every value that the layers read or write.
        constants: Data of each value known before the model runs, None for weights, as in `LayerGraph`.
        read_outside: Names of the values that a layer outside the sequence, or the caller of the model, reads.
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
            num_captured=layer.num_captured,
        )
        for layer in ordered
    )
    read_inside = {name for layer in ordered for name in layer.inputs}
    leaving = {name for name in produced if name in outside}
    for layer in ordered:
        # A layer without readers runs too: its first output must be an output, or the runtime would remove the layer.
        if not any(name in leaving or name in read_inside for name in layer.outputs):
            leaving.add(next(name for name in layer.outputs if name))
    return LayerSequence(numbered, tuple(values), tuple(sorted(index[name] for name in leaving))), tuple(index)


def input_indices(sequence: LayerSequence) -> list[int]:
    """Returns the indices of the values that are inputs, which must be fed when the sequence runs."""
    return [i for i, value in enumerate(sequence.values) if value.role == "input"]


def weight_indices(sequence: LayerSequence) -> list[int]:
    """Returns the indices of the values that are weights: constants without recorded data, which is synthesised."""
    return [i for i, value in enumerate(sequence.values) if value.role == "constant" and value.data is None]
