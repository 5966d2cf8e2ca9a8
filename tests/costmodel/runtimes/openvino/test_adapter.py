"""Lowering with OpenVINO, and running sequences and models."""

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

pytest.importorskip("openvino")

from costmodel.errors import LoweringError, MeasurementError
from costmodel.ir.fused import FUSED_DOMAIN, body_of, expand
from costmodel.ir.graph import LayerGraph, TensorType
from costmodel.ir.sequence import LayerSequence, SequenceLayer, Value, weight_indices
from costmodel.onnx_io.model import read_model
from costmodel.partition.decomposition import decompose
from costmodel.runtimes.base import LayerProfiler, RuntimeSettings, SurroundedRunner
from costmodel.runtimes.openvino.adapter import OpenVino
from costmodel.runtimes.openvino.executed import executed_graph
from costmodel.runtimes.openvino.lowering import REORDER_DOMAIN
from costmodel.runtimes.ort.adapter import OnnxRuntime
from costmodel.runtimes.ort.session import open_session
from costmodel.synthetic.network import build_network, value_name
from costmodel.synthetic.values import synthetic_value
from costmodel.systems.host import usable_cpus
from tests.lowered import check_graph

Parse = Callable[..., ModelProto]
SETTINGS = RuntimeSettings()


@pytest.fixture(scope="module")
def openvino() -> OpenVino:
    """The adapter."""
    return OpenVino()


def weight(rng: np.random.Generator, name: str, *shape: int) -> TensorProto:
    """Returns a weight with random values."""
    values = rng.uniform(0.1, 1, shape) / np.prod(shape[1:])
    return numpy_helper.from_array(values.astype(np.float32), name)


def residual_block(channels: int = 16, size: int = 12, added: tuple[str, str] = ("c3", "r0")) -> ModelProto:
    """Returns a model of three convolutions, to the last of which the result of the first is added."""
    rng = np.random.default_rng(0)
    window = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    nodes = [
        helper.make_node("Conv", ["x", "w0", "b0"], ["c0"], "conv0", **window),
        helper.make_node("Relu", ["c0"], ["r0"], "relu0"),
        helper.make_node("Conv", ["r0", "w1", "b1"], ["c1"], "conv1", **window),
        helper.make_node("Relu", ["c1"], ["m"], "relu_between"),
        helper.make_node("Conv", ["m", "w3", "b3"], ["c3"], "conv3", **window),
        helper.make_node("Add", list(added), ["s"], "add"),
        helper.make_node("Relu", ["s"], ["r1"], "relu1"),
        helper.make_node("MaxPool", ["r1"], ["p"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Flatten", ["p"], ["f"], "flatten"),
        helper.make_node("Gemm", ["f", "w2", "b2"], ["y"], "gemm", transB=1),
    ]
    graph = helper.make_graph(
        nodes,
        "block",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, size, size])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 10])],
        [
            weight(rng, "w0", channels, 3, 3, 3), weight(rng, "b0", channels),
            weight(rng, "w1", channels, channels, 3, 3), weight(rng, "b1", channels),
            weight(rng, "w3", channels, channels, 3, 3), weight(rng, "b3", channels),
            weight(rng, "w2", 10, channels * size * size // 4), weight(rng, "b2", 10),
        ],
    )  # fmt: skip
    return helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 17)])


def quantised_convolution(zero_point: int = 0) -> ModelProto:
    """Returns a model of a convolution between a dequantisation and a quantisation, its weights quantised too."""
    rng = np.random.default_rng(0)
    graph = helper.make_graph(
        [
            helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], "quantise"),
            helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"], "dequantise"),
            helper.make_node("DequantizeLinear", ["w", "s", "o"], ["v"], "weights"),
            helper.make_node("Conv", ["d", "v"], ["c"], "conv", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
            helper.make_node("Relu", ["c"], ["r"], "relu"),
            helper.make_node("QuantizeLinear", ["r", "s", "z"], ["t"], "again"),
            helper.make_node("DequantizeLinear", ["t", "s", "z"], ["y"], "back"),
        ],
        "quantised",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 16, 16, 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 32, 16, 16])],
        [
            numpy_helper.from_array(np.array(0.05, np.float32), "s"),
            numpy_helper.from_array(np.array(zero_point, np.uint8), "z"),
            numpy_helper.from_array(np.array(0, np.int8), "o"),
            numpy_helper.from_array(rng.integers(-9, 9, (32, 16, 3, 3), dtype=np.int8), "w"),
        ],
    )
    return helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 17)])


