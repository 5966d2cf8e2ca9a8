"""Validates a whole layer sequence.

This covers its values (tensors), its layers, and whether each value is produced before a layer reads it.
"""

from collections.abc import Mapping

from costmodel.errors import ModelError
from costmodel.ir.fused import FUSED_DOMAIN
from costmodel.ir.sequence import LayerSequence, SequenceLayer, Value
from costmodel.serving.validation.attributes import MOST_ATTRIBUTES, fault_of_attribute
from costmodel.serving.validation.fused import fault_of_body
from costmodel.serving.validation.operators import fault_of_layer
from costmodel.serving.validation.preconditions import fault_of_preconditions
from costmodel.serving.validation.tensors import fault_of_data, fault_of_type

__all__ = ["check_sequence"]

_MOST_NAME_CHARACTERS = 128
_MOST_SHOWN_CHARACTERS = 40
_NEWEST_VERSION = 10_000
_MOST_PORTS = 10_000  # inputs of a layer, and outputs
_ROLES = frozenset({"input", "constant", "internal"})


def check_sequence(sequence: LayerSequence) -> None:
    """Refuses a sequence that no runtime executes or that cannot be priced.

    The time that the check takes is linear in the size of the sequence, whatever its content.

    Raises:
        ModelError: The sequence is invalid; the message describes the first fault that was found, and names the
            operator of the faulty layer, or of the first layer if the fault is not in a layer.
    """
    if not sequence.layers:
        raise ModelError("the sequence has no layers: it needs one at least")
    for place, value in enumerate(sequence.values):
        fault = _fault_of_value(value)
        if fault is not None:
            raise ModelError(
                f"the value {place} of the sequence {_description(sequence)} {fault}: correct it, and ask again"
            )
    order = _Order(sequence)
    for place, layer in enumerate(sequence.layers):
        fault = _fault_of_layer(sequence, layer, order)
        if fault is not None:
            raise ModelError(f"the layer {place} ({_shown(layer.op_type)}) {fault}: correct it, and ask again")
    fault = order.fault_at_the_end()
    if fault is not None:
        raise ModelError(f"the sequence {_description(sequence)} {fault}: correct it, and ask again")


def _fault_of_value(value: Value) -> str | None:
    kind = value.type
    fault = fault_of_type(kind.dtype, kind.shape)
    if fault is not None:
        return fault
    if not isinstance(value.role, str) or value.role not in _ROLES:
        return "is neither an input nor a constant nor internal"
    if type(kind.blocked) is not bool or (kind.blocked and len(kind.shape) < 2):
        return "cannot be in a blocked layout"
    if value.data is None:
        return None
    return fault_of_data(kind.dtype, kind.elements, value.data) if value.role == "constant" else "has values"


def _fault_of_layer(sequence: LayerSequence, layer: SequenceLayer, order: "_Order") -> str | None:
    if not _is_name(layer.op_type) or not (layer.domain == "" or _is_name(layer.domain)):
        return "has an operator or a domain that cannot be printed"
    if type(layer.since) is not int or not 0 <= layer.since <= _NEWEST_VERSION:
        return f"has a version that is no integer from 0 to {_NEWEST_VERSION}"
    if type(layer.num_captured) is not int or not 0 <= layer.num_captured <= len(layer.inputs):
        return "captures more values than it reads"
    if max(len(layer.inputs), len(layer.outputs)) > _MOST_PORTS:
        return f"has more than {_MOST_PORTS} inputs or outputs"
    fault = order.fault_of(layer)
    if fault is not None:
        return fault
    if not isinstance(layer.attributes, Mapping) or len(layer.attributes) > MOST_ATTRIBUTES:
        return f"has more than {MOST_ATTRIBUTES} attributes"
    for name, content in layer.attributes.items():
        fault = fault_of_attribute(name, content)
        if fault is not None:
            return f"has the attribute {_shown(name)}, which {fault}"
    if layer.domain == FUSED_DOMAIN:
        return fault_of_body(sequence, layer, check_sequence)
    explicit = layer.inputs[: len(layer.inputs) - layer.num_captured]
    return fault_of_layer(
        layer.op_type, layer.domain, layer.since, layer.attributes, explicit, layer.outputs
    ) or fault_of_preconditions(sequence, layer)


class _Order:
    """Record, updated layer by layer, of which values (tensors) of a sequence are available and which were read."""

    def __init__(self, sequence: LayerSequence) -> None:
        self._sequence = sequence
        self._internal = [value.role == "internal" for value in sequence.values]
        self._available = [not internal for internal in self._internal]
        self._read = [False] * len(self._available)

    def fault_of(self, layer: SequenceLayer) -> str | None:
        """Records what the next layer of the sequence reads and produces.

        Returns:
            What is wrong with the inputs and outputs of the layer, as a predicate such as "produces nothing"; None if
            they are valid.
        """
        available, read, internal = self._available, self._read, self._internal
        count = len(available)
        # Indices are compared with their bounds and never put into a set, where chosen integers could collide.
        for index in layer.inputs:
            if type(index) is not int or not -1 <= index < count:
                return "reads a value that the sequence does not have"
            if index >= 0:
                if not available[index]:
                    return f"reads the value {index}, which nothing before it produces"
                read[index] = True
        produces = False
        for index in layer.outputs:
            if type(index) is not int or not -1 <= index < count:
                return "produces a value that the sequence does not have"
            if index >= 0:
                if available[index] or not internal[index]:
                    return f"produces the value {index}, which is available already"
                available[index] = produces = True
        return None if produces else "produces nothing"

    def fault_at_the_end(self) -> str | None:
        """Returns what is wrong with the sequence, once all its layers are recorded; None if nothing is.

        It finds values that no layer produces or reads, and outputs that are not valid. The text is a predicate, such
        as "has no output", before which the caller puts a name for the sequence.
        """
        if not all(self._available):
            return f"has the value {self._available.index(False)}, which no layer produces"
        for index, read in enumerate(self._read):
            if not read and not self._internal[index]:
                return f"has the value {index}, which no layer reads"
        last = -1
        for index in self._sequence.outputs:
            if type(index) is not int or not last < index < len(self._internal) or not self._internal[index]:
                return "has outputs that are not, in ascending order, values that its layers make"
            last = index
        return None if last >= 0 else "has no output"


def _is_name(name: object) -> bool:
    return isinstance(name, str) and 0 < len(name) <= _MOST_NAME_CHARACTERS and name.isprintable()


def _description(sequence: LayerSequence) -> str:
    """Returns a phrase that identifies a sequence in a message by the operator of its first layer."""
    return f"that begins with {_shown(sequence.layers[0].op_type)}"


def _shown(name: object) -> str:
    """Returns a name in the form in which a message shows it: in ASCII, and shortened if it is long."""
    text = name if isinstance(name, str) else type(name).__name__
    return ascii(text[:_MOST_SHOWN_CHARACTERS])[1:-1][:_MOST_SHOWN_CHARACTERS]
