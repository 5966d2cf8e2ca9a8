"""Property: a layer from a client is either refused, or everything that prices it gives finite numbers."""

import ast
import base64
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import GraphProto, TensorProto

from costmodel.errors import ModelError
from costmodel.features.access_pattern import access_pattern_of
from costmodel.features.analytical_bound import bound_us
from costmodel.features.tabular import encode_all
from costmodel.features.work import layer_work
from costmodel.ir.footprint import read_bytes, weight_bytes
from costmodel.ir.graph import ITEM_BYTES, OPAQUE, TensorType
from costmodel.ir.sequence import LayerSequence, SequenceLayer, Value
from costmodel.serving.validation.sequences import check_sequence
from tests.synthetic import SYSTEM

ROOT = Path(__file__).parents[2]
# Intermediate numbers are sums and products of sizes: they must stay shorter than the input they are computed from.
MOST_BITS = 1000


def _operators() -> list[str]:
    """Returns every operator name in the source files that treat operators differently."""
    names = (
        "access_pattern",
        "arithmetic",
        "blocked_convolution",
        "channel_order",
        "channels_last_convolution",
        "control_flow",
        "copies",
        "estimators",
        "integer_products",
        "kernel_path",
    )
    names += ("products", "recurrence", "reductions", "resampling", "row", "row_copies", "work")
    files = [ROOT / f"features/{name}.py" for name in names]
    files += [ROOT / "costmodel/ir/footprint.py", ROOT / "serving/validation/preconditions.py"]
    nodes = (node for file in files for node in ast.walk(ast.parse(file.read_text())))
    texts = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    return sorted(text for text in texts if len(text) > 1 and text.isalnum() and text[0].isupper())


# All other operators are treated alike, so that a few represent them.
OPERATORS = [*_operators(), "ReduceMean", "ReduceNothing", "NoOperator", "Add", "If", "Resize"]

integers = st.one_of(
    st.integers(-3, 6),
    st.sampled_from([-(2**63), -(2**31), 2**31 - 1, 2**31, 2**63 - 1, 2**63, 10**4000]),
)
floats = st.one_of(st.floats(-3, 3), st.sampled_from([math.nan, math.inf, 1e39, 1e308, 5e-324]))
texts = st.one_of(
    st.sampled_from(["", "Relu", "linear", "nearest", "ij,jk->ik", "abcde,abcde->", "...i,i", "a b->\x00", "\ud800"]),
    st.text(alphabet="abcde,.-> AB", max_size=12),
)
anything = st.recursive(
    st.one_of(st.none(), st.booleans(), integers, floats, texts),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=2)),
    max_leaves=4,
)
contents = st.one_of(
    st.fixed_dictionaries({"ints": st.lists(integers, max_size=6)}),
    st.fixed_dictionaries({"i": integers}),
    st.fixed_dictionaries({"f": floats}),
    st.fixed_dictionaries({"s": texts}),
    st.fixed_dictionaries({"floats": st.lists(floats, max_size=3)}),
    st.fixed_dictionaries({"strings": st.lists(texts, max_size=3)}),
    st.fixed_dictionaries({"g": st.sampled_from(["", "QUJD", "QUI=", "???"])}),
    st.fixed_dictionaries({"t": st.fixed_dictionaries({"dtype": texts, "shape": st.lists(integers, max_size=2)})}),
    st.dictionaries(st.sampled_from(["i", "f", "s", "ints", "t", "g", "other"]), anything, max_size=2),
)
dtypes = st.sampled_from([*ITEM_BYTES, *sorted(OPAQUE), "int128"])
sizes = st.one_of(st.integers(1, 6), st.sampled_from([0, 12, 64, 1000, 2**31 - 1]))


def listed(least: int, most: int, longest: int) -> st.SearchStrategy[Any]:
    """Returns a strategy for an attribute of `count` integers."""
    return st.fixed_dictionaries({"ints": st.lists(st.integers(least, most), min_size=1, max_size=longest)})


numbers = st.fixed_dictionaries({"i": st.one_of(st.integers(-2, 6), st.sampled_from([0, 1, 2, 2**31 - 1]))})
ATTRIBUTES: dict[str, st.SearchStrategy[Any]] = {
    **dict.fromkeys(("kernel_shape", "strides", "dilations"), listed(1, 2**31 - 1, 3)),
    "pads": listed(-2, 2**31 - 1, 6),
    "axes": listed(-5, 5, 3),
    "perm": st.fixed_dictionaries({"ints": st.integers(0, 5).flatmap(lambda n: st.permutations(list(range(n))))}),
    **dict.fromkeys(
        ("group", "axis", "size", "transA", "transB", "transBatchA", "num_heads", "q_num_heads", "N", "K"), numbers
    ),
    **dict.fromkeys(("mode", "activation", "equation"), st.fixed_dictionaries({"s": texts})),
}