def operators(graph: LayerGraph) -> list[str]:
    """Returns the operators of each layer, joined."""
    bodies = [(layer, body_of(layer)) for layer in graph.layers]
    return ["+".join(x.op_type for x in body.layers) if body else layer.op_type for layer, body in bodies]


def test_what_openvino_fuses_is_one_layer(openvino: OpenVino) -> None:
    """A convolution is one layer with its activation and the addition that OpenVINO computes with it."""
    graph = openvino.lower(read_model(residual_block()), "all")
    check_graph(graph)
    found = [one for one in operators(graph) if one != "Reorder"]
    assert found[:4] == ["Conv+Relu", "Conv+Relu", "Conv+Add+Relu", "MaxPool"]
    assert {layer.domain for layer in graph.layers} <= {"", FUSED_DOMAIN, REORDER_DOMAIN}


def test_an_operator_without_a_kernel_of_onnx_runtime_is_lowered_as_it_is(openvino: OpenVino) -> None:
    """ONNX Runtime, which folds the model, writes HardSwish as two operators; OpenVINO fuses it with a convolution."""
    model = residual_block()
    for node in model.graph.node:
        if node.name in ("relu0", "relu1"):
            node.op_type = "HardSwish"
    folded, _ = OnnxRuntime().fold(read_model(model))
    assert [node.op_type for node in folded.graph.node].count("HardSwish") == 2
    graph = openvino.lower(read_model(model), "all")
    check_graph(graph)
    found = [one for one in operators(graph) if one != "Reorder"]
    assert found[:4] == ["Conv+HardSwish", "Conv+Relu", "Conv+Add+HardSwish", "MaxPool"]


def test_what_a_mask_chooses_from_is_computed(openvino: OpenVino, parse: Parse) -> None:
    """A large mask among the constants has other values than the model's, and not all the same."""
    model = parse(
        """(float[1,64,64] x) => (float[1,64,64] y) <float least = {-1000.0}> {
            scores = MatMul(x, w) chosen = Where(mask, scores, least) y = Softmax <axis = 2> (chosen)
        }""",
        weights={"w": (64, 64)},
    )
    model.graph.initializer.append(numpy_helper.from_array(np.tri(64, dtype=bool), "mask"))
    graph = openvino.lower(read_model(model), "all")
    check_graph(graph)
    product = next(layer for layer in graph.layers if layer.op_type == "MatMul")
    assert "x" in product.inputs
    assert not any("MatMul" in one and "Softmax" in one for one in operators(graph))


@pytest.mark.parametrize("value", [-np.inf, np.nan])
def test_a_constant_that_is_no_finite_number_is_lowered(openvino: OpenVino, parse: Parse, value: float) -> None:
    """What a mask hides is minus infinity in the models of several exporters."""
    model = parse("(bool[4,4] m, float[4,4] x) => (float[4,4] y) { z = Where(m, x, least) y = Softmax(z) }")
    model.graph.initializer.append(numpy_helper.from_array(np.array(value, np.float32), "least"))
    assert openvino.lower(read_model(model), "all").layers


def test_a_model_without_its_weights_runs_with_synthetic_ones(openvino: OpenVino, tmp_path: Path) -> None:
    """The file of weights is absent, as with a model whose weights its owner keeps."""
    path = tmp_path / "m.onnx"
    onnx.save(residual_block(), path, save_as_external_data=True, location="m.weights", size_threshold=1024)
    (tmp_path / "m.weights").unlink()
    model = read_model(path)
    assert model.weights_missing
    openvino.open_model(model, SETTINGS).run()


