"""Sequences of no model, sampled around real ones.

They serve twice: as decoys, mixed into a suite so that it does not give its models away, and as training data where
the models of a corpus have few sequences of a kind. A sample is a real sequence in which one size that occurs in it
(a number of channels, a resolution) is another one everywhere. What follows from the sizes is inferred anew, layer
by layer, so that a sample runs like any sequence.
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
        candidate = _resized(origin, rng)
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
    layers = tuple(replace(layer, attributes=_with_size_in(layer.attributes, old, new)) for layer in sequence.layers)
    opset = opset_for([(layer.op_type, layer.domain, layer.since) for layer in layers])
    for layer in layers:
        made = _outputs(layer, values, opset)
        if made is None:
            return None
        for index, kind in made.items():
            values[index] = replace(values[index], type=kind)
    return LayerSequence(layers, tuple(values), sequence.outputs)


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
