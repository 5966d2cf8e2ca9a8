"""Synthetic weights and inputs: finite, normal, in range and reproducible."""

from collections.abc import Callable
from itertools import combinations

import hypothesis.strategies as st
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from onnx import ModelProto

from costmodel.ir.graph import LayerGraph, TensorType
from costmodel.ir.sequence import LayerSequence, SequenceLayer, Value, input_indices, weight_indices
from costmodel.onnx_io.model import read_model
from costmodel.partition.decomposition import decompose, whole_model
from costmodel.synthetic.values import model_inputs, synthetic_tensor, synthetic_value

Lower = Callable[..., LayerGraph]
Parse = Callable[..., ModelProto]

FLOATS = ("float16", "bfloat16", "float32", "float64")
INTEGERS = ("int4", "uint4", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")


def least_normal(dtype: str) -> float:
    """Returns the smallest normal magnitude of a type."""
    return float(ml_dtypes.finfo(dtype).smallest_normal)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("positive", [False, True])
def test_floats_are_finite_and_normal(dtype: str, positive: bool) -> None:
    """Magnitudes lie in [0.1, 1], and values are positive where they must be."""
    values = synthetic_tensor(TensorType(dtype, (1000, 50)), positive=positive).astype(np.float64)
    assert np.all(np.isfinite(values))
    assert 0.09 < np.abs(values).min() <= np.abs(values).max() <= 1
    assert (values.min() > 0) == positive


@pytest.mark.parametrize("dtype", INTEGERS)
def test_positive_integers_divide(dtype: str) -> None:
    """Integers that may be divisors are not zero, because such a division would crash the process."""
    assert synthetic_tensor(TensorType(dtype, (5000,)), positive=True).astype(np.int64).min() >= 1


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS, "bool"])
@pytest.mark.parametrize("shape", [(), (0, 3), (7,), (2, 3, 4)])
def test_every_type_has_values(dtype: str, shape: tuple[int, ...]) -> None:
    """Values have the requested type and shape, and are the same on every call."""
    values = synthetic_tensor(TensorType(dtype, shape))
    assert values.shape == shape
    assert str(values.dtype) == dtype
    assert np.array_equal(values, synthetic_tensor(TensorType(dtype, shape)))


@pytest.mark.parametrize("side", [3, 64, 2100])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_no_two_weights_are_equal(side: int, dtype: str) -> None:
    """Weights of one shape differ, or ONNX Runtime would keep them in memory once; also those larger than the pool."""
    square = TensorType(dtype, (side, side))
    sequence = LayerSequence(
        layers=tuple(SequenceLayer("MatMul", "", 13, {}, (i, 5 + i), (1 + i,)) for i in range(4)),
        values=(Value(square, "input"), *[Value(square, "internal")] * 4, *[Value(square, "constant")] * 4),
        outputs=(4,),
    )
    weights = [synthetic_value(sequence, i).astype(np.float32) for i in weight_indices(sequence)]
    assert len(weights) == 4
    assert all((one != other).mean() > 0.9 for one, other in combinations(weights, 2))


@given(data=st.data())
def test_values_can_be_written_to_memory(
    data: st.DataObject, graphs: Callable[..., st.SearchStrategy[LayerGraph]]
) -> None:
    """Values that are written to given memory are those of an array of their own."""
    sequence = whole_model(data.draw(graphs()))
    for index in (*input_indices(sequence), *weight_indices(sequence)):
        expected = synthetic_value(sequence, index)
        out = np.zeros_like(expected)
        assert synthetic_value(sequence, index, out=out) is out
        assert np.array_equal(out, expected)