def test_tensors_between_convolutions_are_not_plain(openvino: OpenVino) -> None:
    """The lowered graph knows in which layout each tensor is, and has a layer where one is reordered."""
    graph = openvino.lower(read_model(residual_block()), "all")
    assert graph.types["r0"].blocked
    assert graph.types["r1"].blocked
    assert not graph.types["x"].blocked
    assert not graph.types["y"].blocked
    assert any(layer.domain == REORDER_DOMAIN and layer.inputs == ("x",) for layer in graph.layers)


def test_a_lowered_graph_does_not_depend_on_names_or_weights(openvino: OpenVino, tmp_path: Path) -> None:
    """Two models that differ in names and weights have the same layers."""
    one = residual_block()
    other = ModelProto()
    other.CopyFrom(one)
    for node in other.graph.node:
        node.name = f"other/{node.name}"
    for tensor in other.graph.initializer:
        tensor.CopyFrom(numpy_helper.from_array(2 * numpy_helper.to_array(tensor), tensor.name))
    unique = [set(decompose("m", openvino.lower(read_model(m), "all")).unique) for m in (one, other)]
    assert unique[0] == unique[1]


@pytest.mark.parametrize("zero_point", [0, 7])
def test_a_quantised_convolution_is_one_layer_that_computes_in_integers(openvino: OpenVino, zero_point: int) -> None:
    """OpenVINO fuses the quantisation around a convolution; the layer by itself is executed in integers as well."""
    graph = openvino.lower(read_model(quantised_convolution(zero_point)), "all")
    check_graph(graph)
    (position,) = [i for i, one in enumerate(operators(graph)) if "Conv" in one]
    sequence = decompose("q", graph).segments[position].sequence
    runner = openvino.open_sequence(sequence, SETTINGS)
    runner.run()
    assert "Convolution" in {p.kind for p in executed_graph(runner.compiled) if p.implementation.lower().endswith("i8")}


@pytest.fixture
def quantised(parse: Parse) -> Callable[..., ModelProto]:
    """Returns a model of nodes that read bytes `q`, quantised from `x`, with their scale and zero points."""

    def made(nodes: str, result: str, zero: int = 7, size: str = "1,16,8,8") -> ModelProto:
        model = parse(
            f"""(float[{size}] x) => (float[{result}] y)
                <float s = {{0.05}}, uint8 z = {{{zero}}}, uint8 low = {{0}}, int8 o = {{0}}, float few = {{0.001}}>
            {{ a = Relu(x) q = QuantizeLinear(a, s, z) {nodes} }}"""
        )
        for number, node in enumerate(model.graph.node):
            node.name = f"{node.op_type}{number}"
        weights = [one for one in ("w", "v") if any(one in node.input for node in model.graph.node)]
        values = np.random.default_rng(0).integers(-9, 9, (16, 16, 1, 1), dtype=np.int8)
        model.graph.initializer.extend(numpy_helper.from_array(values + number, w) for number, w in enumerate(weights))
        return model

    return made


CONVOLUTION = "{0}f = DequantizeLinear(w, few, o) {0}c = Conv({0}d, {0}f) {0}t = QuantizeLinear({0}c, s, z)"


