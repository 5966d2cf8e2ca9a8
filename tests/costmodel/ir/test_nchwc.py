"""Blocked layouts (NCHWc): the portable form, and the form for a host's block size."""

from collections import Counter
from collections.abc import Callable

import numpy as np
import onnxruntime as ort
import pytest
from onnx import ModelProto, numpy_helper

from costmodel.errors import MeasurementError
from costmodel.ir.graph import LayerGraph
from costmodel.ir.nchwc import BLOCKED_DOMAIN, NotMaterialisableError, is_blocked, materialise, padded, portable
from costmodel.ir.sequence import LayerSequence, input_indices, weight_indices
from costmodel.partition.decomposition import decompose, whole_model
from costmodel.runtimes.base import RuntimeSettings
from costmodel.runtimes.ort.adapter import OnnxRuntime
from costmodel.synthetic.network import build_network, value_name
from costmodel.synthetic.values import synthetic_value

Lower = Callable[..., LayerGraph]
Parse = Callable[..., ModelProto]

BLOCKS = (8, 16)


def run(sequence: LayerSequence, level: str = "ORT_DISABLE_ALL") -> list[np.ndarray]:
    """Returns the outputs of a sequence on its synthetic weights and inputs."""
    weights = [numpy_helper.from_array(synthetic_value(sequence, i), value_name(i)) for i in weight_indices(sequence)]
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
    network = build_network(sequence, weights=weights).SerializeToString()
    session = ort.InferenceSession(network, options, providers=["CPUExecutionProvider"])
    return session.run(None, {value_name(i): synthetic_value(sequence, i) for i in input_indices(sequence)})


@pytest.fixture(scope="module")
def blocked_sequences(light_models: dict[str, object], lowered_light: Lower) -> dict[str, LayerSequence]:
    """Every blocked sequence of the light models at G = 1 and 5, by signature."""
    cuts = (decompose(name, lowered_light(name), granularity) for name in light_models for granularity in (1, 5))
    found = {s: sequence for cut in cuts for s, sequence in cut.unique.items() if is_blocked(sequence)}
    assert found
    return found


def small(sequence: LayerSequence) -> bool:
    """Returns whether a sequence runs quickly and with little memory."""
    return sum(value.type.nbytes for value in sequence.values) < 4_000_000


def test_every_portable_sequence_is_plain_and_runs(blocked_sequences: dict[str, LayerSequence]) -> None:
    """The portable form has no blocked layer or value and runs on any ONNX Runtime."""
    for sequence in blocked_sequences.values():
        plain = portable(sequence)
        assert not is_blocked(plain)
        assert BLOCKED_DOMAIN not in plain.text
        assert len(plain.layers) == len(sequence.layers)
        if small(sequence):
            shapes = [value.shape for value in run(plain)]
            assert shapes == [plain.values[i].type.shape for i in plain.outputs]


@pytest.mark.parametrize("block", BLOCKS)
def test_materialised_shapes_are_whole_blocks(block: int, blocked_sequences: dict[str, LayerSequence]) -> None:
    """Materialising pads the channels of blocked tensors to whole blocks and changes nothing else."""
    for sequence in blocked_sequences.values():
        try:
            local = materialise(sequence, block)
        except NotMaterialisableError:
            assert "Concat" in sequence.kind
            continue
        for before, after in zip(sequence.values, local.values, strict=False):
            if before.type.blocked:
                (batch, channels, *rest), after_shape = before.type.shape, after.type.shape
                assert after_shape == (batch, padded(channels, block), *rest)
            elif before.role != "constant":
                assert after == before
        added = Counter(layer.op_type for layer in local.layers) - Counter(layer.op_type for layer in sequence.layers)
        assert added.keys() <= {"ReorderInput"}


def test_this_host_runs_what_is_materialised_for_it(
    blocked_sequences: dict[str, LayerSequence], runtime: OnnxRuntime
) -> None:
    """For this host's block size, materialised shapes are those that the runtime makes."""
    if runtime.block == 1:
        pytest.skip("this host has no blocked layout")
    for sequence in blocked_sequences.values():
        if small(sequence):
            local = materialise(sequence, runtime.block)
            assert [value.shape for value in run(local)] == [local.values[i].type.shape for i in local.outputs]


def test_a_host_without_blocks_refuses(blocked_sequences: dict[str, LayerSequence]) -> None:
    """On a host without blocked layouts, materialising is refused."""
    with pytest.raises(NotMaterialisableError, match="no blocked layout"):
        materialise(next(iter(blocked_sequences.values())), 1)


@pytest.mark.parametrize("block", [1, *BLOCKS])
def test_what_is_not_blocked_stays_what_it_is(block: int, parse: Parse, lower: Lower) -> None:
    """A sequence without blocked values is the same for every block size."""
    sequence = whole_model(lower(parse("(float[2,3] x) => (float[2,3] y) { y = Relu(x) }")))
    assert materialise(sequence, block) is sequence
    assert portable(sequence) is sequence


