"""The call overhead: the time of a runtime call that is not spent in layers.

The overhead is subtracted from the time of a layer that runs in isolation. It is determined from the times of two
chains of tiny layers, of different lengths: the straight line through these times, as a function of the number of
layers, gives the overhead at zero layers. The chains are loaded together with the group that is measured and timed
between its layers, so that they run in the same state of the caches (docs/adr/0005).
"""

from collections.abc import Sequence

import numpy as np

from costmodel.ir.graph import TensorType
from costmodel.ir.sequence import LayerSequence, SequenceLayer, Value

__all__ = ["LONG_CHAIN_LAYERS", "SHORT_CHAIN_LAYERS", "call_overhead_us", "tiny_chain"]

SHORT_CHAIN_LAYERS, LONG_CHAIN_LAYERS = 1, 9
# The operators differ, so that no layer finds its code in the instruction cache; all exist in every opset from 6 on.
_OPERATORS = ("Neg", "Abs", "Relu", "Sigmoid", "Tanh", "Exp", "Floor", "Ceil", "Sqrt")
_ELEMENTS = 16


def tiny_chain(layers: int) -> LayerSequence:
    """Returns a chain of `layers` elementwise layers, each of which processes 16 numbers."""
    kind = TensorType("float32", (_ELEMENTS,))
    return LayerSequence(
        layers=tuple(SequenceLayer(_OPERATORS[i % len(_OPERATORS)], "", 6, {}, (i,), (i + 1,)) for i in range(layers)),
        values=(Value(kind, "input"), *(Value(kind, "internal") for _ in range(layers))),
        outputs=(layers,),
    )


def call_overhead_us(short_us: Sequence[float], long_us: Sequence[float]) -> float:
    """Returns the call overhead in microseconds, at least 0.

    Args:
        short_us: Times of runs of `tiny_chain(SHORT_CHAIN_LAYERS)` in microseconds, at least one.
        long_us: Times of runs of `tiny_chain(LONG_CHAIN_LAYERS)` in microseconds, at least one.
    """
    short, long = float(np.median(short_us)), float(np.median(long_us))
    return max(0.0, short - SHORT_CHAIN_LAYERS * (long - short) / (LONG_CHAIN_LAYERS - SHORT_CHAIN_LAYERS))
