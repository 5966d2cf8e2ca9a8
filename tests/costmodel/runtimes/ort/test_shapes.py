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


# What the runtime pads these channels to, with blocks of 8 and of 16.
PADDED = {24, 32}


def _sizes(graph: LayerGraph) -> set[int]:
    return {size for kind in graph.types.values() for size in kind.shape}


def test_a_filter_that_is_padded_does_not_say_how_many_channels_there_are(
    parse: Parse, lower: Lower, run_isolated: Callable[..., None]
) -> None:
    """Where ONNX does not know what a convolution reads, its channels are those of the model, not of whole blocks."""
    text = """(float[1,16,12,12] x) => (float y)
        { g = com.microsoft.Gelu(x) a = Conv<kernel_shape = [3, 3]>(g, v) b = Conv<kernel_shape = [3, 3]>(a, w)
          m = ReduceMean<axes = [2, 3]>(b) y = Mul(b, m) }"""
    weights = {"v": (CHANNELS, 16, 3, 3), "w": (CHANNELS, CHANNELS, 3, 3)}
    graph = lower(parse(text, weights=weights, domains=("com.microsoft",)))
    assert _sizes(graph) & {CHANNELS, *PADDED} == {CHANNELS}
    run_isolated(graph)


@pytest.mark.parametrize("known", [True, False])
def test_channels_last_as_tensorflow_exports_them(
    known: bool, parse: Parse, lower: Lower, run_isolated: Callable[..., None]
) -> None:
    """The runtime moves transpositions over layers and renames what they make; channels are still the model's.

    That holds also where ONNX does not know the shapes.
    """
    text = f"""(float[1,12,12,16] x0) => (float y)
        {{ x = {"Neg" if known else "com.microsoft.Gelu"}(x0)
          t = Transpose<perm = [0, 3, 1, 2]>(x) a = Conv<kernel_shape = [3, 3]>(t, v)
          b = Transpose<perm = [0, 2, 3, 1]>(a) r = Relu(b) u = Transpose<perm = [0, 3, 1, 2]>(r)
          c = Conv<kernel_shape = [3, 3]>(u, w) d = Transpose<perm = [0, 2, 3, 1]>(c) s = Relu(d)
          m = ReduceMean<axes = [1, 2]>(s) y = Mul(s, m) }}"""
    weights = {"v": (CHANNELS, 16, 3, 3), "w": (CHANNELS, CHANNELS, 3, 3)}
    model = parse(text, weights=weights, domains=("com.microsoft",))
    for number, node in enumerate(model.graph.node):
        node.name = f"layer{number}"
    graph = lower(model)
    assert _sizes(graph) & {CHANNELS, *PADDED} == {CHANNELS}
    run_isolated(graph)


def test_a_loop_that_counts_by_int32_runs_alone(parse: Parse, lower: Lower, run_isolated: Callable[..., None]) -> None:
    """TensorFlow's loops end by a condition on a counter: where it starts, its step and its end belong to the layer."""
    text = """(float[6,4] x) => (float[6,4] all)
        { zero = Constant<value = int32 {0}>() end = Constant<value = int32 {6}>() c = Constant<value = bool {1}>()
          n, all = Loop(, c, zero) <body = b (int64 i, bool d, int32 k) => (bool e, int32 m, float[4] o)
            { one = Constant<value = int32 {1}>() m = Add(k, one) e = Less(m, end)
              o = Gather<axis = 0>(x, k) }> }"""
    graph = lower(parse(text))
    (loop,) = (layer for layer in graph.layers if layer.op_type == "Loop")
    counters = [name for name in loop.inputs if name and graph.types[name].dtype == "int32"]
    assert [graph.constants[name] for name in counters] == [(0,), (6,)]
    run_isolated(graph)


def test_blocks_are_in_single_precision(parse: Parse, lower: Lower, run_isolated: Callable[..., None]) -> None:
    """The CPU computes a model in half precision in single precision, also where layers are joined between blocks."""
    ones = ",".join(["1"] * (16 * 16))
    model = parse(
        f"""(float16[1,16,8,8] x) => (float16 y)
        <float16[16,16,1,1] w = {{{ones}}}, float16[16,32,1,1] v = {{{ones},{ones}}}>
        {{ a = Conv(x, w) b = Relu(a) c = Conv(b, w) d = Concat<axis = 1>(b, c) e = Conv(d, v) y = Relu(e) }}"""
    )
    graph = lower(model)
    blocked = {name: kind for name, kind in graph.types.items() if kind.blocked}
    assert blocked
    assert {kind.dtype for kind in blocked.values()} == {"float32"}
    run_isolated(graph, 1)


def test_arguments_that_are_left_out_are_empty(parse: Parse, lower: Lower, run_isolated: Callable[..., None]) -> None:
    """PaddlePaddle gives a Resize to sizes an empty tensor of scales."""
    run_isolated(
        lower(
            parse(
                """(float[1,4,5,5] x) => (float y) <float[0] none = {}, int64[4] sizes = {1, 4, 9, 9}>
                { y = Resize<mode = "nearest">(x, none, none, sizes) }"""
            )
        ),
        1,
    )


def test_a_loop_that_ends_at_a_computed_number_runs_alone(
    parse: Parse, lower: Lower, run_isolated: Callable[..., None]
) -> None:
    """The number of steps may be a shape, of which nothing is known but what the loop collects."""
    model = parse(
        """(float[6,1,4] x, int64 from) => (float y) <int32 zero = {0}, float[1,4] h = {0, 0, 0, 0}>
        { go = Constant<value = bool {1}>() s = Shape<end = 1>(x) p = Sub(s, from) q = Squeeze(p)
          end = Cast<to = 6>(q) n, z, f, y = Loop (, go, zero, h, end)
          <body = g (int64 number, bool on, int32 k, float[1,4] t, int32 e)
                  => (bool more, int32 m, float[1,4] u, int32 g, float[1,4] w)
             { one = Constant<value = int32 {1}>() m = Add(k, one) more = Less(m, e)
               i = Gather<axis = 0>(x, k) a = Add(t, i) u = Tanh(a) g = Identity(e) w = Identity(u) }> }"""
    )
    run_isolated(lower(model), 1)