MODELS = {
    "convolution": (
        "(float[1,3,12,12] x) => (float y) { a = Conv<pads = [1, 1, 1, 1]>(x, w) b = Relu(a) y = Conv(b, v) }",
        {"w": (20, 3, 3, 3), "v": (24, 20, 1, 1)},
    ),
    "pools": (
        """(float[1,3,12,12] x) => (float y, float z)
        { a = Conv(x, w) b = MaxPool<kernel_shape = [3, 3], strides = [2, 2], ceil_mode = 1>(a)
          c = AveragePool<kernel_shape = [2, 2], count_include_pad = 1, pads = [1, 1, 0, 0]>(b)
          y = Conv(c, v) z = GlobalAveragePool(a) }""",
        {"w": (20, 3, 3, 3), "v": (17, 20, 1, 1)},
    ),
    "residual": (
        """(float[1,16,8,8] x) => (float y)
        { a = Conv(x, w) b = Conv<pads = [1, 1, 1, 1]>(a, v) s = Add(b, a) r = Relu(s) y = Conv(r, w) }""",
        {"w": (16, 16, 1, 1), "v": (16, 16, 3, 3)},
    ),
    "depthwise": (
        """(float[1,3,8,8] x) => (float y)
        { a = Conv(x, w) b = Conv<group = 20, pads = [1, 1, 1, 1]>(a, d) c = Clip(b, zero, six) y = Conv(c, v) }""",
        {"w": (20, 3, 3, 3), "d": (20, 1, 3, 3), "v": (10, 20, 1, 1), "zero": (), "six": ()},
    ),
    "grouped": (
        "(float[1,3,8,8] x) => (float y) { a = Conv(x, w) y = Conv<group = 2>(a, g) }",
        {"w": (64, 3, 3, 3), "g": (32, 32, 3, 3)},
    ),
    "odd_groups": (
        "(float[1,3,8,8] x) => (float y) { a = Conv(x, w) y = Conv<group = 3>(a, g) }",
        {"w": (21, 3, 3, 3), "g": (15, 7, 3, 3)},
    ),
    "concat": (
        "(float[1,3,8,8] x) => (float y) { a = Conv(x, w) b = Conv(x, v) c = Concat<axis = 1>(a, b) y = Conv(c, u) }",
        {"w": (16, 3, 1, 1), "v": (32, 3, 1, 1), "u": (10, 48, 1, 1)},
    ),
    "upsample": (
        """(float[1,3,8,8] x) => (float y) <float[4] s = {1, 1, 2, 2}>
        { a = Conv(x, w)
          b = Resize<mode = "nearest", coordinate_transformation_mode = "asymmetric", nearest_mode = "floor">(a, , s)
          y = Conv(b, v) }""",
        {"w": (16, 3, 1, 1), "v": (10, 16, 1, 1)},
    ),
    "bilinear": (
        """(float[1,3,8,8] x) => (float y) <float[4] s = {1, 1, 2, 2}>
        { a = Conv(x, w)
          b = Resize<mode = "linear", coordinate_transformation_mode = "align_corners">(a, , s)
          y = Conv(b, v) }""",
        {"w": (16, 3, 1, 1), "v": (10, 16, 1, 1)},
    ),
}


@pytest.mark.parametrize("opset", [13, 19, 21])
@pytest.mark.parametrize("kind", MODELS)
def test_plain_and_blocked_compute_the_same(
    kind: str, opset: int, parse: Parse, lower: Lower, runtime: OnnxRuntime
) -> None:
    """A network between reorders computes the same in blocked and in plain layout."""
    text, weights = MODELS[kind]
    sequence = whole_model(lower(parse(text, weights=weights, opset=opset)))
    plain = portable(sequence)
    assert not is_blocked(plain)
    reference = run(plain)
    assert [value.shape for value in reference] == [sequence.values[i].type.shape for i in sequence.outputs]
    if runtime.block > 1:
        assert is_blocked(sequence)
        local = materialise(sequence, runtime.block)
        # The padding of synthetic weights is not zero; with zeros there, both layouts compute the same.
        computed = run_with_weights_of(plain, local)
        for one, other in zip(computed, reference, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)


def run_with_weights_of(plain: LayerSequence, local: LayerSequence) -> list[np.ndarray]:
    """Returns the outputs of `local` on the weights of `plain`, padded with zeros and laid out in blocks."""
    arrays = {}
    for i in weight_indices(local):
        weight, shape = synthetic_value(plain, i), local.values[i].type.shape
        grown = np.zeros(shape, weight.dtype)
        grown[tuple(slice(size) for size in weight.shape)] = weight
        arrays[i] = _laid_out(local, i, grown)
    network = build_network(local, weights=[numpy_helper.from_array(a, value_name(i)) for i, a in arrays.items()])
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(network.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, {value_name(i): synthetic_value(plain, i) for i in input_indices(local)})


