"""What makes two nodes the same layer: operator versions and attributes in one canonical form.

ONNX gives an operator a new version for every change, most often only to admit another element type or to add an
attribute. Versions that differ in nothing else that a layer uses are one operator here, so that models of different
opsets share their layers.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import onnx
from onnx import AttributeProto
from onnx.defs import OpSchema

from costmodel.attributes import encode
from costmodel.graph import Attributes

__all__ = ["COMMON_OPSET", "canonical_attributes", "opset_for", "since_version"]

# The newest opset that every supported runtime release runs; runnable networks never ask for a newer one
# unless a layer exists only there.
COMMON_OPSET = 21

# The bodies of these say what they mean only together with the opset of the model that they came from.
_CONTROL_FLOW = {"If", "Loop", "Scan"}

# A version of these adds an attribute whose default is not what the version without it does.
_RESTATED = {"RoiAlign", "Split"}

_WINDOWED = {
    "Conv",
    "FusedConv",
    "ConvTranspose",
    "MaxPool",
    "AveragePool",
    "LpPool",
    "ConvInteger",
    "QLinearConv",
}


@cache
def _versions(op_type: str, domain: str) -> tuple[OpSchema, ...]:
    """Every version of an operator, oldest first; empty when ONNX does not define it."""
    found = [
        schema
        for schema in onnx.defs.get_all_schemas_with_history()
        if schema.name == op_type and schema.domain == domain
    ]
    return tuple(sorted(found, key=lambda schema: schema.since_version))


def _meaning(schema: OpSchema) -> dict[str, object]:
    """What an operator's version says, by attribute; its inputs, outputs and state under ""."""
    said: dict[str, object] = {
        name: (a.type, a.required, a.default_value.SerializeToString(deterministic=True))
        for name, a in schema.attributes.items()
    }
    said[""] = [(p.name, p.option, p.is_homogeneous) for p in (*schema.inputs, *schema.outputs)], schema.deprecated
    return said


@cache
def _added(older: OpSchema, newer: OpSchema) -> frozenset[str] | None:
    """Attributes that a version adds to one that means the same without them; None if it means something else."""
    before, after = _meaning(older), _meaning(newer)
    if newer.name in _RESTATED and before.keys() != after.keys():
        return None
    if any(after.get(name) != said for name, said in before.items()):
        return None
    added = after.keys() - before.keys()
    return None if any(newer.attributes[name].required for name in added) else frozenset(added)


def _accepts(schema: OpSchema, input_types: Sequence[str]) -> bool:
    """Whether `schema` takes inputs of these numpy dtypes ("" where absent)."""
    allowed = {c.type_param_str: c.allowed_type_strs for c in schema.type_constraints}
    formals = list(schema.inputs)
    for position, dtype in enumerate(input_types):
        if not dtype or not formals:
            continue
        formal = formals[min(position, len(formals) - 1)]
        onnx_name = {"float32": "float", "float64": "double"}.get(dtype, dtype)
        if f"tensor({onnx_name})" not in allowed.get(formal.type_str, {formal.type_str}):
            return False
    return True


def _position(op_type: str, opset: int) -> int | None:
    """Which of an operator's versions `opset` means."""
    versions = _versions(op_type, "")
    return max((i for i, s in enumerate(versions) if s.since_version <= opset), default=None)


@cache
def since_version(
    op_type: str, domain: str, opset: int, input_types: tuple[str, ...], attributes: frozenset[str] = frozenset()
) -> int:
    """The oldest version of an operator that means what it means at `opset`.

    Args:
        op_type: Operator.
        domain: Its domain; other domains than ONNX's own have one version.
        opset: Of the model.
        input_types: Numpy dtypes that it has to take, "" where absent.
        attributes: Names of the attributes that it has to know.
    """
    if domain not in ("", "ai.onnx"):
        return 1
    position = _position(op_type, opset)
    if op_type in _CONTROL_FLOW or position is None:
        return opset
    versions = _versions(op_type, "")
    while position > 0:
        added = _added(versions[position - 1], versions[position])
        if added is None or added & attributes or not _accepts(versions[position - 1], input_types):
            break
        position -= 1
    return versions[position].since_version


