"""Sequences of no model, sampled around real ones.

They serve twice: as decoys, mixed into a suite so that it does not give its models away, and as training data where
the models of a corpus have few sequences of a kind. A sample is a real sequence in which one size that occurs in it
(a number of channels, a resolution) is another one everywhere, or the window or stride of a layer, or the batch. What
follows from that is inferred anew, layer by layer, so that a sample runs like any sequence.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from onnx import TensorProto, helper

from costmodel.blocked import BLOCKED_DOMAIN, is_blocked, reorder_axes
from costmodel.constants import data_type_of
from costmodel.graph import Attributes, TensorType
from costmodel.inference import infer_node
from costmodel.network import make_node, value_name
from costmodel.operators import COMMON_OPSET, opset_for
from costmodel.sequence import LayerSequence, SequenceLayer, Value

__all__ = ["sample_around"]

# Smaller numbers are windows, strides and colour channels, which are the same in most models.
_LEAST_SIZE = 8
_FACTORS = (0.5, 0.75, 1.25, 1.5, 2.0)
_WINDOWS = (1, 2, 3, 5, 7)
_STRIDES = (1, 2)
_BATCHES = (2, 4, 8)
_MOST_ELEMENTS = 1 << 26  # in a tensor that a larger batch makes
_TRIES_EACH = 20
_BLOCK = 16  # the most channels in a block of any host


def sample_around(
    sequences: Sequence[LayerSequence],
    count: int,
    *,
    seed: int = 0,
    weights: Sequence[float] | None = None,
    runs: Callable[[LayerSequence], bool] = lambda _: True,
) -> dict[str, tuple[LayerSequence, LayerSequence]]:
    """Up to `count` distinct samples, fewer if the sequences do not vary enough.

    Args:
        sequences: Real ones, none of which is returned.
        count: How many samples.
        seed: The same seed and sequences give the same samples.
        weights: How likely each sequence is the origin of a sample; by default all alike.
        runs: Says whether a candidate really runs.

    Returns:
        By signature: the sample and the sequence that it was made from.
    """
    rng = random.Random(seed)  # noqa: S311 - a choice of shapes, no secret
    known = {sequence.signature for sequence in sequences}
    samples: dict[str, tuple[LayerSequence, LayerSequence]] = {}
    if not sequences:
        return samples
    for origin in rng.choices(sequences, weights, k=count * _TRIES_EACH):
        if len(samples) == count:
            break
        (move,) = rng.choices(list(_MOVES), list(_MOVES.values()))
        candidate = move(origin, rng)
        if candidate is not None and candidate.signature not in known and runs(candidate):
            known.add(candidate.signature)
            samples[candidate.signature] = (candidate, origin)
    return samples


def _resized(sequence: LayerSequence, rng: random.Random) -> LayerSequence | None:
    fed = [value for value in sequence.values if value.role != "internal" and value.data is None]
    sizes = sorted({d for value in fed for d in value.type.shape if d >= _LEAST_SIZE})
    if not sizes:
        return None
    old = rng.choice(sizes)
    # Whole blocks stay whole blocks: what no host would lay out in blocks is not plausible.
    unit = next(u for u in (_BLOCK, 8, 4, 1) if old % u == 0)
    new = max(unit, round(old * rng.choice(_FACTORS) / unit) * unit)
    if new == old:
        return None
    return _with_size(sequence, old, new)


def _with_size(sequence: LayerSequence, old: int, new: int) -> LayerSequence | None:
    """The sequence with `new` for `old`; None where the layers do not fit together then."""
    # Filters of grouped convolutions see the channels of one group; depthwise ones have a group for each channel.
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
        if value.data is not None:  # a shape or a bound, say: it keeps its length, whatever sizes it speaks of
            return replace(value, data=_other(value.data, old, new))
        shape = _other(value.type.shape, old, new)
        if index in groups:
            shape = (shape[0], new // groups[index] if index in whole else value.type.shape[1], *shape[2:])
        return replace(value, type=replace(value.type, shape=shape))

    values = [resized(index, value) for index, value in enumerate(sequence.values)]
    layers = [replace(layer, attributes=_with_size_in(layer.attributes, old, new)) for layer in sequence.layers]
    return _rebuilt(sequence, layers, values)


def _rewindowed(sequence: LayerSequence, rng: random.Random) -> LayerSequence | None:
    """One layer with another window; padding that kept the size still does."""
    found = _windowed(sequence, rng)
    if found is None:
        return None
    position, layer = found
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
        if index >= 0 and list(values[index].type.shape[2:]) == list(old):  # the filters
            kind = values[index].type
            values[index] = replace(values[index], type=replace(kind, shape=(*kind.shape[:2], *window)))
    return _with_attributes(sequence, position, values, kernel_shape=window, pads=pads)


def _restrided(sequence: LayerSequence, rng: random.Random) -> LayerSequence | None:
    """One layer with another stride."""
    found = _windowed(sequence, rng)
    if found is None:
        return None
    position, layer = found
    strides = [rng.choice(_STRIDES)] * len(layer.attributes["kernel_shape"]["ints"])
    return _with_attributes(sequence, position, list(sequence.values), strides=strides)


def _rebatched(sequence: LayerSequence, rng: random.Random) -> LayerSequence | None:
    """Several of everything that arrives one at a time."""
    batch = rng.choice(_BATCHES)

    def several(value: Value) -> Value:
        kind = value.type
        if value.role != "input" or len(kind.shape) < 2 or kind.shape[0] != 1:
            return value
        return replace(value, type=replace(kind, shape=(batch, *kind.shape[1:])))

    values = [several(value) for value in sequence.values]
    if values == list(sequence.values) or any(batch * v.type.elements > _MOST_ELEMENTS for v in sequence.values):
        return None
    return _rebuilt(sequence, sequence.layers, values)


# How a sample may differ from its origin, and how often it does so.
_MOVES: dict[Callable[[LayerSequence, random.Random], LayerSequence | None], float] = {
    _resized: 0.7, _rewindowed: 0.12, _restrided: 0.06, _rebatched: 0.12,
}  # fmt: skip


def _windowed(sequence: LayerSequence, rng: random.Random) -> tuple[int, SequenceLayer] | None:
    """A layer that slides a window, and where it is."""
    found = [(i, layer) for i, layer in enumerate(sequence.layers) if "kernel_shape" in layer.attributes]
    return rng.choice(found) if found else None


def _with_attributes(
    sequence: LayerSequence, position: int, values: list[Value], **changed: Sequence[int]
) -> LayerSequence | None:
    layers = list(sequence.layers)
    attributes = {**layers[position].attributes, **{name: {"ints": list(ints)} for name, ints in changed.items()}}
    layers[position] = replace(layers[position], attributes=dict(sorted(attributes.items())))
    return _rebuilt(sequence, layers, values)


def _rebuilt(sequence: LayerSequence, layers: Sequence[SequenceLayer], values: list[Value]) -> LayerSequence | None:
    """The sequence with other layers and values, what lies between them inferred anew; None if they do not fit."""
    opset = opset_for([(layer.op_type, layer.domain, layer.since) for layer in layers])
    for layer in layers:
        made = _outputs(layer, values, opset)
        if made is None or any(size <= 0 for kind in made.values() for size in kind.shape):
            return None
        for index, kind in made.items():
            values[index] = replace(values[index], type=kind)
    return LayerSequence(tuple(layers), tuple(values), sequence.outputs)


def _other(sizes: Sequence[Any], old: int, new: int) -> tuple[Any, ...]:
    return tuple(new if size == old and isinstance(size, int) else size for size in sizes)


def _with_size_in(attributes: Attributes, old: int, new: int) -> Attributes:
    named = ("group", "channels")
    return {n: {"i": new} if n in named and v == {"i": old} else v for n, v in attributes.items()}


def _outputs(layer: SequenceLayer, values: Sequence[Value], opset: int) -> dict[int, TensorType] | None:
    outputs = [index for index in layer.outputs if index >= 0]
    if layer.domain == BLOCKED_DOMAIN and layer.op_type.startswith("Reorder"):
        source = values[layer.inputs[0]].type
        channels_last = layer.attributes.get("channels_last") == {"i": 1}
        axes = reorder_axes(layer.op_type, len(source.shape), channels_last=channels_last)
        shape = tuple(source.shape[axis] for axis in axes)
        return {outputs[0]: TensorType(source.dtype, shape, values[outputs[0]].type.blocked)}
    if layer.captured:
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
        version = 17  # the last that takes the attributes of the blocked pools
    found = infer_node(make_node("", layer), types, tensors, version)
    if any(value_name(index) not in found for index in outputs):
        return None
    return {index: replace(found[value_name(index)], blocked=values[index].type.blocked) for index in outputs}
