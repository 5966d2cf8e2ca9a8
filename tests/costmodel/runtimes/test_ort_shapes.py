"""Types of values that ONNX's own inference knows nothing of."""

from collections.abc import Callable

import pytest
from onnx import ModelProto

from costmodel.blocked import BLOCKED_DOMAIN
from costmodel.decomposition import decompose, whole_model
from costmodel.graph import LayerGraph
from costmodel.runtimes.ort import OnnxRuntime
from costmodel.sequence import LayerSequence

Lower = Callable[..., LayerGraph]
Parse = Callable[..., ModelProto]

# The activation of EfficientNet and YOLO, which ONNX Runtime fuses and leaves between its blocked convolutions.
SWISH = """(float[1,8,12,12] x) => (float y)
{ a = Conv<kernel_shape = [3, 3]>(x, v) s = Sigmoid(a) m = Mul(a, s) y = Conv<kernel_shape = [3, 3]>(m, w) }"""
# More channels than a block has, and no whole number of blocks.
CHANNELS = 20


@pytest.fixture
def graph(parse: Parse, lower: Lower) -> LayerGraph:
    """Its layers."""
    return lower(parse(SWISH, weights={"v": (CHANNELS, 8, 3, 3), "w": (24, CHANNELS, 3, 3)}))


def test_an_activation_between_blocked_layers_keeps_its_type(graph: LayerGraph, runtime: OnnxRuntime) -> None:
    """Logical shape and blocked layout: it reads what a blocked convolution made, and another one reads it."""
    if runtime.block == 1:
        pytest.skip("this host has no blocked layout")
    (activation,) = (layer for layer in graph.layers if layer.op_type == "QuickGelu")
    assert [layer.op_type for layer in graph.layers if layer.domain == BLOCKED_DOMAIN].count("Conv") == 2
    before, after = graph.types[activation.inputs[0]], graph.types[activation.outputs[0]]
    assert before == after
    assert (after.shape, after.blocked) == ((1, CHANNELS, 10, 10), True)
    producers = {name: layer for layer in graph.layers for name in layer.outputs}
    assert producers[activation.inputs[0]].domain == BLOCKED_DOMAIN
    assert any(activation.outputs[0] in layer.inputs and layer.domain == BLOCKED_DOMAIN for layer in graph.layers)


def test_it_runs_in_pieces(graph: LayerGraph, run_bricks: Callable[..., None]) -> None:
    """By itself, with either neighbour, and with both."""
    run_bricks(graph, 1, 2, 3, 5)
    pieces = [piece.sequence for piece in decompose("m", graph).pieces]
    assert "QuickGelu" in {sequence.kind for sequence in pieces}
    for sequence in (*pieces, whole_model(graph)):
        assert LayerSequence.from_text(sequence.text) == sequence


@pytest.mark.parametrize("operator", ["QuickGelu", "Gelu", "FastGelu"])
def test_activations_of_the_runtimes_own(operator: str, parse: Parse, lower: Lower) -> None:
    """In plain layout as well: what comes out is as what went in."""
    text = f"(float[3,N] x) => (float[3,N] y) {{ a = com.microsoft.{operator}(x) y = Neg(a) }}"
    graph = lower(parse(text, domains=("com.microsoft",)), "none", shapes={"x": (3, 5)})
    (activation,) = (layer for layer in graph.layers if layer.op_type == operator)
    made = graph.types[activation.outputs[0]]
    assert (made.shape, made.dtype) == ((3, 5), "float32")