def _laid_out(local: LayerSequence, index: int, weight: np.ndarray) -> np.ndarray:
    """Reorders a convolution's filter to the layout that the runtime's blocked kernels read."""
    layer = next(layer for layer in local.layers if index in layer.inputs)
    if layer.domain != BLOCKED_DOMAIN or layer.op_type != "Conv" or layer.inputs[1] != index:
        return weight
    block = OnnxRuntime().block
    out, inner, *window = weight.shape
    blocks = weight.reshape(out // block, block, inner, *window)
    if not local.values[layer.inputs[0]].type.blocked or inner == 1:  # unblocked input: O / b, I, window, b
        return np.moveaxis(blocks, 1, -1).reshape(weight.shape)
    blocks = blocks.reshape(out // block, block, inner // block, block, *window)  # O / b, I / b, window, b of I, b of O
    return np.ascontiguousarray(blocks.transpose(0, 2, *range(4, 4 + len(window)), 3, 1)).reshape(weight.shape)


def test_the_host_does_not_show_in_the_canonical_form(parse: Parse, lower: Lower) -> None:
    """No shape of a blocked graph has padding, in activations, filters or biases."""
    text, weights = MODELS["depthwise"]
    graph = lower(parse(text, weights=weights))
    channels = {size for kind in graph.types.values() for size in kind.shape[:2]}
    assert channels <= {1, 3, 10, 20}


def test_channels_that_are_no_whole_blocks_elsewhere() -> None:
    """A blocked Concat of 8 channels can be materialised for blocks of 8, and is refused for blocks of 16."""
    text = (
        '{"layers":[{"op":"Concat","domain":"","since":4,"attrs":{"axis":{"i":1}},"in":[0,0],"out":[1],"captured":0}],'
        '"values":[["float32",[1,8,4,4],1,"input",null],["float32",[1,16,4,4],1,"internal",null]],"outputs":[1]}'
    )
    sequence = LayerSequence.from_text(text)
    assert materialise(sequence, 8).values == sequence.values
    with pytest.raises(NotMaterialisableError, match="16"):
        materialise(sequence, 16)


def _convolution_of_plain_input(channels: int, filters: int = 20) -> LayerSequence:
    """Returns a blocked convolution that reads a plain input."""
    return LayerSequence.from_text(
        '{"layers":[{"op":"Conv","domain":"com.microsoft.nchwc","since":1,"in":[0,1,2],"out":[3],"captured":0,'
        '"attrs":{"dilations":{"ints":[1,1]},"kernel_shape":{"ints":[3,3]},"pads":{"ints":[1,1,1,1]},'
        f'"strides":{{"ints":[1,1]}}}}}}],"values":[["float32",[1,{channels},6,6],0,"input",null],'
        f'["float32",[{filters},{channels},3,3],0,"constant",null],["float32",[{filters}],0,"constant",null],'
        f'["float32",[1,{filters},6,6],1,"internal",null]],"outputs":[3]}}'
    )


def test_inputs_of_at_least_a_block_are_reordered_first(runtime: OnnxRuntime) -> None:
    """A convolution that reads its input as it is on hosts with larger blocks has it reordered on this one."""
    if runtime.block == 1:
        pytest.skip("this host has no blocked layout")
    few, many = (_convolution_of_plain_input(runtime.block + more) for more in (-4, 4))
    assert [layer.op_type for layer in materialise(few, runtime.block).layers] == ["Conv"]
    local = materialise(many, runtime.block)
    assert [layer.op_type for layer in local.layers] == ["ReorderInput", "Conv"]
    assert [value.shape for value in run(local)] == [(1, padded(20, runtime.block), 6, 6)]


def test_channels_that_cannot_be_reordered_are_convolved_as_they_are(runtime: OnnxRuntime) -> None:
    """The runtime reorders multiples of four channels, so that it would not block ten channels in blocks of eight."""
    assert [layer.op_type for layer in materialise(_convolution_of_plain_input(10), 16).layers] == ["Conv"]
    local = materialise(_convolution_of_plain_input(10), 8)
    assert [(layer.op_type, layer.domain) for layer in local.layers] == [("Conv", ""), ("ReorderInput", BLOCKED_DOMAIN)]
    if runtime.block > 1:
        channels = runtime.block + 2
        local = materialise(_convolution_of_plain_input(channels), runtime.block)
        assert [value.shape for value in run(local)] == [(1, padded(20, runtime.block), 6, 6)]


def test_outputs_that_cannot_be_reordered_are_refused(runtime: OnnxRuntime) -> None:
    """Neither the ten channels that a convolution reads nor the 18 that it writes can be reordered."""
    with pytest.raises(NotMaterialisableError, match="10"):
        materialise(_convolution_of_plain_input(10, 18), 8)
    if runtime.block > 1:
        with pytest.raises(MeasurementError, match="Conv cannot run on this host: with blocks of"):
            runtime.open_sequence(_convolution_of_plain_input(runtime.block + 2, 18), RuntimeSettings())
