"""Work in the bodies of control flow."""

import base64
import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import onnx.parser
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import NodeProto, helper

from costmodel.errors import ModelError
from costmodel.features.analytical_bound import layer_bound_us
from costmodel.features.work import Work, layer_work
from costmodel.ir.attributes import encode_attribute
from costmodel.ir.graph import LayerGraph, TensorType
from costmodel.ir.sequence import LayerSequence, SequenceLayer, Value, build_sequence
from costmodel.serving.validation.sequences import check_sequence
from tests.synthetic import SYSTEM

_HEADER = '<ir_version: 8, opset_import: ["" : 18]> '


@pytest.fixture
def work_of(lower: Callable[..., LayerGraph]) -> Callable[[str], Work]:
    """Function that lowers a model, written as ONNX text, and returns the work of its control flow layer."""

    def work_of(text: str) -> Work:
        graph = lower(onnx.parser.parse_model(_HEADER + text))
        layer = next(layer for layer in graph.layers if layer.op_type in ("Scan", "Loop", "If"))
        sequence = build_sequence([layer], graph.types, graph.constants, layer.outputs)
        return layer_work(sequence, sequence.layers[0])

    return work_of


def _scan(steps: int, size: int) -> str:
    state = f"float[1,{size}]"
    return f"""g ({state} h, float[{steps},1,{size}] x, float[{size},{size}] w)
        => ({state} y, float[{steps},1,{size}] z)
        {{ y, z = Scan <num_scan_inputs = 1, body = b ({state} s, {state} i) => ({state} t, {state} u)
            {{ m = MatMul(s, w) a = Add(m, i) t = Tanh(a) u = Identity(t) }}> (h, x) }}"""


def test_a_scan_runs_its_body_for_each_element(work_of: Callable[[str], Work]) -> None:
    """Twice the steps are twice the work, and twice the layers, each of which has a cost of its own."""
    short, long = work_of(_scan(10, 32)), work_of(_scan(20, 32))
    assert long.multiply_flops == pytest.approx(2 * short.multiply_flops) == pytest.approx(20 * 2 * 32 * 32)
    assert long.inner_layers == 2 * short.inner_layers >= 20
    assert layer_bound_us(long, SYSTEM) > layer_bound_us(short, SYSTEM) + 9 * SYSTEM.capabilities["layer_us"]


def test_products_in_a_body_grow_with_captured_weights(work_of: Callable[[str], Work]) -> None:
    """The matrix that the body reads from outside decides the work of its product."""
    assert work_of(_scan(10, 64)).multiply_flops == pytest.approx(4 * work_of(_scan(10, 32)).multiply_flops)


def test_convolutions_in_a_body_are_work(work_of: Callable[[str], Work]) -> None:
    """A recurrent convolution of channels last, as TensorFlow has them, costs its products in each step."""
    text = """g (float[1,8,8,4] h, float[5,1,8,8,4] x, float[3,3,4,16] w) => (float[1,8,8,4] y)
        { c = Constant<value = bool {1}>() n = Constant<value = int64 {5}>()
          y = Loop (n, c, h) <body = b (int64 i, bool d, float[1,8,8,4] s) => (bool e, float[1,8,8,4] t)
            { e = Identity(d) step = Gather <axis = 0> (x, i) in = Transpose <perm = [0, 3, 1, 2]> (step)
              f = Transpose <perm = [3, 2, 0, 1]> (w) f0, f1, f2, f3 = Split <axis = 0, num_outputs = 4> (f)
              k = Conv <pads = [1, 1, 1, 1]> (in, f0) o = Transpose <perm = [0, 2, 3, 1]> (k) t = Add(s, o) }> }"""
    assert work_of(text).multiply_flops == pytest.approx(5 * 2 * (8 * 8 * 4) * (4 * 3 * 3))


@given(
    st.lists(st.lists(st.integers(-2, 2**62), max_size=4), min_size=3, max_size=3),
    st.sampled_from(("MatMul", "Add", "ReduceMax", "Odd", "Conv", "Transpose", "Split", "Gather")),
)
def test_a_body_of_any_shapes_is_described(shapes: list[list[int]], op_type: str) -> None:
    """Sizes that are negative, do not fit together or are absurd are no error: a client may send them."""
    read, other, made = (
        helper.make_tensor_value_info(name, 1, shape) for name, shape in zip("abc", shapes, strict=True)
    )
    body = helper.make_graph([helper.make_node(op_type, ["a", "b", "?"], ["c", ""])], "g", [read, other], [made])
    kind = TensorType("float32", (3, 4))
    values = (Value(kind, "input", None), Value(kind, "internal", None))
    attributes = {"body": encode_attribute(helper.make_attribute("body", body)), "num_scan_inputs": {"i": 1}}
    layer = SequenceLayer("Scan", "", 18, attributes, (0,), (1,))
    work = layer_work(LayerSequence((layer,), values, (1,)), layer)
    assert work.inner_layers == 6  # a layer of a body counts as two empty ones
    assert 0 <= work.flops < math.inf


