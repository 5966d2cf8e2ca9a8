"""Synthetic weights and inputs, which every operator accepts and on which it takes as long as on real data.

Floats are finite and have a magnitude in [0.1, 1], far from subnormal numbers, which would slow a kernel down. Their
sign is random unless they must be positive (the argument of a root, a divisor, a quantisation scale). Arguments that
need particular values, such as indices and shapes, fit the recorded shapes; see
`costmodel.synthetic.argument_constraints`.
"""

from collections.abc import Sequence
from functools import cache, reduce

import ml_dtypes
import numpy as np

from costmodel.ir.graph import TensorType
from costmodel.ir.layer_view import LayerView
from costmodel.ir.sequence import LayerSequence, SequenceLayer
from costmodel.onnx_io.model import Model
from costmodel.synthetic.aligned_memory import ALIGNMENT_BYTES, aligned_arrays, aligned_copies
from costmodel.synthetic.argument_constraints import required_values
from costmodel.synthetic.argument_rules import SEED, random_below
from costmodel.synthetic.index_inputs import index_limits
from costmodel.synthetic.length_inputs import sequence_lengths

__all__ = ["model_inputs", "numpy_type", "synthetic_tensor", "synthetic_value", "weight_start"]

_POOL_BYTES = 1 << 24
_WEIGHT_STEP = 4099  # a prime, so that weights start at places of the pool that are no multiples of each other
_MASK_RUN_LENGTH = 1 << 16  # consecutive equal elements in a synthetic mask
_SMALL_INTEGERS = ("int4", "uint4", "int8", "uint8", "int16", "uint16")


@cache
def _pool(dtype: str, positive: bool) -> np.ndarray:
    """Returns the common pool of one element type: the random values of which synthetic tensors are slices.

    The pool is cached because drawing values anew for each tensor takes longer than timing the tensor's layer. It is
    aligned because inputs are read where they lie.
    """
    return aligned_copies([_random_values(dtype, positive)])[0]