def test_what_moves_quantised_tensors_moves_bytes(openvino: OpenVino, quantised: Callable[..., ModelProto]) -> None:
    """OpenVINO pools bytes, and each reader of a quantised tensor dequantises by itself."""
    model = quantised(
        "d = DequantizeLinear(q, s, z) p = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(d)"
        f"r = QuantizeLinear(p, s, z) ad = DequantizeLinear(r, s, z) {CONVOLUTION.format('a')}"
        f"bd = Identity(d) {CONVOLUTION.format('b')}"
        "m = DequantizeLinear(at, s, z) n = DequantizeLinear(bt, s, z)"
        "k = AveragePool<kernel_shape = [2, 2], strides = [2, 2]>(n) y = Add(m, k)",
        "1,16,4,4",
    )
    graph = openvino.lower(read_model(model), "all")
    check_graph(graph)
    pool = next(layer for layer in graph.layers if layer.op_type == "MaxPool")
    assert [graph.types[name].dtype for name in (*pool.inputs, *pool.outputs)] == ["uint8", "uint8"]
    for layer in graph.layers:
        if layer.op_type == "Conv":
            assert graph.types[layer.inputs[0]].dtype == "uint8"
            assert len(layer.outputs) == 1
    for segment in decompose("m", graph).segments:
        runner = openvino.open_sequence(segment.sequence, SETTINGS)
        runner.feed()
        runner.run()
        if segment.sequence.kind == "MaxPool":
            pooled = [p.dtypes for p in executed_graph(runner.compiled) if p.kind == "Pooling"]
            assert pooled == [("u8",)] * len(pooled) != []


@pytest.mark.parametrize(("zero", "integers"), [(128, True), (120, False)])
def test_products_of_activations_compute_in_integers_only_if_they_do_in_the_model(
    openvino: OpenVino, quantised: Callable[..., ModelProto], zero: int, integers: bool
) -> None:
    """Bytes around 128 are signed bytes for OpenVINO; around another number, it computes with floats."""
    model = quantised(
        "d = DequantizeLinear(q, s, z) b = Softmax(x) u = QuantizeLinear(b, few, low)"
        "e = DequantizeLinear(u, few, low) c = MatMul(e, d) t = QuantizeLinear(c, s, z) y = DequantizeLinear(t, s, z)",
        "1,2,32,32",
        zero,
        "1,2,32,32",
    )
    graph = openvino.lower(read_model(model), "all")
    check_graph(graph)
    (segment,) = (s for s in decompose("m", graph).segments if "MatMul" in s.sequence.kind)
    read = {v.type.dtype for v in expand(segment.sequence).values if v.role == "input"}
    assert ("int8" in read) is integers
    assert ("float32" in read) is not integers
    runner = openvino.open_sequence(segment.sequence, SETTINGS)
    (product,) = (p for p in executed_graph(runner.compiled) if p.kind == "MatMul")
    assert product.implementation.lower().endswith("i8") is integers


def test_a_layer_that_overwrites_its_input_is_timed_without_a_copy(openvino: OpenVino) -> None:
    """The input of a softmax is produced, since OpenVINO would copy what it is given, and no result is put out."""
    kind = TensorType("float32", (1, 4, 32, 32))
    sequence = LayerSequence(
        (SequenceLayer("Softmax", "", 13, {"axis": {"i": -1}}, (0,), (1,)),),
        (Value(kind, "input"), Value(kind, "internal")),
        (1,),
    )
    runner = openvino.open_sequence(sequence, SETTINGS)
    assert isinstance(runner, SurroundedRunner)
    timed, subtracted = (
        Counter(p.kind for p in executed_graph(one.compiled) if p.kind != "Const")
        for one in (runner, runner.surroundings)
    )
    assert sorted((timed - subtracted).elements()) == ["Softmax"]
    assert not subtracted - timed
    assert [tuple(port.get_shape()) for port in runner.compiled.outputs] == [(1, 1, 1, 1)]


@pytest.mark.parametrize("scale", [1, 2])
def test_a_normalisation_is_timed_with_scale_and_bias_only_if_it_has_them(
    openvino: OpenVino, parse: Parse, scale: int
) -> None:
    """OpenVINO leaves out a scale of ones and a bias of zeros, so the layer by itself must have them, too."""
    model = parse(
        f"""(float[1,4,64] x) => (float[1,4,64] y) <float[4] s = {{{scale}, 1, 1, 1}}, float[4] b = {{0, 0, 0, 0}}>
        {{ a = Exp(x) n = InstanceNormalization(a, s, b) y = Identity(n) }}"""
    )
    for number, node in enumerate(model.graph.node):
        node.name = f"{node.op_type}{number}"
    (segment,) = (
        one
        for one in decompose("m", openvino.lower(read_model(model), "all")).segments
        if one.sequence.kind == "InstanceNormalization"
    )
    known = {v.data for v in expand(segment.sequence).values if v.role == "constant"}
    assert ((1.0, 1.0, 1.0, 1.0) in known) is (scale == 1)
    assert (0.0, 0.0, 0.0, 0.0) in known
    openvino.open_sequence(segment.sequence, SETTINGS).run()