def rarely(draw: st.DrawFn) -> bool:
    """Strategy that is true once in thirty times."""
    return draw(st.integers(0, 29)) == 29


@st.composite
def values(draw: st.DrawFn, role: str) -> Value:
    """Strategy for a value of a sequence, nearly always a valid one."""
    if rarely(draw):
        shape = draw(st.lists(integers, max_size=5))
        data = draw(st.one_of(st.none(), st.lists(anything, max_size=3).map(tuple)))
        dtype = draw(dtypes)
        return Value(TensorType(dtype, tuple(shape), draw(st.booleans())), role, data)
    if role == "constant" and draw(st.booleans()):
        held = draw(st.lists(st.integers(-6, 6), max_size=4))
        return Value(TensorType("int64", (len(held),)), role, tuple(held))
    dtype = draw(st.sampled_from(["float32", "uint8", "int64", "int4", "string", "sequence"]))
    shape = draw(st.lists(st.integers(1, 6), max_size=5))
    if shape and rarely(draw):
        shape[draw(st.integers(0, len(shape) - 1))] = draw(sizes)
    return Value(TensorType(dtype, tuple(shape)), role)


@st.composite
def attributes(draw: st.DrawFn) -> dict[str, Any]:
    """Strategy for attributes of any layer, mostly of the right type."""
    names = draw(st.lists(st.sampled_from([*ATTRIBUTES, "alpha", "body"]), max_size=3))
    return {
        name: draw(contents if name not in ATTRIBUTES or rarely(draw) else ATTRIBUTES[name])
        for name in dict.fromkeys(names)
    }


@st.composite
def sequences(draw: st.DrawFn) -> LayerSequence:
    """Strategy for sequences with correctly numbered values and otherwise arbitrary layers."""
    found: list[Value] = []
    layers, left = [], []
    for _ in range(draw(st.integers(1, 2))):
        operator = draw(st.sampled_from(OPERATORS))
        inputs = []
        for _ in range(draw(st.integers(0, 7))):
            choice = draw(st.integers(-1, len(found)))
            if choice == len(found):
                found.append(draw(values(draw(st.sampled_from(["input", "constant"])))))
            inputs.append(choice)
        outputs = [-1] * draw(st.integers(0, 1)) + [len(found)] + [-1] * draw(st.integers(0, 1))
        left.append(len(found))
        found.append(draw(values("internal")))
        domain = draw(st.sampled_from(["nobody's", "com.microsoft", "com.microsoft.nchwc", ""]))
        since = draw(st.sampled_from([1, 6, 11, 13, 18, 21, 24, 10_000]))
        layers.append(SequenceLayer(operator, domain, since, draw(attributes()), tuple(inputs), tuple(outputs)))
    return LayerSequence(tuple(layers), tuple(found), tuple(left))


Shapes = list[tuple[int, ...]]