def _random_values(dtype: str, positive: bool) -> np.ndarray:
    rng = np.random.default_rng(SEED)
    kind = numpy_type(dtype)
    if dtype == "bool":
        # Long runs of equal values, as in real masks: random ones would defeat the branch prediction of a kernel.
        return np.repeat(np.arange(_POOL_BYTES // _MASK_RUN_LENGTH) % 2 == 0, _MASK_RUN_LENGTH)
    if dtype in _SMALL_INTEGERS:
        bits = int(dtype.strip("uint"))
        low, high = (0, 2**bits) if dtype.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1))
        low = 1 if positive else max(low, -100)
        return rng.integers(low, min(high, 101), _POOL_BYTES, dtype=np.int16).astype(kind)
    if kind.kind in "iu":
        # Zeros and ones are valid indices nearly everywhere. Positive ones start at 1: a division by zero would crash.
        return rng.integers(int(positive), 2 + int(positive), _POOL_BYTES // 8).astype(kind)
    values = rng.uniform(0.1, 1.0, _POOL_BYTES // 4).astype(np.float32)
    if not positive:
        values *= rng.choice(np.array([-1, 1], dtype=np.float32), len(values))
    return values.astype(kind)


def numpy_type(dtype: str) -> np.dtype:
    """Returns the type that numpy has for elements of a tensor, by its name, such as "bfloat16"."""
    return np.dtype(getattr(ml_dtypes, dtype)) if hasattr(ml_dtypes, dtype) else np.dtype(dtype)


def synthetic_tensor(kind: TensorType, *, positive: bool = False, start: int = 0) -> np.ndarray:
    """Returns an array of the given type; the same arguments give the same values.

    Args:
        kind: Type of the tensor.
        positive: Whether all values must be greater than zero.
        start: Position of the first value in the common pool (see `_pool`). Tensors from disjoint ranges of the pool
            share no memory.
    """
    values = _pool_values(kind, positive=positive, start=start)
    if start + kind.elements <= _pool(kind.dtype, positive).size:
        return values.reshape(kind.shape)
    return _written(values, 1.0, _empty(kind))


def _empty(kind: TensorType) -> np.ndarray:
    return aligned_arrays([(numpy_type(kind.dtype), kind.shape)])[0]


def _pool_values(kind: TensorType, *, positive: bool, start: int) -> np.ndarray:
    """Returns a part of the common pool: the values of a tensor, or fewer, which the tensor then repeats.

    If the tensor does not fit behind `start`, the part begins elsewhere, and may belong to another tensor, too.
    """
    if kind.elements == 1 and kind.dtype in ("int32", "int64"):
        return np.ones(1, kind.dtype)  # often a count, and a count of 0 would mean no work
    pool = _pool(kind.dtype, positive)
    if start + kind.elements > pool.size:
        return pool[start % (pool.size // 2) :][: kind.elements]
    return pool[start : start + kind.elements]


def _written(values: np.ndarray, scale: float, out: np.ndarray) -> np.ndarray:
    """Writes `values`, again and again, times `scale`, to all of `out`; returns `out`."""
    flat = out.reshape(-1)
    for begin in range(0, flat.size, max(1, values.size)):
        part = flat[begin : begin + values.size]
        if scale == 1:
            part[...] = values[: part.size]
        else:
            np.multiply(values[: part.size], values.dtype.type(scale), out=part)
    return out


def model_inputs(model: Model) -> dict[str, np.ndarray]:
    """Returns values for the inputs of a whole model, by name, in memory of numpy's, as users pass them.

    Indices are spread over the tables in which they are looked up, and the lengths of sequences are the full ones. Any
    other input of one element is positive, because it is more often a count or a threshold than an index.
    """
    limits, lengths = index_limits(model.proto.graph), sequence_lengths(model.proto)

    def values(name: str, kind: TensorType) -> np.ndarray:
        if name in lengths:
            return np.full(kind.shape, lengths[name], kind.dtype)
        if name in limits and kind.elements > 1:
            return random_below(limits[name], kind.shape).astype(kind.dtype)
        return np.array(synthetic_tensor(kind, positive=kind.elements == 1))

    return {name: values(name, kind) for name, kind in model.inputs.items()}


def synthetic_value(
    sequence: LayerSequence, index: int, limit: int | None = None, *, out: np.ndarray | None = None
) -> np.ndarray:
    """Returns values for an input or a weight of `sequence` that suit the layers that read them.

    Args:
        sequence: Sequence in the layout in which it will run.
        index: Index of an input, or of a constant without data.
        limit: Number of rows that an input may choose from, if layers after those that read it use it as an index.
        out: Array with the type and shape of the value, in one piece, to write the values to; if None, they are in an
            array of their own or in a part of the common pool.

    Returns:
        Array with the type and shape of the value: `out` if that is given.
    """
    value = sequence.values[index]
    readers = [layer for layer in sequence.layers if index in layer.inputs]
    needed = _needed_values(sequence, index, readers, limit)
    if needed is not None:
        made = _empty(value.type) if out is None else out
        made[...] = needed
        return made
    positive = any(_needs_positive(layer.op_type) or _is_slope(layer, index) for layer in readers)
    start = weight_start(index) if value.role == "constant" else _pool_offset(sequence, index)
    scale = _BIAS_SCALE if _is_bias(sequence, index) else _fan_in(sequence, index) ** -0.5
    scaled = scale < 1 and value.type.dtype.startswith(("float", "bfloat"))
    if out is None and not scaled:
        return synthetic_tensor(value.type, positive=positive, start=start)
    values = _pool_values(value.type, positive=positive, start=start)
    return _written(values, scale if scaled else 1.0, _empty(value.type) if out is None else out)


def _needed_values(
    sequence: LayerSequence, index: int, readers: Sequence[SequenceLayer], limit: int | None
) -> np.ndarray | int | None:
    """Returns values, in a shape that broadcasts, that a value must have in order to suit its readers; else None."""
    value = sequence.values[index]
    if not value.type.elements:
        return None  # an argument that was left out, such as the scales of a Resize to given sizes
    dtype = numpy_type(value.type.dtype)
    if value.role == "constant" and len(value.type.shape) <= 1 and dtype.name in _SMALL_INTEGERS:
        return _zero_point(dtype)
    made = [
        values
        for layer in readers
        for slot, read in enumerate(layer.inputs)
        if read == index and (values := required_values(LayerView.of(sequence, layer), slot)) is not None
    ]
    if made:
        # Layers that share indices may have tables of different sizes: the smaller of two indices is valid in both.
        chosen = reduce(np.minimum, made) if dtype.kind in "iu" else made[0]
        return chosen.astype(dtype)
    if limit is not None and value.type.elements > 1:
        return random_below(limit, value.type.shape).astype(dtype)
    return None


def weight_start(index: int) -> int:
    """Returns the position in the common pool at which the weight with this index begins.

    No two weights of a network are equal: ONNX Runtime keeps equal ones in memory once, so that a network would read
    less memory than the model that it stands for; and kernels take a short cut if the scales of two operands are equal.
    """
    return index * _WEIGHT_STEP % (_POOL_BYTES // 8)


def _zero_point(dtype: np.dtype) -> int:
    """Returns the zero point that quantisers choose for symmetric weights of an integer type.

    All zero points are equal because kernels are slow if the zero points of channels differ.
    """
    return 1 << (int(dtype.name.strip("uint")) - 1) if dtype.name.startswith("u") else 0


def _pool_offset(sequence: LayerSequence, index: int) -> int:
    """Returns the position in the common pool at which the values of an input of `sequence` begin.

    It lies after the earlier inputs that a layer reads together with this one, so that inputs of one layer share no
    memory: a layer that adds two tensors then really reads two. A multiple of 64 elements is a multiple of 64 bytes.
    For values that are no inputs it is 0.
    """
    values = sequence.values
    read_together = [{i for i in layer.inputs if i >= 0 and values[i].role == "input"} for layer in sequence.layers]
    ends: dict[int, int] = {}
    for i in sorted(set().union(*read_together)):
        earlier = {other for together in read_together if i in together for other in together if other < i}
        start = max((ends[other] for other in earlier), default=0)
        if i == index:
            return start
        ends[i] = -(-(start + values[i].type.elements) // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
    return 0


# Operators with an argument that must be positive or must not be close to zero.
_POSITIVE = {"Sqrt", "Log", "Div", "Pow", "Reciprocal", "BatchNormalization", "Acosh", "Mod", "NonMaxSuppression"}


def _needs_positive(op_type: str) -> bool:
    # Quantised operators, recognised by their names, have scales, which must be positive.
    return op_type in _POSITIVE or op_type.startswith("Q") or "quantize" in op_type.lower() or "Integer" in op_type


def _is_slope(layer: SequenceLayer, index: int) -> bool:
    # Slopes of trained models are positive; with slopes of both signs most results would be.
    return layer.op_type == "PRelu" and index in layer.inputs[1:]


def _is_bias(sequence: LayerSequence, index: int) -> bool:
    """Returns whether a value is the bias of a contraction.

    Biases are small, so that they do not decide the signs of the results: PRelu takes twice as long if signs are mixed,
    as they are in trained models.
    """
    return sequence.values[index].role == "constant" and any(
        layer.op_type in _CONTRACTIONS - _RECURRENT and index in layer.inputs[2:3] for layer in sequence.layers
    )


_RECURRENT = {"LSTM", "GRU", "RNN"}
_CONTRACTIONS = {
    "Conv", "FusedConv", "Gemm", "FusedGemm", "MatMul", "FusedMatMul", "ConvTranspose",
} | _RECURRENT  # fmt: skip
_BIAS_SCALE = 0.1


def _fan_in(sequence: LayerSequence, index: int) -> int:
    """Returns how many products a layer sums for each output element if this value is its weight; else 1.

    Weights are divided by the square root of this number, so that the outputs of chains of layers stay of order one.
    """
    value = sequence.values[index]
    shape = value.type.shape
    for layer in sequence.layers:
        if layer.op_type in _CONTRACTIONS and index in layer.inputs[1:2] and value.role == "constant" and shape:
            if "Conv" in layer.op_type:
                return int(np.prod(shape[1:]))
            return shape[-2] if len(shape) > 1 else shape[0]
    return 1