def test_a_layer_that_leaves_the_plain_layout_leaves_it_alone_too(openvino: OpenVino) -> None:
    """A Split that reads channels last and writes the plain layout takes a hundred times as long as one that copies."""
    read = TensorType("float32", (1, 9, 8, 8), blocked=True)
    parts = [TensorType("float32", (1, channels, 8, 8)) for channels in (1, 8)]
    sizes = TensorType("int64", (2,))
    sequence = LayerSequence(
        (SequenceLayer("Split", "", 13, {"axis": {"i": 1}}, (0, 1), (2, 3)),),
        (Value(read, "input"), Value(sizes, "constant", (1, 8)), *(Value(one, "internal") for one in parts)),
        (2, 3),
    )
    runner = openvino.open_sequence(sequence, SETTINGS)
    (split,) = (p for p in executed_graph(runner.compiled) if p.kind == "Split")
    assert split.layouts == ("abcd", "abcd")


def test_each_reader_of_a_view_transposes_by_itself(openvino: OpenVino, parse: Parse) -> None:
    """A transposition that OpenVINO does not execute is part of each convolution that reads its result."""
    model = parse(
        """(float[1,32,64] x) => (float[1,64,32] y)
        { a = Exp(x) t = Transpose<perm = [0, 2, 1]>(a) b = Conv(t, w) c = Conv(t, v) y = Add(b, c) }"""
    )
    for number, node in enumerate(model.graph.node):
        node.name = f"{node.op_type}{number}"
    rng = np.random.default_rng(0)
    model.graph.initializer.extend(weight(rng, name, 64, 64, 1) for name in ("w", "v"))
    graph = openvino.lower(read_model(model), "all")
    check_graph(graph)
    found = [one for one in operators(graph) if "Conv" in one]
    assert len(found) == 2
    assert all("Transpose" in one for one in found)
    for segment in decompose("m", graph).segments:
        if "Conv" in segment.sequence.kind:
            runner = openvino.open_sequence(segment.sequence, SETTINGS)
            assert "Transpose" not in {p.kind for p in executed_graph(runner.compiled)}


def test_scales_do_not_make_other_layers(openvino: OpenVino) -> None:
    """Layers with other scales of quantisation are the same, as they take the same time."""
    other = quantised_convolution(7)
    scale = next(t for t in other.graph.initializer if t.name == "s")
    scale.CopyFrom(numpy_helper.from_array(np.array(0.07, np.float32), "s"))
    zero = next(t for t in other.graph.initializer if t.name == "z")
    zero.CopyFrom(numpy_helper.from_array(np.array(9, np.uint8), "z"))
    found = [
        set(decompose("m", openvino.lower(read_model(m), "all")).unique) for m in (quantised_convolution(7), other)
    ]
    assert found[0] == found[1]


def test_isolated_layers_execute_what_the_model_executes(openvino: OpenVino) -> None:
    """Each layer by itself is executed by the same primitives as in the model, without reorders that take time."""
    model = read_model(residual_block())
    for segment in decompose("m", openvino.lower(model, "all")).segments:
        runner = openvino.open_sequence(segment.sequence, SETTINGS)
        runner.feed()
        runner.run()
        if isinstance(runner, SurroundedRunner):
            runner.surroundings.run()
        kinds = Counter(p.kind for p in executed_graph(runner.compiled))
        assert kinds["Transpose"] == 0, segment.layers