# A valid layer of each operator that has a pricing rule of its own: shapes of its inputs and of its output.
_ATTENTION: tuple[Shapes, tuple[int, ...], dict[str, Any]] = (
    [(2, 5, 12), (2, 7, 12), (2, 7, 12)], (2, 5, 12), {"num_heads": {"i": 4}},
)  # fmt: skip
_CONV: tuple[Shapes, tuple[int, ...], dict[str, Any]] = (
    [(1, 8, 9, 9), (16, 4, 3, 3), (16,)], (1, 16, 7, 7),
    {"kernel_shape": {"ints": [3, 3]}, "strides": {"ints": [1, 1]}, "pads": {"ints": [0] * 4}, "group": {"i": 2}},
)  # fmt: skip
_GEMM: tuple[Shapes, tuple[int, ...], dict[str, Any]] = ([(2, 3), (3, 4)], (2, 4), {"transA": {"i": 0}})
_MATMUL: tuple[Shapes, tuple[int, ...], dict[str, Any]] = ([(2, 5, 3), (2, 3, 4)], (2, 5, 4), {"transA": {"i": 0}})
_POOL: tuple[Shapes, tuple[int, ...], dict[str, Any]] = (
    [(1, 8, 9, 9)],
    (1, 8, 4, 4),
    {"kernel_shape": {"ints": [2, 3]}},
)
_RECURRENT: tuple[Shapes, tuple[int, ...], dict[str, Any]] = ([(6, 1, 5), (1, 12, 5), (1, 12, 3)], (6, 1, 1, 3), {})
SOUND: dict[str, tuple[Shapes, tuple[int, ...], dict[str, Any]]] = {
    **dict.fromkeys(("Conv", "FusedConv", "NhwcFusedConv", "ConvInteger"), _CONV),
    "QLinearConv": ([(1, 8, 9, 9), (), (), (16, 4, 3, 3), (), (), (), ()], (1, 16, 7, 7), {"group": {"i": 2}}),
    "ConvTranspose": ([(1, 8, 9, 9), (8, 4, 3, 3)], (1, 8, 11, 11), {"group": {"i": 2}}),
    **dict.fromkeys(("Gemm", "FusedGemm", "QGemm"), _GEMM),
    **dict.fromkeys(
        ("MatMul", "FusedMatMul", "MatMulInteger", "MatMulIntegerToFloat", "DynamicQuantizeMatMul"), _MATMUL
    ),
    "QLinearMatMul": ([(2, 3), (), (), (3, 4), (), (), (), ()], (2, 4), {}),
    "MatMulNBits": ([(2, 64), (32, 2, 16), (64,)], (2, 32), {"K": {"i": 64}, "N": {"i": 32}}),
    **dict.fromkeys(("LSTM", "GRU", "RNN", "DynamicQuantizeLSTM"), _RECURRENT),
    "Einsum": ([(2, 3), (3, 4)], (2, 4), {"equation": {"s": "ij,jk->ik"}}),
    **dict.fromkeys(("Attention", "MultiHeadAttention", "GroupQueryAttention"), _ATTENTION),
    **dict.fromkeys(("MaxPool", "AveragePool", "LpPool", "MaxUnpool", "QLinearAveragePool", "NhwcMaxPool"), _POOL),
    "LRN": ([(1, 8, 9, 9)], (1, 8, 9, 9), {"size": {"i": 5}}),
    "Pow": ([(2, 3), ()], (2, 3), {}),
    "DFT": ([(1, 16, 1)], (1, 16, 2), {}),
    "STFT": ([(1, 64), (), (16,)], (1, 7, 9, 2), {}),
    "Add": ([(1, 3, 4, 1), (1,)], (1, 3, 4, 1), {}),
    "Transpose": ([(2, 3, 4)], (4, 2, 3), {"perm": {"ints": [2, 0, 1]}}),
    "ReduceSum": ([(2, 3, 4)], (2,), {"axes": {"ints": [1, -1]}}),
    "Softmax": ([(2, 3)], (2, 3), {"axis": {"i": -1}}),
    "Gather": ([(9, 4), (3,)], (3, 4), {"axis": {"i": 0}}),
    "GatherND": ([(9, 4), (3, 1)], (3, 4), {}),
    "TopK": ([(2, 9), (1,)], (2, 3), {"axis": {"i": -1}}),
    **dict.fromkeys(("LinearRegressor", "TreeEnsembleRegressor", "SVMRegressor"), ([(4, 3)], (4, 1), {})),
    "EmbedLayerNormalization": ([(1, 4), (1, 4), (99, 8), (9, 8), (2, 8), (8,), (8,)], (1, 4, 8), {}),
}


@st.composite
def spoilt(draw: st.DrawFn, operators: st.SearchStrategy[str]) -> LayerSequence:
    """Strategy for valid layers with at most two random changes."""
    operator = draw(operators)
    shapes, result, given = SOUND[operator]
    found = [Value(TensorType("float32", shape), draw(st.sampled_from(["input", "constant"]))) for shape in shapes]
    found.append(Value(TensorType("float32", result), "internal"))
    inputs, held = list(range(len(shapes))), dict(given)
    for _ in range(draw(st.integers(0, 2))):
        place = draw(st.integers(0, len(shapes)))
        match draw(st.sampled_from(["type", "shape", "absent", "shorter", "attribute", "value"])):
            case "type":
                found[place] = replace(found[place], type=replace(found[place].type, dtype=draw(dtypes)))
            case "shape":
                shape = list(found[place].type.shape)
                slot = draw(st.integers(0, len(shape)))
                shape[slot : slot + draw(st.integers(0, 2))] = draw(st.lists(sizes, max_size=2))
                found[place] = replace(found[place], type=replace(found[place].type, shape=tuple(shape)))
            case "absent" if place < len(inputs):
                inputs[place] = -1
            case "shorter":
                inputs = inputs[:place]
            case "attribute":
                name = draw(st.sampled_from([*held, *held, *ATTRIBUTES]))
                held[name] = draw(st.one_of(contents, ATTRIBUTES[name]))
            case "value":
                found[place] = draw(values(found[place].role))
    # Unused values are removed, because they alone would cause a refusal.
    used = sorted({index for index in inputs if index >= 0} | {len(shapes)})
    new = {index: number for number, index in enumerate(used)} | {-1: -1}
    domain, since = draw(st.sampled_from(["", "com.microsoft", "nobody's"])), draw(st.sampled_from([1, 13, 21]))
    layer = SequenceLayer(operator, domain, since, held, tuple(new[i] for i in inputs), (new[len(shapes)],))
    return LayerSequence((layer,), tuple(found[i] for i in used), layer.outputs)


