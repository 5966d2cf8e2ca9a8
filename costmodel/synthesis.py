"""Synthetic weights and inputs: values that every operator accepts and that cost what real ones cost.

The magnitude of a float lies in [0.1, 1], its sign is random unless it must be positive (the argument of a root, a
divisor, a quantisation scale): finite, and far from the subnormal numbers that would slow a kernel down. What has to
be a particular value, because it is an index or says a shape, is made to fit the shapes that were recorded; see
`costmodel.particular`.
"""

from collections.abc import Mapping
from functools import cache

import ml_dtypes
import numpy as np

from costmodel.call import Call
from costmodel.graph import TensorType
from costmodel.particular import particular_values
from costmodel.sequence import LayerSequence

__all__ = ["model_inputs", "synthetic", "synthetic_like"]

_POOL_BYTES = 1 << 24
_STRETCH = 1 << 16
_SEED = 2019  # the year of DLBricks; any number serves, the same one makes runs alike
_SMALL_INTEGERS = ("int4", "uint4", "int8", "uint8", "int16", "uint16")


@cache
def _pool(dtype: str, positive: bool) -> np.ndarray:
    """Random values that tensors are cut from: drawing them anew for each tensor costs more than timing it."""
    rng = np.random.default_rng(_SEED)
    kind = _numpy_type(dtype)
    if dtype == "bool":
        # As in masks, long stretches of one kind: a kernel that asks at each element would guess in vain otherwise.
        return np.asarray(np.arange(_POOL_BYTES) // _STRETCH % 2 == 0)
    if dtype in _SMALL_INTEGERS:
        bits = int(dtype.strip("uint"))
        low, high = (0, 2**bits) if dtype.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1))
        low = 1 if positive else max(low, -100)
        return rng.integers(low, min(high, 101), _POOL_BYTES, dtype=np.int16).astype(kind)
    if kind.kind in "iu":
        # Zeros and ones are indices into nearly everything; no integer kernel survives a division by zero.
        return rng.integers(int(positive), 2 + int(positive), _POOL_BYTES // 8).astype(kind)
    values = rng.uniform(0.1, 1.0, _POOL_BYTES // 4).astype(np.float32)
    if not positive:
        values *= rng.choice(np.array([-1, 1], dtype=np.float32), len(values))
    return values.astype(kind)


def _numpy_type(dtype: str) -> np.dtype:
    return np.dtype(getattr(ml_dtypes, dtype)) if hasattr(ml_dtypes, dtype) else np.dtype(dtype)


def synthetic_like(kind: TensorType, *, positive: bool = False, start: int = 0) -> np.ndarray:
    """Values of a given type, the same ones each time.

    Args:
        kind: The type.
        positive: Whether no value may be zero or less.
        start: Where in the common supply of values they begin; tensors that begin apart share no memory.
    """
    if kind.elements == 1 and kind.dtype in ("int32", "int64"):
        return np.ones(kind.shape, kind.dtype)  # a count, and nothing comes of a count of 0
    pool = _pool(kind.dtype, positive)
    if start + kind.elements > pool.size:
        return np.resize(pool, kind.shape)
    return pool[start : start + kind.elements].reshape(kind.shape)


def model_inputs(types: Mapping[str, TensorType]) -> dict[str, np.ndarray]:
    """Values for the inputs of a whole model, of which only the types are known.

    A number by itself is more often a count or a threshold than an index: it is positive.
    """
    return {name: synthetic_like(kind, positive=kind.elements == 1) for name, kind in types.items()}


def synthetic(sequence: LayerSequence, index: int) -> np.ndarray:
    """Values for an input or a weight of `sequence` that the layers reading it accept.

    Args:
        sequence: In the layout in which it will run.
        index: Of a value that is an input, or a constant without data.

    Returns:
        Array of the value's type and shape.
    """
    value = sequence.values[index]
    dtype = _numpy_type(value.type.dtype)
    if value.role == "constant" and len(value.type.shape) <= 1 and dtype.name in _SMALL_INTEGERS:
        return np.full(value.type.shape, _zero_point(dtype), dtype)
    readers = [layer for layer in sequence.layers if index in layer.inputs]
    for layer in readers:
        call = Call.of(sequence, layer)
        for slot, read in enumerate(layer.inputs):
            made = particular_values(call, slot) if read == index else None
            if made is not None:
                return np.broadcast_to(made, value.type.shape).astype(dtype, order="C")
    positive = any(_wants_positive(layer.op_type) for layer in readers)
    # Scalars differ from each other: kernels take a short cut where the scales of two operands are equal.
    start = index if value.role == "constant" and value.type.elements == 1 else _fed_before(sequence, index)
    values = synthetic_like(value.type, positive=positive, start=start)
    fan_in = _fan_in(sequence, index)
    if fan_in > 1 and value.type.dtype.startswith(("float", "bfloat")):
        return np.asarray(values * values.dtype.type(fan_in**-0.5), dtype=dtype)
    return values


def _zero_point(dtype: np.dtype) -> int:
    """What quantisers choose for symmetric weights; where zero points differ by channel, kernels are slow."""
    return 1 << (int(dtype.name.strip("uint")) - 1) if dtype.name.startswith("u") else 0


def _fed_before(sequence: LayerSequence, index: int) -> int:
    """Where the inputs before this one end that a layer reads with it: a layer that adds two tensors reads two."""
    values = sequence.values
    read_together = [{i for i in layer.inputs if i >= 0 and values[i].role == "input"} for layer in sequence.layers]
    ends: dict[int, int] = {}
    for i in sorted(set().union(*read_together)):
        beside = {other for together in read_together if i in together for other in together if other < i}
        start = max((ends[other] for other in beside), default=0)
        if i == index:
            return start
        ends[i] = start + values[i].type.elements
    return 0


# Operators with an argument that must be positive, or must not be near zero.
_POSITIVE = {"Sqrt", "Log", "Div", "Pow", "Reciprocal", "BatchNormalization", "Acosh", "Mod", "NonMaxSuppression"}


def _wants_positive(op_type: str) -> bool:
    # Quantised operators, of which there are many, take scales.
    return op_type in _POSITIVE or op_type.startswith("Q") or "quantize" in op_type.lower() or "Integer" in op_type


_CONTRACTIONS = {
    "Conv", "FusedConv", "Gemm", "FusedGemm", "MatMul", "FusedMatMul", "ConvTranspose", "LSTM", "GRU", "RNN",
}  # fmt: skip


def _fan_in(sequence: LayerSequence, index: int) -> int:
    """Length of the sums that a weight takes part in, so that chains of layers stay of order one."""
    value = sequence.values[index]
    shape = value.type.shape
    for layer in sequence.layers:
        if layer.op_type in _CONTRACTIONS and index in layer.inputs[1:2] and value.role == "constant" and shape:
            if "Conv" in layer.op_type:
                return int(np.prod(shape[1:]))
            return shape[-2] if len(shape) > 1 else shape[0]
    return 1
