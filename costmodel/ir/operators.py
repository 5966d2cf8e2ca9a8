"""Operator versions and canonical attributes, by which equal layers are recognised.

ONNX gives an operator a new version for every change, and a runtime may have a kernel for each: average pooling takes
eight times as long in onnxruntime from opset 19 on. Layers of different versions are therefore different layers
(docs/adr/0005).
"""

from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from typing import Any

import onnx
from onnx import AttributeProto
from onnx.defs import OpSchema

from costmodel.ir.attributes import encode_attribute
from costmodel.ir.graph import Attributes

__all__ = ["COMMON_OPSET", "attribute_of", "canonical_attributes", "opset_for", "schemas_of", "since_version"]

# Opset of networks without any of ONNX's own operators: the newest that every supported runtime release runs.
COMMON_OPSET = 21
_OLDEST_OPSET = 7  # the oldest opset that onnxruntime runs

# Caches are bounded because untrusted models can name any number of operators that do not exist.
_CACHE_SIZE = 4096

# Operators with subgraphs, whose nodes are defined only together with the opset of their model.
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
    """Returns the schemas of all versions of each operator that ONNX defines, oldest first, by (name, domain)."""
    versions: dict[tuple[str, str], list[OpSchema]] = {}
    for schema in sorted(onnx.defs.get_all_schemas_with_history(), key=lambda schema: schema.since_version):
        versions.setdefault((schema.name, schema.domain), []).append(schema)
    return versions


def schemas_of(op_type: str, domain: str) -> Sequence[OpSchema]:
    """Returns the schemas of all versions of an operator, oldest first; none if ONNX does not define the operator."""
    return _all_versions().get((op_type, domain), ())


@lru_cache(_CACHE_SIZE)
def since_version(op_type: str, domain: str, opset: int) -> int:
    """Returns the version of an operator that applies in a model of the given opset.

    Control flow operators, and unknown operators in ONNX's own domain, have the opset itself as version.

    Args:
        op_type: Operator, for example "Conv".
        domain: Operator domain. Domains other than ONNX's own have the single version 1.
        opset: Version of ONNX's own operators in the model.
    """
    if domain not in ("", "ai.onnx"):
        return 1
    versions = [s.since_version for s in schemas_of(op_type, "") if s.since_version <= opset]
    return opset if op_type in _CONTROL_FLOW or not versions else versions[-1]


@lru_cache(_CACHE_SIZE)
def _defaults(op_type: str, domain: str, opset: int) -> Mapping[str, Mapping[str, Any]]:
    """Returns the encoded default value of each attribute of an operator that has one, by name of the attribute."""
    versions = [s for s in schemas_of(op_type, domain) if s.since_version <= opset]
    if not versions:
        return {}
    return {
        name: encode_attribute(a.default_value)
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
    """Returns attributes in canonical form: defaults omitted, kernel shapes, strides and automatic padding written out.

    Args:
        op_type: Operator, for example "Conv".
        domain: Operator domain; "" for ONNX's own.
        opset: Version of ONNX's own operators in the model.
        attributes: Attributes of the node, encoded by `costmodel.ir.attributes.encode_attribute`.
        input_shapes: Logical shape of each input; () for an absent input.
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
    """Returns `attributes` with kernel shape, strides, dilations and pads of a convolution or pooling written out."""
    weight = 3 if op_type == "QLinearConv" else 1
    kernel = attributes.get("kernel_shape", {}).get("ints")
    if kernel is None:
        kernel = list(input_shapes[weight][2:])
    rank = len(kernel)
    strides = attributes.get("strides", {}).get("ints") or [1] * rank
    dilations = attributes.get("dilations", {}).get("ints") or [1] * rank
    pads = attributes.get("pads", {}).get("ints") or [0] * (2 * rank)
    auto_pad = attributes.pop("auto_pad", {"s": "NOTSET"})["s"]
    if auto_pad.startswith("SAME"):
        totals = []
        for axis in range(rank):
            large, small = input_shapes[0][2 + axis], output_shapes[0][2 + axis]
            if op_type == "ConvTranspose":
                large, small = small, large
            totals.append(max(0, (small - 1) * strides[axis] + dilations[axis] * (kernel[axis] - 1) + 1 - large))
        lower = [(total + 1) // 2 if auto_pad == "SAME_LOWER" else total // 2 for total in totals]
        pads = lower + [total - begin for total, begin in zip(totals, lower, strict=True)]
    window = {"kernel_shape": kernel, "strides": strides, "dilations": dilations, "pads": pads}
    if op_type in ("MaxPool", "AveragePool", "LpPool") and dilations == [1] * rank:
        del window["dilations"]  # older versions of the pools lack this attribute
    return {**attributes, **{name: {"ints": list(values)} for name, values in window.items()}}


def attribute_of(op_type: str, domain: str, since: int, attributes: Attributes, name: str) -> Mapping[str, Any] | None:
    """Returns the encoded value of the attribute `name`, or its default if it is omitted; None if it has no default."""
    return attributes.get(name) or _defaults(op_type, domain, since).get(name)


def opset_for(layers: Sequence[tuple[str, str, int]]) -> int:
    """Returns an opset in which all layers, which are from one model, have their operator versions.

    Args:
        layers: Operator, domain and operator version of each layer.
    """
    own = [since for _, domain, since in layers if domain in ("", "ai.onnx")]
    return max(_OLDEST_OPSET, *own) if own else COMMON_OPSET