@pytest.mark.skipif(usable_cpus() < 2, reason="there is one CPU")
def test_with_several_threads_a_layer_runs_once_before_each_run_that_is_timed(openvino: OpenVino, parse: Parse) -> None:
    """A product with a megabyte of weights is timed cold with one thread, and awake with two."""
    proto = parse("(float[4, 512] x) => (float[4, 512] y) { y = MatMul(x, w) }", weights={"w": (512, 512)})
    (segment,) = decompose("m", openvino.lower(read_model(proto), "all")).segments
    cold, awake = (openvino.open_sequence(segment.sequence, RuntimeSettings(threads)) for threads in (1, 2))
    assert not isinstance(cold, SurroundedRunner)
    assert isinstance(awake, SurroundedRunner)
    awake.feed()
    (fed,) = awake.results()
    awake.run()
    assert np.array_equal(fed, awake.results()[0])
    assert fed.any()


def test_an_isolated_layer_computes_what_its_operators_compute(openvino: OpenVino) -> None:
    """The network of a fused layer in OpenVINO's layout gives the numbers that ONNX Runtime gives for its operators."""
    graph = openvino.lower(read_model(residual_block()), "all")
    sequence = next(
        s.sequence
        for s, ops in zip(decompose("m", graph).segments, operators(graph), strict=True)
        if ops == "Conv+Relu"
    )
    runner = openvino.open_sequence(sequence, SETTINGS)
    runner.run()
    plain = expand(sequence)
    weights = [numpy_helper.from_array(synthetic_value(plain, i), value_name(i)) for i in weight_indices(plain)]
    session = open_session(build_network(plain, weights=weights).SerializeToString(), SETTINGS)
    feeds = {value_name(i): synthetic_value(plain, i) for i, v in enumerate(plain.values) if v.role == "input"}
    channels_last = {
        n: np.ascontiguousarray(a.reshape(a.shape[0], *a.shape[2:], a.shape[1]).transpose(0, 3, 1, 2))
        for n, a in feeds.items()
    }
    (expected,) = session.run(None, channels_last)
    np.testing.assert_allclose(runner.results()[0].transpose(0, 3, 1, 2), expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("dtype", ["float32", "uint8"])
@pytest.mark.parametrize("to_plain", [False, True])
def test_a_reorder_runs_by_itself(openvino: OpenVino, dtype: str, to_plain: bool) -> None:
    """A change of the layout, for which ONNX has no operator, can be timed in both directions."""
    kinds = [TensorType(dtype, (1, 16, 8, 8), blocked) for blocked in (to_plain, not to_plain)]
    sequence = LayerSequence(
        (SequenceLayer("Reorder", REORDER_DOMAIN, 1, {}, (0,), (1,)),),
        (Value(kinds[0], "input"), Value(kinds[1], "internal")),
        (1,),
    )
    runner = openvino.open_sequence(sequence, SETTINGS)
    runner.feed()
    runner.run()


@pytest.mark.parametrize("added", [("c3", "r0"), ("r0", "c3")])
def test_a_convolution_that_adds_to_an_input_does_not_copy_it(openvino: OpenVino, added: tuple[str, str]) -> None:
    """The input is produced inside the network, in memory that may be overwritten, and its production is not timed."""
    graph = openvino.lower(read_model(residual_block(added=added)), "all")
    (sequence,) = (
        segment.sequence
        for segment in decompose("m", graph).segments
        if "Add" in (layer.op_type for layer in expand(segment.sequence).layers)
    )
    runner = openvino.open_sequence(sequence, SETTINGS)
    assert isinstance(runner, SurroundedRunner)
    primitives = executed_graph(runner.compiled)
    (produced,) = (i for i, primitive in enumerate(primitives) if primitive.kind == "Pooling")
    assert any(
        produced in {source for source, _ in primitive.inputs}
        for primitive in primitives
        if primitive.kind == "Convolution"
    )
    assert not {"Eltwise", "Subgraph"} & {primitive.kind for primitive in primitives}
    assert [p.kind for p in executed_graph(runner.surroundings.compiled)].count("Convolution") == 1


@pytest.mark.parametrize("rank", [3, 4, 5])
@pytest.mark.parametrize(("operator", "inputs"), [("Relu", 1), ("Add", 2), ("Mul", 2)])
def test_a_layer_in_a_channels_last_layout_is_all_that_is_timed(
    openvino: OpenVino, operator: str, inputs: int, rank: int
) -> None:
    """The network has one primitive more than the one that is subtracted, and as many outputs."""
    kind = TensorType("float32", (1, 16, *[8] * (rank - 2)), blocked=True)
    sequence = LayerSequence(
        (SequenceLayer(operator, "", 14, {}, tuple(range(inputs)), (inputs,)),),
        (*[Value(kind, "input")] * inputs, Value(kind, "internal")),
        (inputs,),
    )
    runner = openvino.open_sequence(sequence, SETTINGS)
    assert isinstance(runner, SurroundedRunner)
    assert len(runner.compiled.outputs) == len(runner.surroundings.compiled.outputs)
    timed, subtracted = (
        Counter(p.kind for p in executed_graph(one.compiled) if p.kind != "Const")
        for one in (runner, runner.surroundings)
    )
    assert sorted((timed - subtracted).elements()) in (["Eltwise"], ["Subgraph"])
    assert not subtracted - timed


def test_inputs_inside_a_model_are_not_converted(openvino: OpenVino) -> None:
    """A mask is fed as OpenVINO keeps it inside a model, so that no conversion is timed with the layer."""
    kind = TensorType("float32", (4, 32))
    sequence = LayerSequence(
        (SequenceLayer("Where", "", 16, {}, (0, 1, 2), (3,)),),
        (
            Value(TensorType("bool", (4, 32)), "input"),
            Value(kind, "input"),
            Value(kind, "input"),
            Value(kind, "internal"),
        ),
        (3,),
    )
    runner = openvino.open_sequence(sequence, SETTINGS)
    runner.run()
    assert "Convert" not in {p.kind for p in executed_graph(runner.compiled)}


def test_an_empty_network_executes_nothing(openvino: OpenVino) -> None:
    """The network from which the call overhead follows has no layer that takes time."""
    runner = openvino.open_empty(2, 3, SETTINGS)
    runner.run()
    assert {p.kind for p in executed_graph(runner.compiled)} <= {
        "Input",
        "Const",
        "Subgraph",
        "Eltwise",
        "Reshape",
        "Output",
    }


def test_settings_are_those_that_were_asked_for(openvino: OpenVino) -> None:
    """Precision, streams and threads are pinned, whatever OpenVINO would choose on this processor."""
    runner = openvino.open_model(read_model(residual_block()), RuntimeSettings(threads=2))
    runner.run()
    assert runner.compiled.get_property("INFERENCE_PRECISION_HINT").to_string() == "f32"
    assert runner.compiled.get_property("NUM_STREAMS") == 1
    assert runner.compiled.get_property("INFERENCE_NUM_THREADS") == 2


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="this platform does not pin threads")
def test_threads_are_pinned_if_each_has_a_cpu(openvino: OpenVino) -> None:
    """Two threads of a process with two CPUs cannot meet on one of them; one thread is left where it is."""
    before = os.sched_getaffinity(0)
    if len(before) < 2:
        pytest.skip("there is one CPU")
    os.sched_setaffinity(0, sorted(before)[:2])
    try:
        pinned = [
            openvino.open_model(read_model(residual_block()), RuntimeSettings(threads)).compiled.get_property(
                "ENABLE_CPU_PINNING"
            )
            for threads in (1, 2)
        ]
    finally:
        os.sched_setaffinity(0, before)
    assert pinned == [False, True]


