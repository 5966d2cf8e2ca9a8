"""Converts canonical sequences to the blocked (NCHWc) layout of a host, or to plain ONNX.

ONNX Runtime keeps image tensors in blocks of 8 channels on AVX2 and 16 on AVX-512. The canonical form is independent of
the block size: shapes are logical and tensors are marked blocked. `materialise` pads a sequence for the block size of
the host that will run it; `portable` converts it to plain ONNX, which runs on any host.
"""

from collections.abc import Iterator
from dataclasses import replace

from costmodel.ir.attributes import integer
from costmodel.ir.graph import TensorType
from costmodel.ir.sequence import LayerSequence, SequenceLayer, Value

__all__ = [
    "BLOCKED_DOMAIN",
    "NotMaterialisableError",
    "is_blocked",
    "materialise",
    "padded",
    "portable",
    "reorder_axes",
]

BLOCKED_DOMAIN = "com.microsoft.nchwc"
_CHANNELS = 1
_REORDERED = 4  # ONNX Runtime reorders inputs with a multiple of so many channels only

# Oldest versions of the plain operators that support every attribute of the blocked operators.
_PLAIN_VERSIONS = {"MaxPool": 12, "AveragePool": 11, "Resize": 13}


class NotMaterialisableError(ValueError):
    """A sequence cannot occur on a host with the given block size."""