@cache
def _newest_equivalent(op_type: str, since: int) -> int:
    """The newest opset, at most `COMMON_OPSET` or `since`, at which an operator still means the same."""
    position = _position(op_type, since)
    if op_type in _CONTROL_FLOW or position is None:
        return since
    versions = _versions(op_type, "")
    while position + 1 < len(versions) and _added(versions[position], versions[position + 1]) is not None:
        position += 1
    after = versions[position + 1].since_version if position + 1 < len(versions) else COMMON_OPSET + 1
    return max(since, min(COMMON_OPSET, after - 1))


@cache
def _defaults(op_type: str, domain: str, opset: int) -> Mapping[str, Mapping[str, Any]]:
    versions = [s for s in _versions(op_type, domain) if s.since_version <= opset]
    if not versions:
        return {}
    return {
        name: encode(a.default_value)
        for name, a in versions[-1].attributes.items()
        if a.default_value.type != AttributeProto.UNDEFINED
    }


def canonical_attributes(
    op_type: str,
    domain: str,
    opset: int,
    attributes: Attributes,
    input_shapes: Sequence[tuple[int, ...]],
    output_shapes: Sequence[tuple[int, ...]],
) -> Attributes:
    """Encoded attributes in one form: defaults left out, windows written out, automatic padding made explicit.

    Args:
        op_type: Operator.
        domain: Its domain; "" for ONNX's own.
        opset: Of the model.
        attributes: As encoded from the node.
        input_shapes: Logical shape of each input; () where absent.
        output_shapes: Logical shape of each output.
    """
    result = dict(attributes)
    if op_type in _WINDOWED:
        result = _explicit_window(op_type, result, input_shapes, output_shapes)
    defaults = _defaults(op_type, "" if domain == "ai.onnx" else domain, opset)
    return {name: value for name, value in sorted(result.items()) if defaults.get(name) != value}


def _explicit_window(
    op_type: str,
    attributes: dict[str, Any],
    input_shapes: Sequence[tuple[int, ...]],
    output_shapes: Sequence[tuple[int, ...]],
) -> dict[str, Any]:
    """Kernel, strides, dilations and pads of a convolution or pooling, whether they were given or implied."""
    weight = 3 if op_type == "QLinearConv" else 1
    kernel = attributes.get("kernel_shape", {}).get("ints")
    if kernel is None:
        kernel = list(input_shapes[weight][2:])
    rank = len(kernel)
    strides = attributes.get("strides", {}).get("ints") or [1] * rank
    dilations = attributes.get("dilations", {}).get("ints") or [1] * rank
    pads = attributes.get("pads", {}).get("ints") or [0] * (2 * rank)
    automatic = attributes.pop("auto_pad", {"s": "NOTSET"})["s"]
    if automatic.startswith("SAME"):
        totals = []
        for axis in range(rank):
            large, small = input_shapes[0][2 + axis], output_shapes[0][2 + axis]
            if op_type == "ConvTranspose":
                large, small = small, large
            totals.append(max(0, (small - 1) * strides[axis] + dilations[axis] * (kernel[axis] - 1) + 1 - large))
        lower = [(total + 1) // 2 if automatic == "SAME_LOWER" else total // 2 for total in totals]
        pads = lower + [total - begin for total, begin in zip(totals, lower, strict=True)]
    window = {"kernel_shape": kernel, "strides": strides, "dilations": dilations, "pads": pads}
    if op_type in ("MaxPool", "AveragePool", "LpPool") and dilations == [1] * rank:
        del window["dilations"]  # older versions of the pools do not know the attribute
    return {**attributes, **{name: {"ints": list(values)} for name, values in window.items()}}


def opset_for(layers: Sequence[tuple[str, str, int]]) -> int:
    """The ONNX opset for a network of (op_type, domain, since) layers that came from one model."""
    own = [layer for layer in layers if layer[1] in ("", "ai.onnx")]
    oldest = max((since for _, _, since in own), default=1)
    return max(oldest, min((_newest_equivalent(op_type, since) for op_type, _, since in own), default=COMMON_OPSET))
