"""What a call costs beside the layers in it, so that it can be taken from the time of a layer that ran by itself.

There are two limits, and what it costs lies half-way. The lower one is what is saved when neighbours run in one call,
(sum of their times) - (time of all together), for each call but one: in one call their inputs wait longer before they
are read, which takes some of the saving away. The upper one comes from chains of tiny layers: a network of one and one
of many differ by layers alone, and the line through their times meets zero layers at the cost of a call; but the layers
of a chain find their own code in the caches, and the call does not.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from costmodel.graph import TensorType
from costmodel.sequence import LayerSequence, SequenceLayer, Value

__all__ = ["LONG", "SHORT", "call_overhead_us", "chain_overhead_us", "joined", "neighbourhoods", "tiny_chain"]

SHORT, LONG = 1, 9
# Different ones, so that no layer finds the code of the one before it; all are in every opset from 6 on.
_OPERATORS = ("Neg", "Abs", "Relu", "Sigmoid", "Tanh", "Exp", "Floor", "Ceil", "Sqrt")
_ELEMENTS = 16

_NEIGHBOURS = 4
_FEWEST_NEIGHBOURHOODS, _MOST_NEIGHBOURHOODS = 3, 12
# Noise in the times of slower neighbours hides what a call costs.
_QUICK_US = 250.0
# The lower limit over the upper one: the median of the groups that have neighbours, and what none falls below.
_USUAL_SHARE = 0.8
_LEAST_SHARE = 0.4
# Larger tensors of one layer would be driven out of the level 2 cache by those of its neighbours.
_SMALL_BYTES = 256 << 10


def tiny_chain(layers: int) -> LayerSequence:
    """A sequence of elementwise layers, each on 16 numbers."""
    kind = TensorType("float32", (_ELEMENTS,))
    return LayerSequence(
        layers=tuple(SequenceLayer(_OPERATORS[i % len(_OPERATORS)], "", 6, {}, (i,), (i + 1,)) for i in range(layers)),
        values=(Value(kind, "input"), *(Value(kind, "internal") for _ in range(layers))),
        outputs=(layers,),
    )


def neighbourhoods(sequences: Sequence[LayerSequence], latencies_us: Sequence[float]) -> list[range]:
    """Positions of sequences that are to be run in one call, too: quick and small ones, from all over a group.

    Args:
        sequences: Of a group, in their order.
        latencies_us: Of each, roughly.
    """
    found = [range(start, start + _NEIGHBOURS) for start in range(0, len(sequences) - _NEIGHBOURS + 1, _NEIGHBOURS)]
    fit = [
        positions
        for positions in found
        if sum(latencies_us[p] for p in positions) <= _QUICK_US and all(_is_small(sequences[p]) for p in positions)
    ]
    return fit[:: max(1, -(-len(fit) // _MOST_NEIGHBOURHOODS))]


def _is_small(sequence: LayerSequence) -> bool:
    return all(value.type.nbytes <= _SMALL_BYTES for value in sequence.values if value.role != "constant")


def joined(sequences: Sequence[LayerSequence]) -> LayerSequence:
    """Sequences side by side in one network, none reading from another. It is no canonical sequence."""
    layers: list[SequenceLayer] = []
    values: list[Value] = []
    outputs: list[int] = []
    for sequence in sequences:
        first = len(values)
        layers.extend(
            replace(
                layer,
                inputs=tuple(i + first if i >= 0 else i for i in layer.inputs),
                outputs=tuple(i + first if i >= 0 else i for i in layer.outputs),
            )
            for layer in sequence.layers
        )
        values.extend(sequence.values)
        outputs.extend(index + first for index in sequence.outputs)
    return LayerSequence(tuple(layers), tuple(values), tuple(outputs))


def chain_overhead_us(short_us: Sequence[float], long_us: Sequence[float]) -> float:
    """The part of a call's time that does not depend on its layers, by chains of tiny layers.

    Args:
        short_us: Times of `tiny_chain(SHORT)`, at least one.
        long_us: Times of `tiny_chain(LONG)`, at least one.
    """
    short, long = float(np.median(short_us)), float(np.median(long_us))
    return max(0.0, short - SHORT * (long - short) / (LONG - SHORT))


def call_overhead_us(limit_us: float, together: Sequence[tuple[Sequence[float], float]]) -> float:
    """What a call costs beside the layers in it.

    Args:
        limit_us: As `chain_overhead_us` gives it.
        together: For each neighbourhood the times of its sequences in calls of their own, and that of one call.
    """
    saved = [(sum(alone) - one) / (len(alone) - 1) for alone, one in together]
    usual = len(saved) < _FEWEST_NEIGHBOURHOODS
    lower_us = _USUAL_SHARE * limit_us if usual else max(_LEAST_SHARE * limit_us, float(np.median(saved)))
    return (min(limit_us, lower_us) + limit_us) / 2