def test_a_model_with_a_symbolic_batch_runs_at_the_chosen_size(openvino: OpenVino) -> None:
    """Input shapes are those of the model as it was read, not those of its file."""
    proto = residual_block()
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "batch"
    proto.graph.output[0].type.tensor_type.shape.dim[0].dim_param = "batch"
    model = read_model(proto, batch=3)
    runner = openvino.open_model(model, SETTINGS)
    runner.run()
    assert list(runner.compiled.inputs[0].shape) == [3, 3, 12, 12]
    assert openvino.lower(model, "all").types["r0"].shape[0] == 3


def test_a_model_that_openvino_lacks_an_operator_for_is_refused(openvino: OpenVino, parse: Parse) -> None:
    """The refusal names the model, the runtime and what to do."""
    text = "(float[4] x, int64[1] h) => (float[4] y) { y = com.microsoft.DynamicTimeWarping(x) }"
    model = read_model(parse(text, domains=("com.microsoft",)), name="warped")
    with pytest.raises(LoweringError, match=r"warped is refused by openvino .*: export it with operators"):
        openvino.open_model(model, SETTINGS)


def test_a_model_whose_shapes_depend_on_values_is_refused(openvino: OpenVino, parse: Parse) -> None:
    """The error names the tensor, where OpenVINO knows a shape only when it runs though the model declares it."""
    model = parse("""(float[8] x, int64[1] ends) => (float[4] y) <int64[1] starts = {0}> {
        y = Slice(x, starts, ends)
    }""")
    with pytest.raises(LoweringError, match=r"knows the shape of y.* only when it runs"):
        openvino.lower(read_model(model), "all")


