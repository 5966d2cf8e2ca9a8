"""Fused layers: several operators that a runtime executes as one layer, and for which ONNX has no single operator.

A fused layer has the domain `FUSED_DOMAIN` and one attribute, "body": the canonical text of the sequence of the ONNX
operators that were fused. The inputs of the layer are those values of the body that are inputs or constants, in the
order of their indices, and its outputs are those of the body. Its operator is that of the layer in the body that takes
most of the time, so that a convolution with a fused activation is a convolution.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from costmodel.ir.graph import Layer, TensorType
from costmodel.ir.sequence import LayerSequence, SequenceLayer, Value, build_named_sequence, build_sequence

__all__ = ["FUSED_DOMAIN", "MOST_FUSED", "body_of", "expand", "fuse", "fused_sequence", "main_layer", "outer_values"]

FUSED_DOMAIN = "costmodel.fused"
MOST_FUSED = 256  # operators in a fused layer that a service accepts

_BODY = "body"
_MAX_CACHED_BODIES = 4096
# Operators that dominate a fused layer, the most dominant first; among others, the last one in the body does.
_DOMINANT = (
    "Conv", "ConvTranspose", "Gemm", "MatMul", "Einsum", "LSTM", "GRU", "RNN", "Attention", "QLinearConv",
    "ConvInteger", "MatMulInteger", "LayerNormalization", "RMSNormalization", "InstanceNormalization",
    "GroupNormalization", "Softmax", "LogSoftmax", "LpNormalization", "MaxPool", "AveragePool", "LpPool",
    "GlobalAveragePool", "GlobalMaxPool", "Resize", "GridSample", "ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin",
    "ReduceL2", "Gather", "GatherND", "GatherElements", "ScatterND", "ScatterElements", "TopK", "Transpose", "Concat",
    "Pad", "Split", "Slice", "Gelu", "Erf", "Tanh", "Sigmoid", "Exp", "Pow",
)  # fmt: skip
_RANK = {op_type: rank for rank, op_type in enumerate(_DOMINANT)}


def fuse(
    name: str,
    layers: Sequence[Layer],
    types: Mapping[str, TensorType],
    constants: Mapping[str, tuple[Any, ...] | None],
    read_outside: Iterable[str],
) -> Layer:
    """Returns one fused layer in the place of several layers.

    Args:
        name: Name of the fused layer.
        layers: Layers that the runtime executes as one, in topological order.
        types: Type of every value that the layers read or write, in the layout that it has there.
        constants: Data of each value that is known before the model runs, as in `LayerGraph`.
        read_outside: Names of the values that another layer, or the caller of the model, reads.
    """
    body, names = build_named_sequence(layers, types, constants, read_outside)
    main = main_layer(body)
    return Layer(
        name=name,
        op_type=main.op_type,
        domain=FUSED_DOMAIN,
        since=1,
        attributes={_BODY: {"s": body.text}},
        inputs=tuple(names[i] for i in outer_values(body)),
        outputs=tuple(names[i] for i in body.outputs),
        sources=tuple(dict.fromkeys(source for layer in layers for source in layer.sources)),
    )


def body_of(layer: SequenceLayer | Layer) -> LayerSequence | None:
    """Returns the sequence of operators in a fused layer; None if the layer is not fused.

    Raises:
        ValueError: The body is not the canonical text of a sequence, or contains fused layers itself.
    """
    if layer.domain != FUSED_DOMAIN:
        return None
    return _parsed(str(layer.attributes.get(_BODY, {}).get("s", "")))


def main_layer(body: LayerSequence) -> SequenceLayer:
    """Returns the layer of a body that takes most of the time, judged by its operator."""
    return min(reversed(body.layers), key=lambda layer: _RANK.get(layer.op_type, len(_RANK)))


def expand(sequence: LayerSequence) -> LayerSequence:
    """Returns the same work with the operators of each fused layer in its place.

    Inputs, constants and outputs keep their indices; the values inside fused layers are appended.

    Raises:
        ValueError: The body of a fused layer is invalid or does not fit the layer.
    """
    if all(layer.domain != FUSED_DOMAIN for layer in sequence.layers):
        return sequence
    values, layers = list(sequence.values), list[SequenceLayer]()
    for layer in sequence.layers:
        body = body_of(layer)
        if body is None:
            layers.append(layer)
            continue
        outer = outer_values(body)
        if len(outer) != len(layer.inputs) or len(body.outputs) != len(layer.outputs):
            raise ValueError("the body of a fused layer has other inputs or outputs than the layer")
        place = {-1: -1, **dict(zip(outer, layer.inputs, strict=True))}
        place |= {i: o for i, o in zip(body.outputs, layer.outputs, strict=True) if o >= 0}
        for index, value in enumerate(body.values):
            if index not in place:
                place[index] = len(values)
                values.append(Value(value.type, "internal"))
        layers += (
            replace(
                inner,
                inputs=tuple(place[i] for i in inner.inputs),
                outputs=tuple(place[i] for i in inner.outputs),
            )
            for inner in body.layers
        )
    return LayerSequence(tuple(layers), tuple(values), sequence.outputs)


def fused_sequence(sequence: LayerSequence) -> LayerSequence:
    """Returns the sequence of the single fused layer that consists of all layers of a sequence."""
    layers = [
        Layer(
            f"layer{position}",
            layer.op_type,
            layer.domain,
            layer.since,
            layer.attributes,
            tuple(_name(i) for i in layer.inputs),
            tuple(_name(i) for i in layer.outputs),
            layer.num_captured,
        )
        for position, layer in enumerate(sequence.layers)
    ]
    types = {_name(i): value.type for i, value in enumerate(sequence.values)}
    constants = {_name(i): value.data for i, value in enumerate(sequence.values) if value.role == "constant"}
    outputs = {_name(i) for i in sequence.outputs}
    return build_sequence([fuse("fused", layers, types, constants, outputs)], types, constants, outputs)


def _name(index: int) -> str:
    return f"v{index}" if index >= 0 else ""


@lru_cache(_MAX_CACHED_BODIES)
def _parsed(text: str) -> LayerSequence:
    body = LayerSequence.from_text(text)
    if not body.layers or any(layer.domain == FUSED_DOMAIN for layer in body.layers):
        raise ValueError("the body of a fused layer must be a sequence of operators")
    return body


def outer_values(body: LayerSequence) -> list[int]:
    """Returns the indices of the values of a body that come from outside: the inputs of the fused layer, in order."""
    return [i for i, value in enumerate(body.values) if value.role != "internal"]