def _scan_of(nodes: list[NodeProto], shape: Sequence[int], steps: int) -> tuple[LayerSequence, SequenceLayer]:
    """Returns a Scan whose body has these nodes, the first of which reads "a", and the last of which makes "c"."""
    ports = [helper.make_tensor_value_info(name, 1, shape) for name in "ac"]
    body = helper.make_graph(nodes, "g", ports[:1], ports[1:])
    kinds = (TensorType("float32", (steps, 4)), TensorType("float32", (steps, 4)))
    values = (Value(kinds[0], "input", None), Value(kinds[1], "internal", None))
    attributes = {"body": encode_attribute(helper.make_attribute("body", body)), "num_scan_inputs": {"i": 1}}
    layer = SequenceLayer("Scan", "", 18, attributes, (0,), (1,))
    return LayerSequence((layer,), values, (1,)), layer


def test_sizes_in_a_body_do_not_grow_without_limit() -> None:
    """Convolutions and transpositions in turn could multiply sizes until no number holds them."""
    ones, filters = [1] * 32, [2**31 - 1, *[2] * 31]
    weights = helper.make_tensor_value_info("w", 1, filters)
    turned = [*range(1, 32), 0]
    nodes, last = [], "a"
    for step in range(40):
        nodes.append(helper.make_node("Conv", [last, "w"], [f"k{step}"]))
        nodes.append(helper.make_node("Transpose", [f"k{step}"], [f"t{step}"], perm=turned))
        last = f"t{step}"
    sequence, layer = _scan_of([*nodes, helper.make_node("Identity", [last], ["c"])], ones, 2**31 - 1)
    body = onnx.GraphProto.FromString(base64.b64decode(layer.attributes["body"]["g"]))
    body.input.append(weights)
    layer = replace(
        layer, attributes={**layer.attributes, "body": {"g": base64.b64encode(body.SerializeToString()).decode()}}
    )
    assert math.isfinite(layer_work(replace(sequence, layers=(layer,)), layer).flops)


def test_a_split_into_nothing_is_described() -> None:
    """A client may send a node without outputs."""
    sequence, layer = _scan_of([helper.make_node("Split", ["a"], []), helper.make_node("Neg", ["a"], ["c"])], [4], 3)
    assert math.isfinite(layer_work(sequence, layer).flops)


def test_a_convolution_of_unknown_data_is_not_its_filter() -> None:
    """What is not known to a convolution is not taken from its next operand."""
    sequence, layer = _scan_of([helper.make_node("Conv", ["?", "a", "b"], ["c"])], [64, 64, 3, 3], 1)
    assert layer_work(sequence, layer).multiply_flops == 0


@given(st.integers(-(2**63), 2**63 - 1), st.none() | st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=3))
def test_a_scan_of_any_number_of_inputs_along_any_axes_is_described(scanned: int, axes: list[int] | None) -> None:
    """A client may write any number there; no memory is taken for it."""
    sequence, layer = _scan_of([helper.make_node("Neg", ["a"], ["c"])], [4], 3)
    more = {"num_scan_inputs": {"i": scanned}} | ({} if axes is None else {"scan_input_axes": {"ints": axes}})
    assert math.isfinite(layer_work(sequence, replace(layer, attributes={**layer.attributes, **more})).flops)


@pytest.mark.parametrize("op_type", ["Scan", "Loop", "If"])
def test_a_subgraph_that_is_no_graph_is_refused(op_type: str) -> None:
    """A client may send any base64: it gets a sentence, and nothing reads the subgraph."""
    kind = TensorType("float32", (3, 4))
    values = (Value(kind, "input", None), Value(kind, "internal", None))
    attributes = {"body": {"g": "AAAA"}, "then_branch": {"g": "AAAA"}, "else_branch": {"g": "AAAA"}}
    wanted = {"Scan": {"body"}, "Loop": {"body"}, "If": {"then_branch", "else_branch"}}[op_type]
    given = {name: value for name, value in attributes.items() if name in wanted}
    given |= {"num_scan_inputs": {"i": 1}} if op_type == "Scan" else {}
    layer = SequenceLayer(op_type, "", 18, given, (0,), (1,))
    with pytest.raises(ModelError, match="has a subgraph that is no ONNX graph"):
        check_sequence(LayerSequence((layer,), values, (1,)))


