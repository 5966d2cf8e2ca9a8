"""Checks the inputs, outputs and attributes of a layer against the definition of its operator in ONNX."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import onnx
from onnx.defs import OpSchema

from costmodel.ir.graph import Attributes
from costmodel.ir.operators import schemas_of

__all__ = ["fault_of_layer"]

_CACHED_DEFINITIONS = 4096  # more than there are operators in all versions

_KIND = {
    OpSchema.AttrType.INT: "i",
    OpSchema.AttrType.FLOAT: "f",
    OpSchema.AttrType.STRING: "s",
    OpSchema.AttrType.INTS: "ints",
    OpSchema.AttrType.FLOATS: "floats",
    OpSchema.AttrType.STRINGS: "strings",
    OpSchema.AttrType.TENSOR: "t",
    OpSchema.AttrType.GRAPH: "g",
}


@dataclass(frozen=True, slots=True)
class _Definition:
    """The definition of an operator in ONNX, as far as layers are checked against it.

    Attributes:
        kinds: Kind of each attribute, such as "i" for an integer, by name; attributes of kinds that costmodel does not
            encode are left out.
        required: Names of the attributes that a layer must have.
        needed: Positions of the inputs that a layer must have.
        inputs: Maximum number of inputs.
        outputs: Maximum number of outputs.
    """

    kinds: Mapping[str, str]
    required: frozenset[str]
    needed: tuple[int, ...]
    inputs: int
    outputs: int

    @classmethod
    def of(cls, schemas: Sequence[OpSchema]) -> "_Definition":
        """Returns one definition for several versions of an operator.

        It allows what any of the versions allows, and requires what all of them require.
        """
        return cls(
            kinds={
                name: _KIND[attribute.type]
                for schema in schemas
                for name, attribute in schema.attributes.items()
                if attribute.type in _KIND
            },
            required=frozenset.intersection(*(_required(schema) for schema in schemas)),
            needed=tuple(sorted(set.intersection(*(_needed(schema) for schema in schemas)))),
            inputs=max(schema.max_input for schema in schemas),
            outputs=max(schema.max_output for schema in schemas),
        )


def _required(schema: OpSchema) -> frozenset[str]:
    return frozenset(name for name, attribute in schema.attributes.items() if attribute.required)


def _needed(schema: OpSchema) -> set[int]:
    """Returns the positions of the inputs that a layer of an operator must have.

    These are the inputs that ONNX calls single, and the minimum number of variadic (repeatable) inputs.
    """
    single = {slot for slot, port in enumerate(schema.inputs) if port.option == OpSchema.FormalParameterOption.Single}
    optional = {
        slot for slot, port in enumerate(schema.inputs) if port.option == OpSchema.FormalParameterOption.Optional
    }
    return single | (set(range(schema.min_input)) - optional)


@lru_cache(_CACHED_DEFINITIONS)
def _definition(op_type: str, domain: str, since: int) -> _Definition | None:
    """Returns the definition of an operator; None if the installed ONNX has none for its version, or deprecates it.

    Args:
        op_type: Operator.
        domain: Domain of the operator; "" for ONNX's own.
        since: Version of the operator.
    """
    schemas = schemas_of(op_type, domain)
    if domain == "":
        # The installed library has no definitions for opsets newer than its own.
        known = [s for s in schemas if s.since_version <= since <= onnx.defs.onnx_opset_version()]
        return _Definition.of(known[-1:]) if known and not known[-1].deprecated else None
    # Layers of other domains all have version 1 (see costmodel.ir.operators.since_version).
    return _Definition.of(schemas)


def fault_of_layer(
    op_type: str, domain: str, since: int, attributes: Attributes, inputs: Sequence[int], outputs: Sequence[int]
) -> str | None:
    """Returns how a layer contradicts the ONNX definition of its operator; None if it does not, or if there is none.

    The text is a predicate, such as "lacks its input 1", before which the caller puts a name for the layer.

    Args:
        op_type: Operator of the layer.
        domain: Domain of the operator.
        since: Version of the operator.
        attributes: Attributes of the layer, already validated.
        inputs: Indices, among the values of the sequence, of the layer's own inputs, without values that its subgraphs
            capture; -1 for an absent input.
        outputs: Indices of the values that the layer produces; -1 for an absent output.
    """
    domain = "" if domain == "ai.onnx" else domain
    if not schemas_of(op_type, domain):  # checked first, so that unknown operators do not fill the cache
        return None
    definition = _definition(op_type, domain, since)
    if definition is None:
        return None
    for slot in definition.needed:
        if slot >= len(inputs) or inputs[slot] < 0:
            return f"lacks its input {slot}"
    if len(inputs) > definition.inputs:
        return f"has {len(inputs)} inputs, and {definition.inputs} are defined"
    if len(outputs) > definition.outputs:
        return f"has {len(outputs)} outputs, and {definition.outputs} are defined"
    return _fault_of_attributes(definition, attributes)


def _fault_of_attributes(definition: _Definition, attributes: Attributes) -> str | None:
    for name, content in attributes.items():
        kind = definition.kinds.get(name)
        if kind is None:
            return f"has the attribute {name[:40]}, which is not defined for it"
        if kind not in content:
            return f"has the attribute {name[:40]}, which must be of the kind {kind}"
    missing = definition.required - attributes.keys()
    return f"lacks its attribute {min(missing)}" if missing else None
