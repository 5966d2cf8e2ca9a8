"""Samples: layer sequences that occur in no model, made by varying real sequences.

Samples serve as decoys, which hide the models behind a benchmark suite, and as training data where a corpus has few
sequences of a kind. A sample is a real sequence in which one size (a number of channels, a resolution) is replaced
everywhere, or in which the window or stride of a layer, or the batch, is changed. The resulting shapes are inferred
layer by layer, so that a sample runs like any sequence.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from onnx import TensorProto, helper

from costmodel.ir.constants import data_type_of
from costmodel.ir.fused import expand, fused_sequence
from costmodel.ir.graph import Attributes, TensorType
from costmodel.ir.nchwc import BLOCKED_DOMAIN, is_blocked, reorder_axes
from costmodel.ir.operators import COMMON_OPSET, opset_for
from costmodel.ir.sequence import LayerSequence, SequenceLayer, Value
from costmodel.onnx_io.shape_inference import infer_node
from costmodel.synthetic.network import make_node, value_name

__all__ = ["sample_around"]

# Smallest size that is replaced: smaller ones are windows, strides and colour channels, the same in most models.
_MIN_SIZE = 8
_FACTORS = (0.5, 0.75, 1.25, 1.5, 2.0)
_WINDOWS = (1, 2, 3, 5, 7)
_STRIDES = (1, 2)
_BATCHES = (2, 4, 8)
_MAX_ELEMENTS = 1 << 26  # elements of a tensor after the batch was increased
_TRIES_EACH = 20  # attempts per wanted sample
_BLOCK = 16  # the largest number of channels per block on any host


def sample_around(
    sequences: Sequence[LayerSequence],
    count: int,
    *,
    seed: int = 0,
    weights: Sequence[float] | None = None,
    runs: Callable[[LayerSequence], bool] = lambda _: True,
) -> dict[str, tuple[LayerSequence, LayerSequence]]:
    """Returns `count` distinct samples of the given sequences, or fewer if the sequences cannot be varied enough.

    Args:
        sequences: Real sequences to vary; no sample equals one of them.
        count: Number of samples.
        seed: Seed of the random choices; the same seed and sequences give the same samples.
        weights: Relative probability of each sequence to be the origin of a sample; by default uniform.
        runs: Returns whether a sequence can be executed; samples that cannot are dropped.

    Returns:
        Pairs (sample, sequence that it was made from), by the signature of the sample.
    """
    rng = random.Random(seed)  # noqa: S311 - a choice of shapes, no secret
    known = {sequence.signature for sequence in sequences}
    samples: dict[str, tuple[LayerSequence, LayerSequence]] = {}
    if not sequences:
        return samples
    for origin in rng.choices(sequences, weights, k=count * _TRIES_EACH):
        if len(samples) == count:
            break
        (vary,) = rng.choices(list(_VARIATIONS), list(_VARIATIONS.values()))
        candidate = _varied(origin, vary, rng)
        if candidate is not None and candidate.signature not in known and runs(candidate):
            known.add(candidate.signature)
            samples[candidate.signature] = (candidate, origin)
    return samples


def _varied(origin: LayerSequence, vary: "_Variation", rng: random.Random) -> LayerSequence | None:
    """Returns a variation of a sequence; that of a fused layer varies its operators, and is a fused layer again."""
    plain = expand(origin)
    if plain is origin:
        return vary(origin, rng)
    if len(origin.layers) > 1:
        return None
    candidate = vary(plain, rng)
    return None if candidate is None else fused_sequence(candidate)


def _resized(sequence: LayerSequence, rng: random.Random) -> LayerSequence | None:
    """Returns the sequence with one random size replaced everywhere, or None if that is not possible."""
    fed = [value for value in sequence.values if value.role != "internal" and value.data is None]
    sizes = sorted({d for value in fed for d in value.type.shape if d >= _MIN_SIZE})
    if not sizes:
        return None
    old = rng.choice(sizes)
    # A multiple of the block size stays one: channels that no host would lay out in blocks are not plausible.
    unit = next(u for u in (_BLOCK, 8, 4, 1) if old % u == 0)
    new = max(unit, round(old * rng.choice(_FACTORS) / unit) * unit)
    if new == old:
        return None
    return _with_size(sequence, old, new)


def _with_size(sequence: LayerSequence, old: int, new: int) -> LayerSequence | None:
    """Returns the sequence with size `old` replaced by `new`, or None if the layers do not fit together then."""
    # Filters of grouped convolutions have the channels of one group; depthwise ones have one group per channel.
    groups = {
        layer.inputs[3 if layer.op_type == "QLinearConv" else 1]: layer.attributes["group"]["i"]
        for layer in sequence.layers
        if layer.attributes.get("group", {"i": old}) != {"i": old}
    }
    whole = [index for index, group in groups.items() if sequence.values[index].type.shape[1] * group == old]
    if any(new % (groups[index] * (_BLOCK if is_blocked(sequence) else 1)) for index in whole):
        return None

    def resized(index: int, value: Value) -> Value:
        if value.role == "internal":
            return value
        if value.data is not None:  # such as a shape or a bound: its sizes change, its length does not
            return replace(value, data=_replaced(value.data, old, new))
        shape = _replaced(value.type.shape, old, new)
        if index in groups:
            shape = (shape[0], new // groups[index] if index in whole else value.type.shape[1], *shape[2:])
        return replace(value, type=replace(value.type, shape=shape))

    values = [resized(index, value) for index, value in enumerate(sequence.values)]
    layers = [replace(layer, attributes=_with_size_in(layer.attributes, old, new)) for layer in sequence.layers]
    return _rebuilt(sequence, layers, values)


def _rewindowed(sequence: LayerSequence, rng: random.Random) -> LayerSequence | None:
    """Returns the sequence with another window (kernel shape) in one random layer, or None if that is not possible.

    If the layer has padding, the padding is adapted to the window.
    """
    windowed = _windowed(sequence, rng)
    if windowed is None:
        return None
    position, layer = windowed
    old = layer.attributes["kernel_shape"]["ints"]
    window = [rng.choice(_WINDOWS)] * len(old)
    dilations = layer.attributes.get("dilations", {"ints": [1] * len(old)})["ints"]
    pads = layer.attributes.get("pads", {"ints": [0] * 2 * len(old)})["ints"]
    if any(pads):
        before = [(k - 1) * d // 2 for k, d in zip(window, dilations, strict=True)]
        after = [(k - 1) * d - b for k, d, b in zip(window, dilations, before, strict=True)]
        pads = before + after
    values = list(sequence.values)
    for index in layer.inputs[1:]:
        if index >= 0 and list(values[index].type.shape[2:]) == list(old):  # these are the filters
            kind = values[index].type
            values[index] = replace(values[index], type=replace(kind, shape=(*kind.shape[:2], *window)))
    return _with_attributes(sequence, position, values, kernel_shape=window, pads=pads)


def _restrided(sequence: LayerSequence, rng: random.Random) -> LayerSequence | None:
    """Returns the sequence with a random stride in one random layer with a window, or None if that is not possible."""
    windowed = _windowed(sequence, rng)
    if windowed is None:
        return None
    position, layer = windowed
    strides = [rng.choice(_STRIDES)] * len(layer.attributes["kernel_shape"]["ints"])
    return _with_attributes(sequence, position, list(sequence.values), strides=strides)


def _rebatched(sequence: LayerSequence, rng: random.Random) -> LayerSequence | None:
    """Returns the sequence with a larger batch in every input whose first dimension is 1.

    Returns None if there is no such input, if a tensor could exceed `_MAX_ELEMENTS`, or if the layers do not fit.
    """
    batch = rng.choice(_BATCHES)

    def batched(value: Value) -> Value:
        kind = value.type
        if value.role != "input" or len(kind.shape) < 2 or kind.shape[0] != 1:
            return value
        return replace(value, type=replace(kind, shape=(batch, *kind.shape[1:])))

    values = [batched(value) for value in sequence.values]
    if values == list(sequence.values) or any(batch * v.type.elements > _MAX_ELEMENTS for v in sequence.values):
        return None
    return _rebuilt(sequence, sequence.layers, values)


# Functions that vary a sequence, with the probability of each.
_Variation = Callable[[LayerSequence, random.Random], LayerSequence | None]
_VARIATIONS: dict[_Variation, float] = {
    _resized: 0.7, _rewindowed: 0.12, _restrided: 0.06, _rebatched: 0.12,
}  # fmt: skip


def _windowed(sequence: LayerSequence, rng: random.Random) -> tuple[int, SequenceLayer] | None:
    """Returns a random layer that has a window (kernel shape), as (position, layer); None if no layer has one."""
    windowed = [(i, layer) for i, layer in enumerate(sequence.layers) if "kernel_shape" in layer.attributes]
    return rng.choice(windowed) if windowed else None


def _with_attributes(
    sequence: LayerSequence, position: int, values: list[Value], **changed: Sequence[int]
) -> LayerSequence | None:
    layers = list(sequence.layers)
    attributes = {**layers[position].attributes, **{name: {"ints": list(ints)} for name, ints in changed.items()}}
    layers[position] = replace(layers[position], attributes=dict(sorted(attributes.items())))
    return _rebuilt(sequence, layers, values)


def _rebuilt(sequence: LayerSequence, layers: Sequence[SequenceLayer], values: list[Value]) -> LayerSequence | None:
    """Returns the sequence with new layers and values; None if these do not fit together.

    The types of values that layers produce are inferred anew.
    """
    opset = opset_for([(layer.op_type, layer.domain, layer.since) for layer in layers])
    for layer in layers:
        made = _outputs(layer, values, opset)
        if made is None or any(size <= 0 for kind in made.values() for size in kind.shape):
            return None
        for index, kind in made.items():
            values[index] = replace(values[index], type=kind)
    return LayerSequence(tuple(layers), tuple(values), sequence.outputs)


def _replaced(sizes: Sequence[Any], old: int, new: int) -> tuple[Any, ...]:
    return tuple(new if size == old and isinstance(size, int) else size for size in sizes)


def _with_size_in(attributes: Attributes, old: int, new: int) -> Attributes:
    named = ("group", "channels")
    return {n: {"i": new} if n in named and v == {"i": old} else v for n, v in attributes.items()}


def _outputs(layer: SequenceLayer, values: Sequence[Value], opset: int) -> dict[int, TensorType] | None:
    """Returns the inferred type of each output of a layer, by index of the value; None if one cannot be inferred."""
    outputs = [index for index in layer.outputs if index >= 0]
    if layer.domain == BLOCKED_DOMAIN and layer.op_type.startswith("Reorder"):
        source = values[layer.inputs[0]].type
        channels_last = layer.attributes.get("channels_last") == {"i": 1}
        axes = reorder_axes(layer.op_type, len(source.shape), channels_last=channels_last)
        shape = tuple(source.shape[axis] for axis in axes)
        return {outputs[0]: TensorType(source.dtype, shape, values[outputs[0]].type.blocked)}
    if layer.num_captured:
        return None
    types = {value_name(i): values[i].type for i in layer.inputs if i >= 0}
    tensors: dict[str, TensorProto] = {}
    for index in layer.inputs:
        if index >= 0 and values[index].data is not None:
            value = values[index]
            name = value_name(index)
            tensors[name] = helper.make_tensor(
                name, data_type_of(value.type.dtype), value.type.shape, list(value.data or ())
            )
    version = COMMON_OPSET if layer.domain else opset
    if layer.op_type in ("MaxPool", "AveragePool", "GlobalAveragePool") and layer.domain:
        version = 17  # the last version that accepts the attributes of the blocked pools
    inferred = infer_node(make_node("", layer), types, tensors, version)
    if any(value_name(index) not in inferred for index in outputs):
        return None
    return {index: replace(inferred[value_name(index)], blocked=values[index].type.blocked) for index in outputs}
