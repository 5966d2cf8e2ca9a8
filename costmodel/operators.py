"""What makes two nodes the same layer: operator versions and attributes in one canonical form.

ONNX gives an operator a new version for every change, most often only to admit another element type. Versions
that differ in nothing else are one operator here, so that models of different opsets share their layers.
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


def _meaning(schema: OpSchema) -> tuple[object, ...]:
    attributes = tuple(
        (name, a.type, a.required, a.default_value.SerializeToString(deterministic=True))
        for name, a in sorted(schema.attributes.items())
    )
    ports = tuple((p.name, p.option, p.is_homogeneous) for p in (*schema.inputs, *schema.outputs))
    return attributes, ports


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


def _window(op_type: str, domain: str, opset: int, input_types: tuple[str, ...]) -> tuple[int, int | None]:
    """(oldest, first that differs) version with the meaning that `opset` gives the operator."""
    versions = _versions(op_type, domain)
    current = max((i for i, s in enumerate(versions) if s.since_version <= opset), default=None)
    if current is None:
        return opset, None
    meaning = _meaning(versions[current])
    first = current
    while first > 0 and _meaning(versions[first - 1]) == meaning and _accepts(versions[first - 1], input_types):
        first -= 1
    after = current + 1
    while after < len(versions) and _meaning(versions[after]) == meaning:
        after += 1
    return versions[first].since_version, versions[after].since_version if after < len(versions) else None


@cache
def since_version(op_type: str, domain: str, opset: int, input_types: tuple[str, ...]) -> int:
    """The oldest version of an operator that means what it means at `opset` and takes these dtypes."""
    if domain not in ("", "ai.onnx"):
        return 1
    if op_type in _CONTROL_FLOW:
        return opset
    return _window(op_type, "", opset, input_types)[0]


@cache
def _newest_equivalent(op_type: str, domain: str, since: int) -> int:
    """The newest opset, at most `COMMON_OPSET` or `since`, at which the operator still means the same."""
    if domain not in ("", "ai.onnx"):
        return COMMON_OPSET
    if op_type in _CONTROL_FLOW:
        return since
    after = _window(op_type, "", since, ())[1]
    return max(since, min(COMMON_OPSET, (after or COMMON_OPSET + 1) - 1))


@cache
def _defaults(op_type: str, domain: str, since: int) -> Mapping[str, Mapping[str, Any]]:
    versions = [s for s in _versions(op_type, domain) if s.since_version <= since]
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
    since: int,
    attributes: Attributes,
    input_shapes: Sequence[tuple[int, ...]],
    output_shapes: Sequence[tuple[int, ...]],
) -> Attributes:
    """Encoded attributes in one form: defaults left out, windows written out, automatic padding made explicit.

    Args:
        op_type: Operator.
        domain: Its domain; "" for ONNX's own.
        since: Its canonical version.
        attributes: As encoded from the node.
        input_shapes: Logical shape of each input; () where absent.
        output_shapes: Logical shape of each output.
    """
    result = dict(attributes)
    if op_type in _WINDOWED:
        result = _explicit_window(op_type, result, input_shapes, output_shapes)
    defaults = _defaults(op_type, "" if domain == "ai.onnx" else domain, since)
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
    return max(oldest, min((_newest_equivalent(*layer) for layer in own), default=COMMON_OPSET))
