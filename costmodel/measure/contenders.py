"""Contenders: layers that differ in what they ask of a machine, and that are run side by side to see what they get."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from costmodel.ir.graph import TensorType
from costmodel.ir.sequence import LayerSequence, SequenceLayer, Value
from costmodel.measure.capability import reference_sequence
from costmodel.measure.groups import DEFAULT_L3_BYTES
from costmodel.measure.interference import Ring
from costmodel.runtimes.base import Runner, RuntimeSettings, get_runtime
from costmodel.systems.host import Host

__all__ = ["Contender", "contenders", "open_contenders"]

# Sizes as multiples of the last-level cache: data of which some is evicted, data that never stays, data that stays.
_HALF, _BEYOND, _WITHIN = 0.6, 2.0, 0.2
# A single tensor is at most this large, and all the weights of a contender together.
_MOST_TENSOR_BYTES, _MOST_WEIGHT_BYTES = 256 << 20, 1 << 30
_SMALL, _LARGE = 1024, 2048
_FLOAT_BYTES = 4


@dataclass(frozen=True)
class Contender:
    """Copies of a layer, each with weights of its own, that run one after the other.

    Attributes:
        name: Description of the layer's work in a few words.
        sequence: The layer.
        copies: Number of copies.
    """

    name: str
    sequence: LayerSequence
    copies: int = 1


def contenders(host: Host | None) -> dict[str, Contender]:
    """Returns the contenders for a host, by a key, sized by its last-level cache.

    "computing" stays in a core's own cache. "streaming" reads and writes large tensors. "weights" and "sixteen_rows"
    read weights from memory, with one and sixteen rows of activations. "in_cache" reads weights that stay in the
    last-level cache, "half_in_cache" weights that fill more than half of it.
    """
    l3_bytes = (host.l3_bytes if host else 0) or DEFAULT_L3_BYTES
    beyond = _copies(_LARGE, _BEYOND * l3_bytes)
    return {
        "computing": Contender("product of 256 x 256 matrices", reference_sequence()),
        "streaming": Contender("Relu of tensors beyond the caches", _relu(int(_BEYOND * l3_bytes))),
        "weights": Contender("one row times weights in memory", _product(1, _LARGE), beyond),
        "sixteen_rows": Contender("16 rows times weights in memory", _product(16, _LARGE), beyond),
        "in_cache": Contender(
            "one row times weights in the cache", _product(1, _SMALL), _copies(_SMALL, _WITHIN * l3_bytes)
        ),
        "half_in_cache": Contender(
            "one row times weights of more than half the cache", _product(1, _SMALL), _copies(_SMALL, _HALF * l3_bytes)
        ),
    }  # fmt: skip


def open_contenders(runtime: str, settings: RuntimeSettings, chosen: Sequence[Contender]) -> list[Runner]:
    """Opens contenders with the runtime of that name; another process can call it, too.

    Raises:
        CostModelError: The runtime is not installed, or a layer cannot be opened.
    """
    opened = get_runtime(runtime)
    return [Ring([opened.open_sequence(one.sequence, settings) for _ in range(one.copies)]) for one in chosen]


def _copies(side: int, nbytes: float) -> int:
    return max(1, round(min(nbytes, _MOST_WEIGHT_BYTES) / (_FLOAT_BYTES * side * side)))


def _product(rows: int, side: int) -> LayerSequence:
    return LayerSequence(
        layers=(SequenceLayer("MatMul", "", 1, {}, (0, 1), (2,)),),
        values=(
            Value(TensorType("float32", (rows, side)), "input"),
            Value(TensorType("float32", (side, side)), "constant"),
            Value(TensorType("float32", (rows, side)), "internal"),
        ),
        outputs=(2,),
    )


def _relu(nbytes: int) -> LayerSequence:
    """Returns a Relu whose input and output have that many bytes together."""
    elements = math.ceil(min(nbytes / 2, _MOST_TENSOR_BYTES) / _FLOAT_BYTES)
    kind = TensorType("float32", (elements,))
    return LayerSequence(
        layers=(SequenceLayer("Relu", "", 6, {}, (0,), (1,)),),
        values=(Value(kind, "input"), Value(kind, "internal")),
        outputs=(1,),
    )
