"""What a call costs beside the layers in it, so that it can be taken from the time of a layer that ran by itself.

Chains of tiny layers tell: a network of one and one of many differ by layers alone, and the line through their times
meets zero layers at the cost of a call. They take their turns among the layers of a group, in the same state of the
caches, and are opened with it (docs/adr/0005).
"""

from collections.abc import Sequence

import numpy as np

from costmodel.graph import TensorType
from costmodel.sequence import LayerSequence, SequenceLayer, Value

__all__ = ["LONG", "SHORT", "call_overhead_us", "tiny_chain"]

SHORT, LONG = 1, 9
# Different ones, so that no layer finds the code of the one before it; all are in every opset from 6 on.
_OPERATORS = ("Neg", "Abs", "Relu", "Sigmoid", "Tanh", "Exp", "Floor", "Ceil", "Sqrt")
_ELEMENTS = 16


def tiny_chain(layers: int) -> LayerSequence:
    """A sequence of elementwise layers, each on 16 numbers."""
    kind = TensorType("float32", (_ELEMENTS,))
    return LayerSequence(
        layers=tuple(SequenceLayer(_OPERATORS[i % len(_OPERATORS)], "", 6, {}, (i,), (i + 1,)) for i in range(layers)),
        values=(Value(kind, "input"), *(Value(kind, "internal") for _ in range(layers))),
        outputs=(layers,),
    )


def call_overhead_us(short_us: Sequence[float], long_us: Sequence[float]) -> float:
    """The part of a call's time that does not depend on its layers, by chains of tiny layers.

    Args:
        short_us: Times of `tiny_chain(SHORT)`, at least one.
        long_us: Times of `tiny_chain(LONG)`, at least one.
    """
    short, long = float(np.median(short_us)), float(np.median(long_us))
    return max(0.0, short - SHORT * (long - short) / (LONG - SHORT))
