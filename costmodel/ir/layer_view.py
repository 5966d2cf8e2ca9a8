"""View of one layer and its arguments, which is passed to the rules that choose synthetic values for the arguments."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from costmodel.ir.attributes import integer
from costmodel.ir.graph import Attributes
from costmodel.ir.sequence import LayerSequence, SequenceLayer, Value

__all__ = ["LayerView", "shape_of"]


def shape_of(value: Value | None) -> tuple[int, ...]:
    """Returns the shape of a value, which must be present (not None)."""
    assert value is not None
    return value.type.shape


@dataclass(frozen=True, slots=True)
class LayerView:
    """One layer with the types and known values of its arguments.

    Attributes:
        op_type: Operator, for example "Conv".
        attributes: Attributes in canonical form.
        inputs: Values read; None for an absent input.
        outputs: Values produced; None for an absent output.
        num_captured: Number of inputs, counted from the end, that are captured by subgraphs.
    """

    op_type: str
    attributes: Attributes
    inputs: Sequence[Value | None]
    outputs: Sequence[Value | None]
    num_captured: int = 0

    @classmethod
    def of(cls, sequence: LayerSequence, layer: SequenceLayer) -> "LayerView":
        """Returns the view of `layer`, which is a layer of `sequence`."""
        inputs, outputs = (
            [sequence.values[i] if i >= 0 else None for i in indices] for indices in (layer.inputs, layer.outputs)
        )
        return cls(layer.op_type, layer.attributes, inputs, outputs, layer.num_captured)

    def input_shape(self, slot: int) -> tuple[int, ...]:
        """Returns the shape of the input at position `slot`, which must be present."""
        return shape_of(self.inputs[slot])

    def input_dtype(self, slot: int) -> str:
        """Returns the element type of the input at position `slot`, which must be present, as its NumPy name."""
        value = self.inputs[slot]
        assert value is not None
        return value.type.dtype

    def has_input(self, slot: int) -> bool:
        """Returns whether the input at position `slot` is present."""
        return slot < len(self.inputs) and self.inputs[slot] is not None

    def has_output(self, slot: int) -> bool:
        """Returns whether the output at position `slot` is present."""
        return slot < len(self.outputs) and self.outputs[slot] is not None

    def output_shape(self, slot: int = 0) -> tuple[int, ...]:
        """Returns the shape of the output at position `slot`, which must be present."""
        return shape_of(self.outputs[slot])

    def input_data(self, slot: int) -> list[Any] | None:
        """Returns the values of the input at position `slot`; None if it is absent or its values are not recorded."""
        value = self.inputs[slot] if slot < len(self.inputs) else None
        return list(value.data) if value is not None and value.data is not None else None

    def integer(self, name: str, default: int) -> int:
        """Returns the integer attribute `name`, or `default` if the layer does not have it."""
        return integer(self.attributes, name, default)

    def axis(self, default: int, rank: int) -> int:
        """Returns the attribute "axis", or `default`, as an index from 0 to `rank` - 1; 0 if `rank` is 0 (a scalar)."""
        return self.integer("axis", default) % rank if rank else 0
