"""Types of values that ONNX's own inference does not know."""

from collections.abc import Callable

import pytest
from onnx import ModelProto

from costmodel.ir.graph import LayerGraph
from costmodel.ir.nchwc import BLOCKED_DOMAIN
from costmodel.ir.sequence import LayerSequence
from costmodel.partition.decomposition import decompose, whole_model
from costmodel.runtimes.ort.adapter import OnnxRuntime

Lower = Callable[..., LayerGraph]
Parse = Callable[..., ModelProto]

# The SiLU of EfficientNet and YOLO, which ONNX Runtime fuses to one layer between its blocked convolutions.
SWISH = """(float[1,8,12,12] x) => (float y)
{ a = Conv<kernel_shape = [3, 3]>(x, v) s = Sigmoid(a) m = Mul(a, s) y = Conv<kernel_shape = [3, 3]>(m, w) }"""
# More channels than one block, and not a multiple of the block size.
CHANNELS = 20


@pytest.fixture
def graph(parse: Parse, lower: Lower) -> LayerGraph:
    """The lowered model."""
    return lower(parse(SWISH, weights={"v": (CHANNELS, 8, 3, 3), "w": (24, CHANNELS, 3, 3)}))


def test_an_activation_between_blocked_layers_keeps_its_type(graph: LayerGraph, runtime: OnnxRuntime) -> None:
    """The activation between blocked convolutions has their logical shape and blocked layout."""
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


def test_its_sequences_run_in_isolation(graph: LayerGraph, run_isolated: Callable[..., None]) -> None:
    """The activation runs alone, with either neighbour, and with both."""
    run_isolated(graph, 1, 2, 3, 5)
    segments = [segment.sequence for segment in decompose("m", graph).segments]
    assert "QuickGelu" in {sequence.kind for sequence in segments}
    for sequence in (*segments, whole_model(graph)):
        assert LayerSequence.from_text(sequence.text) == sequence


@pytest.mark.parametrize("operator", ["QuickGelu", "Gelu", "FastGelu"])
def test_activations_of_the_runtimes_own(operator: str, parse: Parse, lower: Lower) -> None:
    """The runtime's own activations in plain layout have outputs of their input's type."""
    text = f"(float[3,N] x) => (float[3,N] y) {{ a = com.microsoft.{operator}(x) y = Neg(a) }}"
    graph = lower(parse(text, domains=("com.microsoft",)), "none", shapes={"x": (3, 5)})
    (activation,) = (layer for layer in graph.layers if layer.op_type == operator)
    made = graph.types[activation.outputs[0]]
    assert (made.shape, made.dtype) == ((3, 5), "float32")
