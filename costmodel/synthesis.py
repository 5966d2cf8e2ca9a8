"""Synthetic weights and inputs: values that every operator accepts and that cost what real ones cost.

Floats are uniform in [0.1, 1] for arguments of operators with a domain (Sqrt, Log, Div) and in [-1, 1] elsewhere:
finite, and far from the subnormal numbers that would slow a kernel down. Indices lie within the tensor they index,
and a tensor that says a shape says the shape that was recorded.
"""

from collections.abc import Callable, Sequence
from functools import cache

import ml_dtypes
import numpy as np

from costmodel.graph import TensorType
from costmodel.sequence import LayerSequence, SequenceLayer, Value

__all__ = ["synthetic", "synthetic_like"]

_POOL_BYTES = 1 << 24
_SEED = 2019  # the year of DLBricks; any number serves, the same one makes runs alike


@cache
def _pool(dtype: str, positive: bool) -> np.ndarray:
    """Random values that tensors are cut from: drawing them anew for each tensor would cost more than timing it."""
    rng = np.random.default_rng(_SEED)
    if dtype == "bool":
        return rng.random(_POOL_BYTES) < 0.5
    if dtype in ("int8", "uint8", "int16", "uint16"):
        info = np.iinfo(dtype)
        return rng.integers(max(info.min, -100), min(info.max, 100), _POOL_BYTES).astype(dtype)
    if np.dtype(_numpy_type(dtype)).kind in "iu":
        return rng.integers(0, 2, _POOL_BYTES // 8).astype(_numpy_type(dtype))
    low = 0.1 if positive else -1.0
    return rng.uniform(low, 1.0, _POOL_BYTES // 4).astype(_numpy_type(dtype))


def _numpy_type(dtype: str) -> np.dtype:
    return np.dtype(getattr(ml_dtypes, dtype)) if hasattr(ml_dtypes, dtype) else np.dtype(dtype)


def synthetic_like(kind: TensorType, *, positive: bool = False) -> np.ndarray:
    """Values of a given type, the same ones each time."""
    pool = _pool(kind.dtype, positive)
    return (
        np.resize(pool, kind.shape)
        if kind.elements > pool.size
        else pool[: kind.elements].reshape(kind.shape)
    )


def synthetic(sequence: LayerSequence, index: int) -> np.ndarray:
    """Values for an input or a weight of `sequence` that the layers reading it accept.

    Args:
        sequence: In the layout in which it will run.
        index: Of a value that is an input, or a constant without data.

    Returns:
        Array of the value's type and shape.
    """
    value = sequence.values[index]
    for layer in sequence.layers:
        if index not in layer.inputs:
            continue
        slot = layer.inputs.index(index)
        rule = _RULES.get((layer.op_type, slot))
        if rule is not None:
            made = rule(
                [_at(sequence, i) for i in layer.inputs], [_at(sequence, i) for i in layer.outputs], layer
            )
            return np.broadcast_to(made, value.type.shape).astype(_numpy_type(value.type.dtype), order="C")
    positive = any(layer.op_type in _POSITIVE for layer in sequence.layers if index in layer.inputs)
    fan_in = _fan_in(sequence, index)
    values = synthetic_like(value.type, positive=positive)
    if fan_in > 1 and values.dtype.kind == "f":
        return (values * values.dtype.type(fan_in**-0.5)).astype(values.dtype)
    return values


def _at(sequence: LayerSequence, index: int) -> Value | None:
    return sequence.values[index] if index >= 0 else None


# Operators whose argument must be positive, or whose divisor must not be near zero.
_POSITIVE = {
    "Sqrt", "Log", "Div", "Pow", "Reciprocal", "BatchNormalization", "Acosh", "Mod", "QuantizeLinear",
    "DequantizeLinear", "QLinearConv", "QLinearMatMul", "MatMulIntegerToFloat", "DynamicQuantizeMatMul",
}  # fmt: skip

_CONTRACTIONS = {
    "Conv",
    "FusedConv",
    "Gemm",
    "FusedGemm",
    "MatMul",
    "FusedMatMul",
    "ConvTranspose",
    "LSTM",
    "GRU",
    "RNN",
}


def _fan_in(sequence: LayerSequence, index: int) -> int:
    """Length of the sums that a weight takes part in, so that chains of layers stay of order one."""
    for layer in sequence.layers:
        if (
            layer.op_type in _CONTRACTIONS
            and index in layer.inputs[1:2]
            and sequence.values[index].role == "constant"
        ):
            shape = sequence.values[index].type.shape
            return (
                int(np.prod(shape[1:]))
                if "Conv" in layer.op_type
                else int(shape[-2])
                if len(shape) > 1
                else 1
            )
    return 1


Ports = Sequence[Value | None]
Rule = Callable[[Ports, Ports, SequenceLayer], np.ndarray]


def _shape(port: Value | None) -> tuple[int, ...]:
    assert port is not None
    return port.type.shape


def _random_below(limit: int, shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(_SEED).integers(0, max(1, limit), shape)


def _axis(layer: SequenceLayer, default: int, rank: int) -> int:
    axis = int(layer.attributes.get("axis", {"i": default})["i"])
    return axis % rank if rank else 0


def _index_along_axis(inputs: Ports, outputs: Ports, layer: SequenceLayer) -> np.ndarray:
    data = _shape(inputs[0])
    return _random_below(data[_axis(layer, 0, len(data))], _shape(inputs[1]))


def _index_tuples(inputs: Ports, outputs: Ports, layer: SequenceLayer) -> np.ndarray:
    data, indices = _shape(inputs[0]), _shape(inputs[1])
    first = int(layer.attributes.get("batch_dims", {"i": 0})["i"])
    limits = np.array(data[first : first + indices[-1]])
    return (np.random.default_rng(_SEED).random(indices) * limits).astype(np.int64)


def _output_shape(inputs: Ports, outputs: Ports, layer: SequenceLayer) -> np.ndarray:
    return np.array(_shape(outputs[0]))


def _repeats(inputs: Ports, outputs: Ports, layer: SequenceLayer) -> np.ndarray:
    return np.array(_shape(outputs[0])) // np.maximum(1, np.array(_shape(inputs[0])))


def _zeros(inputs: Ports, outputs: Ports, layer: SequenceLayer) -> np.ndarray:
    return np.zeros(1)


def _ones(inputs: Ports, outputs: Ports, layer: SequenceLayer) -> np.ndarray:
    return np.ones(1)


def _range_limit(inputs: Ports, outputs: Ports, layer: SequenceLayer) -> np.ndarray:
    return np.array(_shape(outputs[0])[0])


def _slice_ends(inputs: Ports, outputs: Ports, layer: SequenceLayer) -> np.ndarray:
    # Axes that shrink are the ones sliced; without values for them, the first ones in order.
    axes = range(_shape(inputs[2])[0])
    return np.array([_shape(outputs[0])[axis] for axis in axes])


def _slice_axes(inputs: Ports, outputs: Ports, layer: SequenceLayer) -> np.ndarray:
    return np.arange(_shape(inputs[3])[0])


def _split_sizes(inputs: Ports, outputs: Ports, layer: SequenceLayer) -> np.ndarray:
    axis = _axis(layer, 0, len(_shape(inputs[0])))
    return np.array([_shape(output)[axis] for output in outputs if output is not None])


def _k(inputs: Ports, outputs: Ports, layer: SequenceLayer) -> np.ndarray:
    rank = len(_shape(inputs[0]))
    return np.array([_shape(outputs[0])[_axis(layer, -1, rank)]])


def _depth(inputs: Ports, outputs: Ports, layer: SequenceLayer) -> np.ndarray:
    return np.array(_shape(outputs[0])[_axis(layer, -1, len(_shape(outputs[0])))])


def _scales(inputs: Ports, outputs: Ports, layer: SequenceLayer) -> np.ndarray:
    return np.array(_shape(outputs[0])) / np.array(_shape(inputs[0]))


def _boxes(inputs: Ports, outputs: Ports, layer: SequenceLayer) -> np.ndarray:
    corners = np.random.default_rng(_SEED).random(_shape(inputs[0]))
    corners[..., 2:] = corners[..., :2] + 0.05 + corners[..., 2:] * 0.2
    return corners


def _lengths(inputs: Ports, outputs: Ports, layer: SequenceLayer) -> np.ndarray:
    return np.array(_shape(inputs[0])[0])


def _grow(inputs: Ports, outputs: Ports, layer: SequenceLayer) -> np.ndarray:
    """Pads at the end that turn the input's shape into the output's."""
    grown = np.array(_shape(outputs[0])) - np.array(_shape(inputs[0]))
    return np.concatenate([np.zeros_like(grown), grown])


_RULES: dict[tuple[str, int], Rule] = {
    ("Gather", 1): _index_along_axis,
    ("GatherElements", 1): _index_along_axis,
    ("ScatterElements", 1): _index_along_axis,
    ("Scatter", 1): _index_along_axis,
    ("GatherND", 1): _index_tuples,
    ("ScatterND", 1): _index_tuples,
    ("Reshape", 1): _output_shape,
    ("Expand", 1): _output_shape,
    ("ConstantOfShape", 0): _output_shape,
    ("Tile", 1): _repeats,
    ("Pad", 1): _grow,
    ("Range", 0): _zeros,
    ("Range", 1): _range_limit,
    ("Range", 2): _ones,
    ("Slice", 1): _zeros,
    ("Slice", 2): _slice_ends,
    ("Slice", 3): _slice_axes,
    ("Slice", 4): _ones,
    ("Split", 1): _split_sizes,
    ("TopK", 1): _k,
    ("OneHot", 1): _depth,
    ("Resize", 1): _zeros,
    ("Resize", 2): _scales,
    ("Upsample", 1): _scales,
    ("Resize", 3): _output_shape,
    ("NonMaxSuppression", 0): _boxes,
    ("LSTM", 4): _lengths,
    ("GRU", 4): _lengths,
    ("RNN", 4): _lengths,
    ("QuantizeLinear", 2): _zeros,
    ("DequantizeLinear", 2): _zeros,
}
