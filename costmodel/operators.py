"""What makes two nodes the same layer: operator versions and attributes in one canonical form.

ONNX gives an operator a new version for every change, and a runtime may have a kernel for each: average pooling takes
eight times as long in onnxruntime from opset 19 on. So layers of two versions are two layers (docs/adr/0005).
"""

from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from typing import Any

import onnx
from onnx import AttributeProto
from onnx.defs import OpSchema

from costmodel.attributes import encode
from costmodel.graph import Attributes

__all__ = ["COMMON_OPSET", "attribute_of", "canonical_attributes", "opset_for", "schemas_of", "since_version"]

# For networks of no operator of ONNX's own: the newest that every supported runtime release runs.
COMMON_OPSET = 21
_OLDEST_OPSET = 7  # the oldest that onnxruntime runs

# Answers to remember; strangers can ask about any number of operators that do not exist.
_REMEMBERED = 4096

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
def _all_versions() -> Mapping[tuple[str, str], Sequence[OpSchema]]:
    """Every version of every operator that ONNX defines, oldest first, by name and domain."""
    found: dict[tuple[str, str], list[OpSchema]] = {}
    for schema in sorted(onnx.defs.get_all_schemas_with_history(), key=lambda schema: schema.since_version):
        found.setdefault((schema.name, schema.domain), []).append(schema)
    return found


def schemas_of(op_type: str, domain: str) -> Sequence[OpSchema]:
    """Every version of an operator, oldest first; empty when ONNX does not define it."""
    return _all_versions().get((op_type, domain), ())


@lru_cache(_REMEMBERED)
def since_version(op_type: str, domain: str, opset: int) -> int:
    """The version of an operator that an opset means.

    Args:
        op_type: Operator.
        domain: Its domain; other domains than ONNX's own have one version.
        opset: Of the model.
    """
    if domain not in ("", "ai.onnx"):
        return 1
    versions = [s.since_version for s in schemas_of(op_type, "") if s.since_version <= opset]
    return opset if op_type in _CONTROL_FLOW or not versions else versions[-1]


@lru_cache(_REMEMBERED)
def _defaults(op_type: str, domain: str, opset: int) -> Mapping[str, Mapping[str, Any]]:
    versions = [s for s in schemas_of(op_type, domain) if s.since_version <= opset]
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


def attribute_of(op_type: str, domain: str, since: int, attributes: Attributes, name: str) -> Mapping[str, Any] | None:
    """An attribute in canonical form, its default where it was left out; None if it has neither."""
    return attributes.get(name) or _defaults(op_type, domain, since).get(name)


def opset_for(layers: Sequence[tuple[str, str, int]]) -> int:
    """The ONNX opset for a network of (op_type, domain, since) layers that came from one model."""
    own = [since for _, domain, since in layers if domain in ("", "ai.onnx")]
    return max(_OLDEST_OPSET, *own) if own else COMMON_OPSET