def test_a_sequence_that_does_not_load_is_refused(openvino: OpenVino) -> None:
    """A layer of an unknown operator cannot be timed, and the error says which."""
    kind = TensorType("float32", (4,))
    sequence = LayerSequence(
        (SequenceLayer("Unknown", "some.domain", 1, {}, (0,), (1,)),),
        (Value(kind, "input"), Value(kind, "internal")),
        (1,),
    )
    with pytest.raises(MeasurementError, match="Unknown does not load in OpenVINO"):
        openvino.open_sequence(sequence, SETTINGS)


def test_a_layer_at_which_openvino_crashes_is_refused(openvino: OpenVino, parse: Parse) -> None:
    """A one-sided DFT with a length writes beyond its result."""
    model = read_model(
        parse(
            """(float[1,9,400,1] x) => (float y) <int64 n = {512}, int64 axis = {2}>
            { y = DFT<onesided = 1>(x, n, axis) }""",
            opset=20,
        )
    )
    (sequence,) = decompose("x", openvino.lower(model, "all"), 1).unique.values()
    with pytest.raises(MeasurementError, match="one-sided DFT to which a length is given: pad"):
        openvino.open_sequence(sequence, RuntimeSettings())


def test_both_runtimes_share_the_layers_that_are_the_same_work(openvino: OpenVino, parse: Parse) -> None:
    """A Transpose is the same layer for both runtimes, so that its features and its description are."""
    proto = parse("(float[2,3,4] x) => (float[4,3,2] y) { y = Transpose<perm = [2, 1, 0]>(x) }")
    model = read_model(proto)
    ours, theirs = (decompose("m", runtime.lower(model, "all")).unique for runtime in (openvino, OnnxRuntime()))
    assert set(ours) == set(theirs)


def test_the_profiler_names_the_layers_of_the_lowered_graph(tmp_path: Path, openvino: OpenVino) -> None:
    """Every layer runs in each run, reorders included, and nothing runs that is no layer."""
    assert isinstance(openvino, LayerProfiler)
    path = tmp_path / "block.onnx"
    path.write_bytes(residual_block().SerializeToString())
    model = read_model(path)
    layers = [layer.name for layer in openvino.lower(model, "all").layers]
    runs = openvino.profile_model(model, SETTINGS, runs=2, warm_up_runs=1)
    assert len(runs) == 2
    for run in runs:
        assert {kernel.layer for kernel in run.kernels} == set(layers)
        assert all(kernel.kernel for kernel in run.kernels)
        begins = [kernel.begin_us for kernel in run.kernels if kernel.kernel != "none"]
        assert begins == sorted(begins)
        assert all(kernel.duration_us >= 0 for kernel in run.kernels)