@pytest.mark.parametrize("elements", [(1 << 22) - 5, 9 << 20])
def test_large_weights_can_be_written_to_memory(elements: int) -> None:
    """A weight that is as large as the pool, or larger, is scaled everywhere."""
    kinds = [TensorType("float32", shape) for shape in ((1, 4), (4, elements // 4), (1, elements // 4))]
    values = tuple(map(Value, kinds, ("input", "constant", "internal")))
    sequence = LayerSequence((SequenceLayer("MatMul", "", 13, {}, (0, 1), (2,)),), values, (2,))
    out = np.zeros(kinds[1].shape, np.float32)
    synthetic_value(sequence, 1, out=out)
    assert np.array_equal(out, synthetic_value(sequence, 1))
    assert 0.04 < np.abs(out).min() <= np.abs(out).max() <= 0.5


def test_signs_inside_a_network_are_mixed() -> None:
    """Biases are small beside what they are added to, and slopes of PRelu are positive, as in trained models."""
    kinds = [TensorType("float32", shape) for shape in ((8, 256), (256, 256), (256,), (8, 256), (256,), (8, 256))]
    roles = ("input", "constant", "constant", "internal", "constant", "internal")
    sequence = LayerSequence(
        layers=(
            SequenceLayer("Gemm", "", 13, {}, (0, 1, 2), (3,)),
            SequenceLayer("PRelu", "", 16, {}, (3, 4), (5,)),
        ),
        values=tuple(map(Value, kinds, roles)),  # type: ignore[arg-type]
        outputs=(5,),
    )
    data, weights, bias, slopes = (synthetic_value(sequence, i) for i in (0, 1, 2, 4))
    assert np.abs(bias).max() < np.abs(data @ weights).mean() / 2
    assert (slopes > 0).all()


def test_a_tensor_larger_than_the_pool() -> None:
    """Very large tensors repeat the values of a pool."""
    values = synthetic_tensor(TensorType("int64", (3_000_000,)))
    assert values.shape == (3_000_000,)
    assert set(np.unique(values)) == {0, 1}


def test_an_integer_input_by_itself_is_a_count(parse: Callable[..., ModelProto]) -> None:
    """A scalar integer input is 1, so that a loop runs once; ids without a table are 0 or 1, others any row of it."""
    proto = parse(
        """(int64 n, int64[2,9] mask, int32[2,900] ids) => (float y, float z, int64 m)
        <float[7,1] table = {1, 2, 3, 4, 5, 6, 7}>
        { y = Gather(table, n) z = Gather(table, ids) m = Neg(mask) }"""
    )
    values = model_inputs(read_model(proto))
    assert values["n"] == 1
    assert set(np.unique(values["mask"])) <= {0, 1}
    assert (set(np.unique(values["ids"])), values["ids"].dtype) == (set(range(7)), np.int32)


def fed(sequence: LayerSequence) -> dict[int, np.ndarray]:
    """Returns all synthetic values of a sequence."""
    return {i: synthetic_value(sequence, i) for i in (*input_indices(sequence), *weight_indices(sequence))}


def test_values_for_the_layers_of_real_models(light_name: str, lowered_light: Lower) -> None:
    """Values for real sequences have the right types and shapes and are finite and normal."""
    for sequence in decompose(light_name, lowered_light(light_name), 2).unique.values():
        if sum(value.type.nbytes for value in sequence.values) < 10_000_000:
            for index, values in fed(sequence).items():
                kind = sequence.values[index].type
                assert values.shape == kind.shape
                assert str(values.dtype) == kind.dtype
                if kind.dtype in FLOATS:
                    assert np.all(np.isfinite(values))
                    assert np.abs(values).min() >= least_normal(kind.dtype)


@pytest.mark.parametrize("dtype", ["float", "float16"])
def test_weights_of_long_sums_stay_normal(dtype: str, parse: Parse, lower: Lower) -> None:
    """Weights shrink with the length of their sums, but not to subnormal numbers."""
    model = parse(
        f"({dtype}[1,20000] x) => (float[1,8] y) {{ a = Cast<to = 1>(x) y = MatMul(a, w) }}",
        weights={"w": (20_000, 8)},
    )
    (sequence,) = (s for s in decompose("m", lower(model)).unique.values() if "MatMul" in s.kind or "Gemm" in s.kind)
    (index,) = weight_indices(sequence)
    weights = synthetic_value(sequence, index)
    assert 0.09 < np.abs(weights).max() * 20_000**0.5 <= 1.01
    assert np.abs(weights).min() >= least_normal("float16")


@given(rows=st.integers(1, 9), columns=st.integers(1, 9), axis=st.integers(-2, 1))
def test_indices_lie_within_what_they_index(rows: int, columns: int, axis: int, parse: Parse, lower: Lower) -> None:
    """Indices of Gather are valid for any table and axis, and spread over it."""
    (sequence,) = decompose(
        "m",
        lower(
            parse(f"(float[{rows},{columns}] x, int64[99] i) => (float y) {{ y = Gather<axis: int = {axis}>(x, i) }}")
        ),
    ).unique.values()
    (indices,) = (values for values in fed(sequence).values() if values.dtype == np.int64)
    size = (rows, columns)[axis]
    assert indices.min() >= 0
    assert indices.max() < size
    assert len(np.unique(indices)) > size // 2


@given(shape=st.lists(st.integers(1, 6), min_size=1, max_size=4), depth=st.integers(1, 4), batch=st.integers(0, 1))
def test_index_tuples_lie_within_what_they_index(
    shape: list[int], depth: int, batch: int, parse: Parse, lower: Lower
) -> None:
    """Index tuples of GatherND are valid in every element."""
    batch = min(batch, len(shape) - 1)
    depth = min(depth, len(shape) - batch)
    data, indices = ",".join(map(str, shape)), ",".join(map(str, [*shape[:batch], 50, depth]))
    text = f"(float[{data}] x, int64[{indices}] i) => (float y) {{ y = GatherND<batch_dims: int = {batch}>(x, i) }}"
    (sequence,) = decompose("m", lower(parse(text))).unique.values()
    (tuples,) = (values for values in fed(sequence).values() if values.dtype == np.int64)
    for position in range(depth):
        assert tuples[..., position].min() >= 0
        assert tuples[..., position].max() < shape[batch + position]


@given(st.integers(1, 300), st.integers(1, 300))
def test_indices_that_two_layers_share_lie_within_both(rows: int, others: int) -> None:
    """Indices that scatter into tables of different sizes are valid in the smaller one, whichever layer is first."""
    shapes = ((rows, 4), (others, 4), (50, 1), (50, 4), (rows, 4), (others, 4))
    kinds = [TensorType("int64" if i == 2 else "float32", shape) for i, shape in enumerate(shapes)]
    roles = ("input", "input", "constant", "input", "internal", "internal")
    sequence = LayerSequence(
        layers=tuple(SequenceLayer("ScatterND", "", 16, {}, (i, 2, 3), (4 + i,)) for i in range(2)),
        values=tuple(map(Value, kinds, roles)),  # type: ignore[arg-type]
        outputs=(4, 5),
    )
    indices = synthetic_value(sequence, 2)
    assert indices.min() >= 0
    assert indices.max() < min(rows, others)


@given(before=st.integers(1, 40), after=st.integers(1, 90))
def test_scales_give_the_recorded_size(before: int, after: int, parse: Parse, lower: Lower) -> None:
    """Synthetic scales give the recorded size after the runtime's rounding down in single precision."""
    text = (
        f"(float[1,1,{before}] x) => (float y) <int64[3] s = {{1, 1, {after}}}> "
        '{ y = Resize<coordinate_transformation_mode = "asymmetric">(x, , , s) }'
    )
    graph = lower(parse(text))
    sequence = whole_model(graph)
    # The same layer, with a scale instead of a size.
    by_scale = LayerSequence.from_text(
        sequence.text.replace('"in":[0,-1,-1,1]', '"in":[0,-1,1]').replace(
            f'["int64",[3],0,"constant",[1,1,{after}]]', '["float32",[3],0,"constant",null]'
        )
    )
    scales = synthetic_value(by_scale, 1)
    assert int(np.floor(np.float32(before) * scales[2])) == after


def test_a_shape_is_the_one_that_was_recorded(parse: Parse, lower: Lower) -> None:
    """A Reshape without the layers that compute its shape is fed the recorded shape."""
    graph = lower(parse("(float[4,6] x, float[3,8] t) => (float y) { s = Shape(t) y = Reshape(x, s) }"), "none")
    (sequence,) = (s for s in decompose("m", graph).unique.values() if s.kind == "Reshape")
    (shape,) = (values for values in fed(sequence).values() if values.dtype == np.int64)
    assert shape.tolist() == [3, 8]


def overlapping(sequence: LayerSequence) -> list[tuple[int, int]]:
    """Returns pairs of inputs of one layer that overlap in memory."""
    made = {i: synthetic_value(sequence, i) for i in input_indices(sequence)}
    together = {(i, j) for layer in sequence.layers for i in layer.inputs for j in layer.inputs if i < j}
    return [(i, j) for i, j in together if i in made and j in made and np.shares_memory(made[i], made[j])]


@given(data=st.data())
def test_inputs_share_no_memory(data: st.DataObject, graphs: Callable[..., st.SearchStrategy[LayerGraph]]) -> None:
    """The inputs of a layer do not overlap in memory, which would make cache hits too frequent."""
    sequence = whole_model(data.draw(graphs()))
    assert overlapping(sequence) == []


def test_what_two_layers_read_between_them_shares_no_memory(parse: Parse, lower: Lower) -> None:
    """Inputs do not overlap if two layers read two each and share one."""
    text = "(float[8] x, float[4,8] y, float[4,8] z) => (float m) { a = Add(x, y) m = Max(a, y, z) }"
    sequence = whole_model(lower(parse(text), "none"))
    assert len(input_indices(sequence)) == 3
    assert overlapping(sequence) == []


@pytest.mark.parametrize("elements", [1 << 10, 1 << 21, 3 << 20, 5 << 20])
def test_large_inputs_share_no_memory_either(elements: int, parse: Parse, lower: Lower) -> None:
    """Inputs do not overlap if they exceed the pool together."""
    text = f"(float[{elements}] x, float[{elements}] y, float[{elements}] z) => (float m) {{ m = Max(x, y, z) }}"
    sequence = whole_model(lower(parse(text)))
    assert len(input_indices(sequence)) == 3
    assert overlapping(sequence) == []


@pytest.mark.parametrize(
    ("dtype", "zero"),
    [("int4", 0), ("uint4", 8), ("int8", 0), ("uint8", 128), ("int16", 0), ("uint16", 32_768)],
)
@pytest.mark.parametrize("shape", [(), (4,)])
def test_zero_points_are_those_of_symmetric_weights(dtype: str, zero: int, shape: tuple[int, ...]) -> None:
    """Zero points are equal for all channels, as quantisers choose them; otherwise kernels are slow."""
    kind = TensorType(dtype, (3, 4))
    layer = SequenceLayer("DequantizeLinear", "", 21, {}, (0, 1, 2), (3,))
    values = (
        Value(kind, "input"),
        Value(TensorType("float32", shape), "constant"),
        Value(TensorType(dtype, shape), "constant"),
        Value(TensorType("float32", (3, 4)), "internal"),
    )
    sequence = LayerSequence((layer,), values, (3,))
    made = synthetic_value(sequence, 2)
    assert (made.shape, str(made.dtype)) == (shape, dtype)
    assert set(made.astype(np.int64).reshape(-1).tolist()) == {zero}
    assert len(np.unique(synthetic_value(sequence, 0).astype(np.int64))) > 1  # the tensor itself has different values
    assert synthetic_value(sequence, 1).min() > 0
