"""Work in the bodies of control flow."""

from collections.abc import Callable

import onnx.parser
import pytest

from costmodel.features.analytical_bound import layer_bound_us
from costmodel.features.work import Work, layer_work
from costmodel.ir.graph import LayerGraph
from costmodel.ir.sequence import build_sequence
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


def _loop(limit: str) -> str:
    return f"""g (float[64] x, int64 n) => (float[64] y)
        {{ k = Constant<value = int64 {{{limit}}}>() c = Constant<value = bool {{1}}>()
           y = Loop ({"k" if limit != "0" else "n"}, c, x)
               <body = b (int64 i, bool d, float[64] s) => (bool e, float[64] t)
                       {{ e = Identity(d) t = Tanh(s) }}> }}"""


def test_a_loop_runs_as_often_as_its_limit_says(work_of: Callable[[str], Work]) -> None:
    """A limit that is a constant counts; one that only the caller knows counts as one run."""
    assert work_of(_loop("30")).inner_layers == 30 * work_of(_loop("0")).inner_layers > 0


def test_the_larger_branch_counts(work_of: Callable[[str], Work]) -> None:
    """Which branch of an If runs is not known."""
    text = """g (bool c, float[1,64] x, float[64,64] w) => (float[1,64] y)
        { y = If (c) <then_branch = t () => (float[1,64] a) { a = MatMul(x, w) },
                      else_branch = e () => (float[1,64] b) { b = Relu(x) }> }"""
    assert work_of(text).multiply_flops == pytest.approx(2 * 64 * 64)