def padded(channels: int, block: int) -> int:
    """Returns the number of channels `channels`, rounded up to whole blocks of `block` channels."""
    return -(-channels // block) * block


def reorder_axes(op_type: str, rank: int, *, channels_last: bool) -> list[int]:
    """Returns, for each axis of the output of a layout reorder, the axis of the input that it comes from.

    The axes are those of the logical shapes.

    Args:
        op_type: "ReorderInput" (plain to blocked) or "ReorderOutput" (blocked to plain).
        rank: Number of dimensions of the tensor.
        channels_last: Whether the plain tensor has the channels last; blocked tensors have them second.
    """
    if not channels_last:
        return list(range(rank))
    return [0, rank - 1, *range(1, rank - 1)] if op_type == "ReorderInput" else [0, *range(2, rank), 1]


def is_blocked(sequence: LayerSequence) -> bool:
    """Returns whether a sequence has a blocked layer or tensor, and so depends on the block size of the host."""
    return any(layer.domain == BLOCKED_DOMAIN for layer in sequence.layers) or any(
        value.type.blocked for value in sequence.values
    )


def materialise(sequence: LayerSequence, block: int) -> LayerSequence:
    """Returns the sequence with channels padded to whole blocks, for a host whose blocks hold `block` channels.

    A convolution reads an input that is not blocked if the input has fewer channels than a block. One that was found on
    a host with larger blocks becomes what the runtime makes of it on the host with smaller ones: the input is reordered
    first, or, if it has a number of channels that cannot be reordered, the convolution is plain and its output is
    reordered.

    Raises:
        NotMaterialisableError: The sequence is blocked and the host has no blocked layout (`block` is 1), or the
            runtime would never form the sequence on a host with such blocks.
    """
    if not is_blocked(sequence):
        return sequence
    if block <= 1:
        raise NotMaterialisableError("this host has no blocked layout")
    values = [_pad_value(value, block) for value in sequence.values]
    layers: list[SequenceLayer] = []
    for layer in sequence.layers:
        if layer.domain == BLOCKED_DOMAIN and layer.op_type == "Conv":
            data = values[layer.inputs[0]].type
            if not data.blocked and data.shape[_CHANNELS] >= block:
                if data.shape[_CHANNELS] % _REORDERED:
                    layers.extend(_plain_convolution(sequence, layer, values, block))
                    continue
                values.append(_pad_value(Value(replace(data, blocked=True), "internal"), block))
                layers.append(_reorder(layer.inputs[0], len(values) - 1))
                layer = replace(layer, inputs=(*layers[-1].outputs, *layer.inputs[1:]))
            layer = _pad_convolution(sequence, layer, values, block)
        elif layer.op_type == "Concat":
            joined = sum(values[i].type.shape[_CHANNELS] for i in layer.inputs)
            if layer.attributes["axis"]["i"] == _CHANNELS and joined != values[layer.outputs[0]].type.shape[_CHANNELS]:
                raise NotMaterialisableError(f"its channels are not whole blocks of {block}")
        layers.append(layer)
    return LayerSequence(tuple(layers), tuple(values), sequence.outputs)


def _pad_value(value: Value, block: int) -> Value:
    if not value.type.blocked:
        return value
    shape = list(value.type.shape)
    shape[_CHANNELS] = padded(shape[_CHANNELS], block)
    return replace(value, type=TensorType(value.type.dtype, tuple(shape), blocked=True))


def _reorder(source: int, target: int) -> SequenceLayer:
    """Returns a layer that makes a blocked tensor of a plain one, both given by the index of their value."""
    return SequenceLayer("ReorderInput", BLOCKED_DOMAIN, 1, {}, (source,), (target,))


def _plain_convolution(
    sequence: LayerSequence, layer: SequenceLayer, values: list[Value], block: int
) -> Iterator[SequenceLayer]:
    """Yields a plain convolution and the reorder of its output; appends the plain output to `values`.

    Raises:
        NotMaterialisableError: The runtime cannot reorder the output, or the convolution adds a tensor that is blocked.
    """
    output = layer.outputs[0]
    kind = sequence.values[output].type
    if kind.shape[_CHANNELS] % _REORDERED or any(values[i].type.blocked for i in layer.inputs if i >= 0):
        channels = values[layer.inputs[0]].type.shape[_CHANNELS]
        raise NotMaterialisableError(
            f"with blocks of {block} channels, the runtime does not block a convolution of {channels} channels"
        )
    values.append(Value(replace(kind, blocked=False), "internal"))
    yield _plain_layer(replace(layer, outputs=(len(values) - 1,)), values, _newest_version(sequence))
    yield _reorder(len(values) - 1, output)


def _pad_convolution(sequence: LayerSequence, layer: SequenceLayer, values: list[Value], block: int) -> SequenceLayer:
    """Pads filter and bias of a convolution in `values`, in place; returns the layer with a matching group count."""
    data, weight = layer.inputs[:2]
    logical = sequence.values[weight].type.shape
    group = integer(layer.attributes, "group", 1)
    outputs = padded(logical[0], block)
    depthwise = group > 1 and logical[1] == 1
    if depthwise:
        shape = (outputs, 1, *logical[2:])
        layer = replace(layer, attributes={**layer.attributes, "group": {"i": outputs}})
    else:
        channels = values[data].type.shape[_CHANNELS] // group if values[data].type.blocked else logical[1]
        shape = (outputs, channels, *logical[2:])
    dtype = sequence.values[weight].type.dtype
    values[weight] = replace(values[weight], type=TensorType(dtype, shape))
    if len(layer.inputs) > 2 and layer.inputs[2] >= 0:
        values[layer.inputs[2]] = replace(values[layer.inputs[2]], type=TensorType(dtype, (outputs,)))
    return layer


def portable(sequence: LayerSequence) -> LayerSequence:
    """Returns an equivalent sequence in plain layout, which runs on any host.

    Blocked layers become plain layers; layout reorders become Identity, or Transpose if they move the channels.
    """
    if not is_blocked(sequence):
        return sequence
    values = [
        replace(value, type=replace(value.type, blocked=False)) if value.type.blocked else value
        for value in sequence.values
    ]
    newest = _newest_version(sequence)
    layers = [_plain_layer(layer, values, newest) for layer in sequence.layers]
    return LayerSequence(tuple(layers), tuple(values), sequence.outputs)


def _newest_version(sequence: LayerSequence) -> int:
    """Returns the newest version among plain layers, with which a rewritten one must agree: a network has one opset."""
    return max((layer.since for layer in sequence.layers if layer.domain == ""), default=1)


def _plain_layer(layer: SequenceLayer, values: list[Value], newest: int) -> SequenceLayer:
    """Returns the plain ONNX layer equivalent to `layer`; appends to `values` the constants that only it needs."""
    if layer.domain != BLOCKED_DOMAIN:
        return layer
    if layer.op_type in ("ReorderInput", "ReorderOutput"):
        channels_last = integer(layer.attributes, "channels_last", 0) == 1
        axes = reorder_axes(layer.op_type, len(values[layer.inputs[0]].type.shape), channels_last=channels_last)
        if axes == sorted(axes):
            return replace(layer, op_type="Identity", domain="", since=1, attributes={})
        return replace(layer, op_type="Transpose", domain="", since=1, attributes={"perm": {"ints": axes}})
    if layer.op_type == "Conv":
        fused = "activation" in layer.attributes or len(layer.inputs) > 3
        op_type, domain = ("FusedConv", "com.microsoft") if fused else ("Conv", "")
        return replace(layer, op_type=op_type, domain=domain)
    if layer.op_type == "Upsample":
        return _resize(layer, values, newest)
    return replace(layer, domain="", since=max(newest, _PLAIN_VERSIONS.get(layer.op_type, 1)))


def _resize(layer: SequenceLayer, values: list[Value], newest: int) -> SequenceLayer:
    """Returns the plain Resize equivalent to a blocked Upsample; appends to `values` the scales that it reads."""
    scales = [float(scale) for scale in layer.attributes["scales"]["ints"]]
    values.append(Value(TensorType("float32", (len(scales),)), "constant", tuple(scales)))
    return replace(
        layer,
        op_type="Resize",
        domain="",
        since=max(newest, _PLAIN_VERSIONS["Resize"]),
        inputs=(layer.inputs[0], -1, len(values) - 1),
        attributes={
            "coordinate_transformation_mode": {"s": "asymmetric"},
            "nearest_mode": {"s": "floor"},
            **{name: value for name, value in layer.attributes.items() if name != "scales"},
        },
    )
