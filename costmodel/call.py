"""One layer with what is known of its arguments: what rules about their values are written in."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from costmodel.graph import Attributes
from costmodel.sequence import LayerSequence, SequenceLayer, Value

__all__ = ["Call", "shape_of"]


def shape_of(value: Value | None) -> tuple[int, ...]:
    """Shape of a value, which is there."""
    assert value is not None
    return value.type.shape


@dataclass(frozen=True, slots=True)
class Call:
    """One layer with what is known of its arguments.

    Attributes:
        op_type: Operator.
        attributes: Canonical attributes.
        inputs: Values read, None where absent.
        outputs: Values made, None where absent.
        captured: How many of the last inputs are captured by subgraphs.
    """

    op_type: str
    attributes: Attributes
    inputs: Sequence[Value | None]
    outputs: Sequence[Value | None]
    captured: int = 0

    @classmethod
    def of(cls, sequence: LayerSequence, layer: SequenceLayer) -> "Call":
        """The call that `layer` makes in `sequence`."""
        inputs, outputs = (
            [sequence.values[i] if i >= 0 else None for i in indices] for indices in (layer.inputs, layer.outputs)
        )
        return cls(layer.op_type, layer.attributes, inputs, outputs, layer.captured)

    def shape(self, slot: int) -> tuple[int, ...]:
        """Shape of an input, which is there."""
        return shape_of(self.inputs[slot])

    def dtype(self, slot: int) -> str:
        """Element type of an input, which is there."""
        value = self.inputs[slot]
        assert value is not None
        return value.type.dtype

    def has(self, slot: int) -> bool:
        """Whether an input is there."""
        return slot < len(self.inputs) and self.inputs[slot] is not None

    def makes(self, slot: int) -> bool:
        """Whether an output is there."""
        return slot < len(self.outputs) and self.outputs[slot] is not None

    def made(self, slot: int = 0) -> tuple[int, ...]:
        """Shape of an output, which is there."""
        return shape_of(self.outputs[slot])

    def known(self, slot: int) -> list[Any] | None:
        """Values of an input, where they are recorded."""
        value = self.inputs[slot] if slot < len(self.inputs) else None
        return list(value.data) if value is not None and value.data is not None else None

    def integer(self, name: str, default: int) -> int:
        """An integer attribute."""
        return int(self.attributes.get(name, {"i": default})["i"])

    def axis(self, default: int, rank: int) -> int:
        """The attribute "axis" of a tensor of this rank, counted from the front."""
        return self.integer("axis", default) % rank if rank else 0