def _loop(limit: str) -> str:
    return f"""g (float[64] x, int64 n) => (float[64] y)
        {{ k = Constant<value = int64 {{{limit}}}>() c = Constant<value = bool {{1}}>()
           y = Loop ({"k" if limit != "0" else "n"}, c, x)
               <body = b (int64 i, bool d, float[64] s) => (bool e, float[64] t)
                       {{ e = Identity(d) t = Tanh(s) }}> }}"""


def test_a_loop_runs_as_often_as_its_limit_says(work_of: Callable[[str], Work]) -> None:
    """A limit that is a constant counts; one that only the caller knows counts as one run."""
    assert work_of(_loop("30")).inner_layers == 30 * work_of(_loop("0")).inner_layers > 0


@pytest.mark.parametrize(("collects", "runs"), [(False, 1), (True, 6)])
def test_a_loop_that_ends_by_its_condition_has_no_limit(
    work_of: Callable[[str], Work], collects: bool, runs: int
) -> None:
    """Exporters write the largest integer as the limit; what the loop collects has an element for each run."""
    text = f"""g (float[64] x) => (float[64] y{", float all" if collects else ""})
        {{ k = Constant<value = int64 {{9223372036854775807}}>() c = Constant<value = bool {{1}}>()
           y{", all" if collects else ""} = Loop (k, c, x)
               <body = b (int64 i, bool d, float[64] s) => (bool e, float[64] t{", float[64] u" if collects else ""})
                       {{ five = Constant<value = int64 {{5}}>() e = Less(i, five) t = Tanh(s)
                          {"u = Identity(t)" if collects else ""} }}> }}"""
    # The constant is folded; each layer counts as two empty ones.
    assert work_of(text).inner_layers == runs * 2 * (3 if collects else 2)


def test_the_larger_branch_counts(work_of: Callable[[str], Work]) -> None:
    """Which branch of an If runs is not known."""
    text = """g (bool c, float[1,64] x, float[64,64] w) => (float[1,64] y)
        { y = If (c) <then_branch = t () => (float[1,64] a) { a = MatMul(x, w) },
                      else_branch = e () => (float[1,64] b) { b = Relu(x) }> }"""
    assert work_of(text).multiply_flops == pytest.approx(2 * 64 * 64)


def test_a_body_reads_states_of_the_shapes_that_its_loop_is_given(work_of: Callable[[str], Work]) -> None:
    """Exporters leave the shapes of a body's inputs out; weights may be among the states."""
    text = """g (float[1,40] x, float[40,160] w) => (float y, float z)
        { k = Constant<value = int64 {9}>() c = Constant<value = bool {1}>() y, z = Loop (k, c, x, w)
            <body = b (int64 i, bool d, float[n,m] s, float[o,p] v) => (bool e, float[n,m] t, float[o,p] u)
                    { e = Identity(d) q = MatMul(s, v) a = ReduceMax<keepdims = 1>(q) t = Add(s, a)
                      u = Identity(v) }> }"""
    assert work_of(text).multiply_flops == pytest.approx(9 * 2 * 40 * 160)


def test_a_product_in_a_body_reads_its_matrix_in_each_run(work_of: Callable[[str], Work]) -> None:
    """For a single row, reading the matrix takes longer than multiplying; windows are copied, too."""

    def looped(node: str, weights: str, state: str) -> Work:
        return work_of(f"""g (float{state} x, float{weights} w) => (float{state} y)
            {{ k = Constant<value = int64 {{10}}>() c = Constant<value = bool {{1}}>()
               y = Loop (k, c, x)
                   <body = b (int64 i, bool d, float{state} s) => (bool e, float{state} t)
                           {{ e = Identity(d) t = {node} }}> }}""")

    product, sum_ = looped("MatMul(s, w)", "[64,64]", "[1,64]"), looped("Add(s, w)", "[64]", "[1,64]")
    assert product.multiply_flops == 10 * 2 * 64 * 64
    assert product.other_flops - sum_.other_flops > 10 * 64 * 64
    same = "pads = [1, 1, 1, 1]"
    wide, pointwise, grouped = (
        looped(f"Conv<{attributes}>(s, w)", weights, "[1,8,9,9]")
        for attributes, weights in (
            (same, "[8,8,3,3]"),
            ("group = 1", "[8,8,1,1]"),
            (f"{same}, group = 8", "[8,1,3,3]"),
        )
    )
    assert wide.other_flops == grouped.other_flops > pointwise.other_flops