def _is_bounded(number: Any) -> bool:
    return number.bit_length() <= MOST_BITS if isinstance(number, int) else math.isfinite(number)


def assert_prices(sequence: LayerSequence) -> None:
    """Asserts that every number derived from a sequence is finite and of bounded length."""
    for layer in sequence.layers:
        work, walk = layer_work(sequence, layer), access_pattern_of(sequence, layer)
        product = work.contraction
        numbers = [
            work.multiply_flops, work.other_flops, work.scalar_calls, work.input_bytes, work.weight_bytes,
            work.output_bytes, walk.inner_run, walk.axis_size, walk.other_operand,
            *((product.batch, product.rows, product.columns, product.depth) if product else ()),
            work.copy_flops, work.row_copy_flops, work.inner_layers,
        ]  # fmt: skip
        assert all(map(_is_bounded, numbers)), numbers
        assert min(work.other_flops, work.copy_flops, work.row_copy_flops, work.undivided_flops) >= 0
    assert _is_bounded(read_bytes(sequence))
    assert _is_bounded(weight_bytes(sequence))
    assert 0 < bound_us(sequence, SYSTEM) < math.inf
    encoded = encode_all([sequence], SYSTEM)
    assert np.isfinite(encoded.features).all()
    assert LayerSequence.from_text(sequence.text).signature == sequence.signature


@given(st.one_of(sequences(), spoilt(st.sampled_from(sorted(SOUND)))))
def test_a_layer_is_refused_or_priced(sequence: LayerSequence) -> None:
    """A layer is refused or priced, whatever its operator, inputs, types and attributes."""
    try:
        check_sequence(sequence)
    except ModelError:
        return
    assert_prices(sequence)


_HUGE = GraphProto(initializer=[TensorProto(name="w", dims=[2**62] * 6, data_type=TensorProto.FLOAT)])
_BODY = {"body": {"g": base64.b64encode(_HUGE.SerializeToString()).decode()}}


@pytest.mark.parametrize(
    ("operator", "shape", "held"),
    [
        ("NoOperator", (2, 3), {"transB": {"f": 1.0}}),
        ("Softmax", (2, 3), {"axis": {"f": 1.0}}),
        ("Gather", (2, 3), {"axis": {"f": 1.0}}),
        ("TopK", (2, 3), {"axis": {"f": 1.0}}),
        ("LinearRegressor", (), {}),
        ("Loop", (2, 3), _BODY),
    ],
)
def test_layers_that_were_once_accepted_and_not_priced(
    operator: str, shape: tuple[int, ...], held: dict[str, Any]
) -> None:
    """An attribute of another kind, an input without axes and a body with a huge tensor stop no service."""
    kind = TensorType("float32", shape)
    layer = SequenceLayer(operator, "nobody's", 13, held, (0, 0), (1,))
    sequence = LayerSequence((layer,), (Value(kind, "input"), Value(kind, "internal")), (1,))
    try:
        check_sequence(sequence)
    except ModelError:
        return
    assert_prices(sequence)


@pytest.mark.parametrize("place", [0, 1, -1])
@pytest.mark.parametrize("operator", SOUND)
def test_a_layer_without_elements_is_refused_or_priced(operator: str, place: int) -> None:
    """A batch, an axis or a result of size 0 gives no negative time."""
    shapes, result, held = SOUND[operator]
    emptied = [(*shape[:place], 0, *shape[place:][1:]) if len(shape) > 1 else shape for shape in (*shapes, result)]
    found = [Value(TensorType("float32", shape), "input") for shape in emptied[:-1]]
    found.append(Value(TensorType("float32", emptied[-1]), "internal"))
    layer = SequenceLayer(operator, "com.microsoft", 1, held, tuple(range(len(shapes))), (len(shapes),))
    sequence = LayerSequence((layer,), tuple(found), layer.outputs)
    try:
        check_sequence(sequence)
    except ModelError:
        return
    assert_prices(sequence)


@pytest.mark.parametrize("operator", SOUND)
def test_a_sound_layer_is_accepted(operator: str) -> None:
    """The valid layers on which the property test is based are accepted unchanged."""
    shapes, result, held = SOUND[operator]
    found = [Value(TensorType("float32", shape), "input") for shape in shapes]
    found.append(Value(TensorType("float32", result), "internal"))
    layer = SequenceLayer(operator, "com.microsoft", 1, held, tuple(range(len(shapes))), (len(shapes),))
    sequence = LayerSequence((layer,), tuple(found), layer.outputs)
    check_sequence(sequence)
    assert_prices(sequence)
