"""Lowering with ONNX Runtime, and running sequences and models."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import ModelProto, TensorProto, numpy_helper

from costmodel.errors import LoweringError, MeasurementError
from costmodel.ir.attributes import subgraphs
from costmodel.ir.graph import LayerGraph
from costmodel.ir.nchwc import BLOCKED_DOMAIN, is_blocked
from costmodel.ir.sequence import LayerSequence
from costmodel.onnx_io.model import read_model
from costmodel.partition.decomposition import decompose, whole_model
from costmodel.runtimes.base import LEVELS, RuntimeSettings
from costmodel.runtimes.ort.adapter import OnnxRuntime
from costmodel.runtimes.ort.session import open_session
from tests.lowered import check_graph

Parse = Callable[..., ModelProto]
Lower = Callable[..., LayerGraph]


def kinds(graph: LayerGraph) -> Counter[tuple[str, str]]:
    """Returns the number of layers of each kind in a graph."""
    return Counter((layer.domain, layer.op_type) for layer in graph.layers)


def executed(path: Path, folder: Path, level: str) -> Counter[tuple[str, str]]:
    """Returns the layers that an ONNX Runtime session executes, from its profile."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = {
        "none": ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
        "basic": ort.GraphOptimizationLevel.ORT_ENABLE_BASIC,
        "extended": ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
        "all": ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
    }[level]
    written = folder / "optimised.onnx"
    options.optimized_model_filepath = str(written)
    options.add_session_config_entry("session.optimized_model_external_initializers_file_name", "weights")
    ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    model = onnx.load(str(written), load_external_data=False)
    for file in folder.iterdir():
        file.unlink()
    return Counter((node.domain, node.op_type) for node in model.graph.node)


def test_layers_are_those_that_a_session_executes(
    light_name: str, light_models: MappingProxyType[str, Path], lowered_light: Lower, tmp_path: Path
) -> None:
    """Lowering without weights finds exactly the layers that a session executes."""
    assert kinds(lowered_light(light_name)) == executed(light_models[light_name], tmp_path, "all")


@pytest.mark.parametrize("level", LEVELS)
def test_every_level_is_that_of_a_session(
    level: str, light_models: MappingProxyType[str, Path], lowered_light: Lower, tmp_path: Path
) -> None:
    """Lowering at lower optimisation levels finds the layers that a session executes."""
    for name in ("squeezenet", "shufflenet"):
        graph = lowered_light(name, level)
        check_graph(graph)
        assert kinds(graph) == executed(light_models[name], tmp_path, level)


def test_a_lowered_graph_is_whole(light_name: str, lowered_light: Lower) -> None:
    """Every value has a type, every layer a name and existing inputs, and nothing depends on data."""
    graph = lowered_light(light_name)
    check_graph(graph)
    assert not graph.data_dependent


def test_shapes_are_logical(light_models: MappingProxyType[str, Path], light_name: str, lowered_light: Lower) -> None:
    """Tensors have the shapes of ONNX's inference, without the padding of blocked layouts."""
    source = read_model(light_models[light_name]).proto
    inferred = onnx.shape_inference.infer_shapes(source, data_prop=True).graph
    ports = (*inferred.value_info, *inferred.output)
    shapes = {port.name: tuple(d.dim_value for d in port.type.tensor_type.shape.dim) for port in ports}
    graph = lowered_light(light_name)
    known = {name for name in graph.types if name in shapes}
    assert {name: graph.types[name].shape for name in known} == {name: shapes[name] for name in known}
    channels = {shape[1] for shape in shapes.values() if len(shape) == 4}
    blocked = [kind for kind in graph.types.values() if kind.blocked]
    assert blocked
    assert {kind.shape[1] for kind in blocked} <= channels
    for layer in graph.layers:
        if layer.op_type == "Conv":
            data, weight, out = (graph.types[name].shape for name in (*layer.inputs[:2], layer.outputs[0]))
            group = layer.attributes.get("group", {"i": 1})["i"]
            assert weight[0] == out[1]
            assert weight[1] == data[1] // group


def test_layers_are_traced_to_their_source(
    light_models: MappingProxyType[str, Path], light_name: str, lowered_light: Lower
) -> None:
    """Every layer except reorders names the source nodes whose work it does."""
    nodes = onnx.load(light_models[light_name], load_external_data=False).graph.node
    labels = {node.name or node.output[0] for node in nodes}
    operators = {node.name or node.output[0]: node.op_type for node in nodes}
    for layer in lowered_light(light_name).layers:
        if layer.op_type.startswith("Reorder"):
            assert layer.sources == ()
        else:
            assert layer.sources
            assert labels.issuperset(layer.sources)
    convolutions = [layer for layer in lowered_light(light_name).layers if layer.op_type == "Conv"]
    traced = Counter(name for layer in convolutions for name in layer.sources if operators[name] == "Conv")
    assert set(traced.values()) == {1}


def test_lowering_twice_gives_the_same(
    light_models: MappingProxyType[str, Path], light_name: str, lowered_light: Lower, runtime: OnnxRuntime
) -> None:
    """Order, names and shapes are reproducible, unlike the runtime's own."""
    again = OnnxRuntime().lower(read_model(light_models[light_name]), "all")
    assert again.to_dict() == lowered_light(light_name).to_dict()


class TestRefusals:
    """Models that the runtime refuses."""

    @staticmethod
    def refusal(lower: Lower, model: ModelProto, level: str = "all") -> str:
        """Function that returns the sentence with which a model is refused."""
        with pytest.raises(LoweringError) as caught:
            lower(model, level)
        message = str(caught.value)
        assert "\n" not in message
        assert "tiny" in message
        return message

    @pytest.mark.parametrize("level", ["none", "all"])
    def test_an_unknown_domain(self, level: str, parse: Parse, lower: Lower) -> None:
        """An operator of an unknown domain is named."""
        model = parse("(float[2] x) => (float[2] y) { y = ours.Secret(x) }", domains=("ours",))
        assert "Secret" in self.refusal(lower, model, level)

    def test_an_unknown_operator(self, parse: Parse, lower: Lower) -> None:
        """An unknown operator of ONNX's own domain is named."""
        assert "Secret" in self.refusal(lower, parse("(float[2] x) => (float[2] y) { y = Secret(x) }"))

    @pytest.mark.parametrize("opset", [99, 10_000])
    def test_an_opset_of_the_future(self, opset: int, parse: Parse, lower: Lower) -> None:
        """An unsupported opset is named."""
        assert str(opset) in self.refusal(lower, parse("(float[2] x) => (float[2] y) { y = Relu(x) }", opset=opset))

    def test_wrong_types(self, parse: Parse, lower: Lower) -> None:
        """A model that fails the runtime's type checks is refused."""
        self.refusal(lower, parse("(float[2] x, int64[2] i) => (float[2] y) { y = Add(x, i) }"))

    def test_shapes_that_do_not_fit(self, parse: Parse, lower: Lower) -> None:
        """Incompatible shapes are refused."""
        self.refusal(lower, parse("(float[2,3] x, float[4,5] w) => (float[2,5] y) { y = MatMul(x, w) }"))

    def test_values_without_a_producer(self, parse: Parse, lower: Lower) -> None:
        """A layer that reads an undefined value is refused."""
        self.refusal(lower, parse("(float[2] x) => (float[2] y) { y = Add(x, ghost) }"))

    def test_a_model_of_constants(self, parse: Parse, lower: Lower) -> None:
        """A model that is folded to constants is refused."""
        text = "(float[2] x) => (float[2] y) <float[2] a = {1., 2.}, float[2] b = {3., 4.}> { y = Add(a, b) }"
        assert "no layers" in self.refusal(lower, parse(text))

    def test_values_that_are_no_tensors(self, parse: Parse, lower: Lower) -> None:
        """Sequences and optionals as outputs are refused."""
        model = parse("(float[3,4] x) => (seq(float[3,1]) s) { s = SplitToSequence<axis = 1>(x) }")
        assert "s is a sequence" in self.refusal(lower, model)

    def test_strings(self, parse: Parse, lower: Lower) -> None:
        """Strings as outputs are refused, constant ones included."""
        model = parse(
            """(bool[1] x) => (bool[1] y) { a = Constant<value_strings = ["a"]>() e = Equal(a, a) y = And(e, x) }""",
            opset=19,
        )
        assert "string" in self.refusal(lower, model, "none")

    def test_weights_of_the_wrong_size(self, parse: Parse, lower: Lower) -> None:
        """A tensor with fewer values than its shape is refused."""
        model = parse("(float[2] x) => (float[2] y) { y = Add(x, w) }", weights={"w": (2,)})
        model.graph.initializer[0].raw_data = b"123"
        self.refusal(lower, model)

    def test_a_size_that_only_shows_when_inferred(self, parse: Parse, lower: Lower) -> None:
        """A tensor that inference finds absurdly large is refused without being computed."""
        text = "(float[1,1] x) => (float y) <int64[2] n = {1000000, 1000000}> { a = Relu(x) y = Expand(a, n) }"
        assert "absurd" in self.refusal(lower, parse(text))


class TestData:
    """Shapes that depend on data."""

    def test_they_are_observed_and_marked(self, parse: Parse, lower: Lower) -> None:
        """Data-dependent shapes, such as NonZero's, are observed in a run and marked, also in later layers."""
        graph = lower(parse("(float[3,4] x) => (int64 y) { r = Relu(x) n = NonZero(r) y = Neg(n) }"))
        assert graph.data_dependent == {"n", "y"}
        assert graph.types["n"].shape[0] == 2
        assert graph.types["y"] == graph.types["n"]

    def test_a_run_that_fails(self, parse: Parse, lower: Lower) -> None:
        """The error names some of the values, however many there are, and says what to do."""
        text = """(float[3,4] x) => (int64 y) <int64[1] far = {9}> {
            n = NonZero(x) a = Neg(n) b = Abs(a) c = Neg(b) y = Gather<axis = 0>(c, far)
        }"""
        with pytest.raises(LoweringError, match=r"the shapes of \w+, \w+, \w+ and 2 more depend .* option shape"):
            lower(parse(text))

    @pytest.mark.parametrize("level", ["none", "all"])
    def test_a_model_of_one_batch(self, level: str, parse: Parse, lower: Lower) -> None:
        """A model that contains the shapes of its batch is refused at another one, at which it does not run."""
        proto = parse("""(float[1,3,4] x) => (float[1,12] y) <int64[2] shape = {1, 12}> {
            r = Relu(x) f = Reshape(r, shape) y = Softmax(f)
        }""")
        assert lower(proto, level).types["f"].shape == (1, 12)
        with pytest.raises(LoweringError, match=r"reshapes \[2, 3, 4\] to \[1, 12\].*exported for one batch"):
            lower(proto, level, batch=2)

    def test_an_output_of_the_model(self, parse: Parse, lower: Lower) -> None:
        """A data-dependent output of the model is observed and marked."""
        assert lower(parse("(float[3,4] x) => (int64 n) { n = NonZero(x) }")).data_dependent == {"n"}

    def test_a_blocked_layout_behind_them(self, parse: Parse, lower: Lower, run_isolated: Callable[..., None]) -> None:
        """A blocked convolution on a data-dependent image has a shape without padding."""
        model = parse(
            """(float[8] m, float[1,3,8,8] x) => (float y)
            <int64[1] one = {1}, int64[1] zero = {0}, int64[1] two = {2}>
            { n = NonZero(m) s = Shape(n) e = Gather(s, one) c = Slice(x, zero, e, two) d = Conv(c, w) y = Relu(d) }""",
            weights={"w": (20, 3, 1, 1)},
        )
        graph = lower(model)
        check_graph(graph)
        assert {kind.shape[1] for kind in graph.types.values() if kind.blocked} <= {20}
        assert graph.data_dependent
        run_isolated(graph, 1, 2, 3)


class TestBodies:
    """Layers with subgraphs: If, Loop and Scan."""

    LOOP = """(int64 n, float[1,20,8,8] x, float[1,20,8,8] k) => (float[1,20,8,8] y)
    <bool c = {1}>
    { r = Relu(k)
      y = Loop (n, c, x) <body = g (int64 i, bool d, float[1,20,8,8] s) => (bool e, float[1,20,8,8] t)
                          { e = Identity(d) f = Conv(s, w) q = Relu(f) t = Add(q, r) }> }"""

    @pytest.fixture
    def loop(self, parse: Parse) -> ModelProto:
        """A loop that convolves, with a weight inside and a captured value from outside."""
        model = parse(self.LOOP)
        body = model.graph.node[1].attribute[0].g
        body.initializer.append(numpy_helper.from_array(np.ones((20, 20, 1, 1), np.float32), "w"))
        return model

    @pytest.mark.parametrize("level", LEVELS)
    def test_they_run_by_themselves(
        self, level: str, loop: ModelProto, lower: Lower, run_isolated: Callable[..., None]
    ) -> None:
        """A Loop is one layer, reads the values that it captures, and runs in isolation."""
        graph = lower(loop, level)
        check_graph(graph)
        (layer,) = (layer for layer in graph.layers if layer.op_type == "Loop")
        assert layer.num_captured == 1
        assert layer.inputs[-1] == "r"
        run_isolated(graph, 1, 2, 5)

    def test_they_are_the_same_on_every_host(self, loop: ModelProto, lower: Lower) -> None:
        """A subgraph has plain layers and logical shapes, although the runtime blocks its convolution."""
        (layer,) = (layer for layer in lower(loop).layers if layer.op_type == "Loop")
        (body,) = subgraphs(layer.attributes)
        assert BLOCKED_DOMAIN not in {node.domain for node in body.node}
        assert [list(tensor.dims) for tensor in body.initializer if tensor.dims] == [[20, 20, 1, 1]]

    def test_loops_in_loops(self, parse: Parse, lower: Lower, run_isolated: Callable[..., None]) -> None:
        """Nested subgraphs capture values of all enclosing graphs."""
        model = parse(
            """(int64 n, float[3] x, float[3] k) => (float[3] y)
            <bool c = {1}>
            { y = Loop (n, c, x) <body = g (int64 i, bool d, float[3] s) => (bool e, float[3] t)
                { e = Identity(d)
                  u = Loop (n, d, s) <body = h (int64 j, bool f, float[3] v) => (bool o, float[3] p)
                    { o = Identity(f) q = Add(v, k) p = Mul(q, s) }>
                  t = Tanh(u) }> }"""
        )
        for level in LEVELS:
            graph = lower(model, level)
            (layer,) = (layer for layer in graph.layers if layer.op_type == "Loop")
            assert set(layer.inputs[3:]) == {"n", "k"}
            run_isolated(graph)

    def test_an_old_body_keeps_its_opset(self, parse: Parse, lower: Lower, run_isolated: Callable[..., None]) -> None:
        """Operators in a subgraph have the model's opset: here Squeeze has an attribute, not an input."""
        text = """(bool c, float[1,3] x) => (float[3] y)
        { y = If (c) <then_branch = g () => (float[3] a) { a = Squeeze<axes = [0]>(x) },
                      else_branch = h () => (float[3] b) { z = Neg(x) b = Squeeze<axes = [0]>(z) }> }"""
        run_isolated(lower(parse(text, opset=11)))


TRANSFORMER = """(int64[batch,16] ids, float[batch,16] mask) => (float[batch,16,32] y)
<int64 zero = {0}, int64 one = {1}, int64[1] first = {0}, int64[2] middle = {1, 2}, int64[1] heads = {4},
 int64[1] depth = {8}, int64[1] hidden = {32}, float root = {1.4142135}, float half = {0.5}, float scale = {2.828427},
 float unit = {1}, float large = {-10000}>
{ e = Gather(table, ids)
  x = LayerNormalization<axis = -1>(e, norm, shift)
  shape = Shape(x)  b = Gather(shape, zero)  s = Gather(shape, one)
  bu = Unsqueeze(b, first)  su = Unsqueeze(s, first)
  split = Concat<axis = 0>(bu, su, heads, depth)  join = Concat<axis = 0>(bu, su, hidden)
  q0 = MatMul(x, wq)  q1 = Add(q0, bq)  q2 = Reshape(q1, split)  q = Transpose<perm = [0, 2, 1, 3]>(q2)
  k0 = MatMul(x, wk)  k1 = Add(k0, bk)  k2 = Reshape(k1, split)  k = Transpose<perm = [0, 2, 3, 1]>(k2)
  v0 = MatMul(x, wv)  v1 = Add(v0, bv)  v2 = Reshape(v1, split)  v = Transpose<perm = [0, 2, 1, 3]>(v2)
  qk = MatMul(q, k)  scaled = Div(qk, scale)
  m1 = Unsqueeze(mask, middle)  m2 = Sub(unit, m1)  m3 = Mul(m2, large)
  masked = Add(scaled, m3)  soft = Softmax<axis = -1>(masked)
  c0 = MatMul(soft, v)  c1 = Transpose<perm = [0, 2, 1, 3]>(c0)  c = Reshape(c1, join)
  o0 = MatMul(c, wo)  o = Add(o0, bo)  r = Add(o, x)
  n = LayerNormalization<axis = -1>(r, norm, shift)
  f0 = MatMul(n, w1)  f = Add(f0, b1)
  g0 = Div(f, root)  g1 = Erf(g0)  g2 = Add(g1, unit)  g3 = Mul(f, g2)  g = Mul(g3, half)
  h0 = MatMul(g, w2)  h = Add(h0, b2)  y = Add(h, n) }"""
SIZES: dict[str, tuple[int, ...]] = {
    "table": (50, 32), "norm": (32,), "shift": (32,), "w1": (32, 64), "b1": (64,), "w2": (64, 32), "b2": (32,),
    **{f"w{part}": (32, 32) for part in "qkvo"}, **{f"b{part}": (32,) for part in "qkvo"},
}  # fmt: skip


@pytest.mark.parametrize("level", ["basic", "extended", "all"])
@pytest.mark.parametrize("batch", [1, 3])
def test_a_transformer_is_static(
    level: str, batch: int, parse: Parse, lower: Lower, run_isolated: Callable[..., None]
) -> None:
    """Shapes computed from input shapes are known after lowering, and every sequence runs."""
    graph = lower(parse(TRANSFORMER, weights=SIZES), level, batch=batch)
    check_graph(graph)
    assert not graph.data_dependent
    assert graph.types["y"].shape == (batch, 16, 32)
    assert not {"Shape", "Unsqueeze", "Concat"}.intersection(
        layer.op_type for layer in graph.layers if graph.types[layer.outputs[0]].dtype == "int64"
    )
    if level != "basic":
        assert {"Gelu", "SkipLayerNormalization"} <= {layer.op_type for layer in graph.layers}
    run_isolated(graph, 1, 2, 3, 5, 10)


def test_a_transformer_without_optimisation_runs_in_sequences(
    parse: Parse, lower: Lower, run_isolated: Callable[..., None]
) -> None:
    """Without constant folding, shapes are computed by layers, and every sequence runs."""
    graph = lower(parse(TRANSFORMER, weights=SIZES), "none", batch=2)
    check_graph(graph)
    run_isolated(graph, 1, 2, 3, 5, 10)


@pytest.mark.parametrize(
    ("channels", "group", "weight"),
    [
        (20, 20, (20, 1, 3, 3)),
        (20, 20, (40, 1, 3, 3)),
        (21, 3, (15, 7, 3, 3)),
        (64, 2, (64, 32, 3, 3)),
        (3, 1, (5, 3, 3, 3)),
    ],
)
def test_convolutions_of_odd_channels(
    channels: int, group: int, weight: tuple[int, ...], parse: Parse, lower: Lower, run_isolated: Callable[..., None]
) -> None:
    """Depthwise and grouped convolutions with partial blocks keep their sizes and run."""
    model = parse(
        f"(float[1,4,8,8] x) => (float y) {{ a = Conv(x, v) r = Relu(a) y = Conv<group = {group}>(r, w) }}",
        weights={"v": (channels, 4, 1, 1), "w": weight},
    )
    graph = lower(model)
    check_graph(graph)
    last = next(layer for layer in reversed(graph.layers) if layer.op_type == "Conv")
    assert graph.types[last.inputs[1]].shape == weight
    assert last.attributes.get("group", {"i": 1})["i"] == group
    assert graph.types["y"].shape == (1, weight[0], 6, 6)
    run_isolated(graph, 1, 2, 3)


def test_names_are_made_where_the_model_has_none(parse: Parse, lower: Lower) -> None:
    """Unnamed nodes, and nodes that share a name, give layers with unique names and correct sources."""
    model = parse(
        "(float[1,3,8,8] x) => (float y) { a = Conv(x, w) b = Neg(a) c = Neg(b) y = Exp(c) }",
        weights={"w": (8, 3, 1, 1)},
    )
    anonymous = lower(model)
    for node in model.graph.node:
        node.name = "same"
    alike = lower(model)
    for graph in (anonymous, alike):
        check_graph(graph)
        layers = {layer.op_type: layer for layer in graph.layers}
        assert layers["Exp"].sources
    assert whole_model(anonymous).signature == whole_model(alike).signature


def test_an_operator_of_the_runtimes_own(parse: Parse, lower: Lower, run_isolated: Callable[..., None]) -> None:
    """Models may use the runtime's own operators, even exclusively."""
    model = parse("(float[4,64] x) => (float[4,64] y) { y = com.microsoft.Gelu(x) }", domains=("com.microsoft",))
    run_isolated(lower(model))
    del model.opset_import[0]
    run_isolated(lower(model))


@pytest.mark.parametrize("level", LEVELS)
def test_shapes_that_only_the_runtime_infers(
    level: str, parse: Parse, lower: Lower, run_isolated: Callable[..., None]
) -> None:
    """Output shapes of the runtime's own operators come from the runtime's inference."""
    model = parse(
        """(float[N,16,32] x, float[N,16,32] z) => (float y)
        { a = com.microsoft.SkipLayerNormalization(x, z, w, v) b = com.microsoft.FastGelu(a, v)
          c = com.microsoft.FusedMatMul<transB = 1>(b, a) d = Softmax(c) y = MatMul(d, b) }""",
        weights={"w": (32,), "v": (32,)},
        domains=("com.microsoft",),
    )
    graph = lower(model, level, batch=2)
    check_graph(graph)
    assert not graph.data_dependent
    assert graph.types["c"].shape == (2, 16, 16)
    run_isolated(graph, 1, 2, 5)


@pytest.mark.parametrize("opset", range(9, 24, 2))
def test_every_opset_that_the_runtime_runs(
    opset: int, parse: Parse, lower: Lower, run_isolated: Callable[..., None]
) -> None:
    """Models of all opsets are lowered, and their sequences run at the same opset."""
    model = parse(
        """(float[1,3,8,8] x) => (float y) <int64[2] flat = {1, -1}>
        { a = Conv(x, w) b = MaxPool<kernel_shape = [2, 2]>(a) c = Reshape(b, flat)
          d = MatMul(c, v) y = Softmax(d) }""",
        weights={"w": (16, 3, 1, 1), "v": (784, 10)},
        opset=opset,
    )
    for level in LEVELS:
        run_isolated(lower(model, level), 1, 3)


class TestRunning:
    """Opening and running sequences and whole models."""

    def test_a_whole_model(
        self, light_models: MappingProxyType[str, Path], runtime: OnnxRuntime, settings: RuntimeSettings
    ) -> None:
        """A real model runs on synthetic inputs, from file and from memory."""
        path = light_models["squeezenet"]
        for source in (path, onnx.load(path)):
            runtime.open_model(read_model(source), settings).run()

    @pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads are counted as Linux lists them")
    def test_layers_may_run_at_the_same_time(
        self, light_models: MappingProxyType[str, Path], runtime: OnnxRuntime
    ) -> None:
        """Inter-op threads are used for whole models and not for sequences."""

        def threads() -> int:
            return len(list(Path("/proc/self/task").iterdir()))

        settings = RuntimeSettings(inter_threads=3, spinning=False)
        model = read_model(light_models["squeezenet"])
        (sequence, *_) = decompose("m", runtime.lower(model, "all")).unique.values()
        before = threads()
        held = [runtime.open_sequence(sequence, settings)]
        assert threads() == before
        held.append(runtime.open_model(model, settings))
        assert threads() > before
        for runner in held:
            runner.run()

    def test_two_inter_threads_give_the_same_outputs(self, parse: Parse) -> None:
        """Two inter-op threads give the same outputs in every run."""
        text = """(float[1,3,8,8] x) => (float[1,16,6,6] y, float[1,16,6,6] z)
            { s = Conv(x, w) a = Conv(s, v) b = Sigmoid(s) c = Exp(s) y = Mul(a, b) z = Add(a, c) }"""
        model = parse(text, weights={"w": (16, 3, 3, 3), "v": (16, 16, 1, 1)}).SerializeToString()
        modes = (RuntimeSettings(spinning=False), RuntimeSettings(inter_threads=2, spinning=False))
        one, two = (open_session(model, mode, timed=True, concurrent=True) for mode in modes)
        x = np.random.default_rng(0).uniform(-1, 1, (1, 3, 8, 8)).astype(np.float32)
        expected = one.run(None, {"x": x})
        assert len(np.unique(expected[0])) > 1
        for _ in range(20):
            np.testing.assert_array_equal(two.run(None, {"x": x}), expected)

    @pytest.mark.parametrize("where", ["file", "memory"])
    @pytest.mark.parametrize(
        "given", [{}, {"batch": 3}, {"shapes": {"x": (2, 5, 8, 8)}}, {"batch": 2, "shapes": {"z": (2, 7)}}]
    )
    def test_a_model_at_another_size(
        self,
        where: str,
        given: dict[str, object],
        parse: Parse,
        tmp_path: Path,
        runtime: OnnxRuntime,
        settings: RuntimeSettings,
    ) -> None:
        """Given sizes of symbolic, unnamed and fixed dimensions apply to the whole model, from file or memory."""
        proto = parse("(float[N,c,8,8] x, float[?,7] z) => (float y, float t) { y = Relu(x) t = Exp(z) }")
        if "shapes" not in given or "x" not in given["shapes"]:
            proto.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 3
        source: object = proto
        if where == "file":
            onnx.save(proto, tmp_path / "m.onnx")
            source = tmp_path / "m.onnx"
        runtime.open_model(read_model(source, **given), settings).run()

    def test_a_session_sees_the_sizes_that_lowering_saw(
        self, parse: Parse, runtime: OnnxRuntime, settings: RuntimeSettings
    ) -> None:
        """A model in memory runs with fixed sizes, so that it is optimised as it was lowered."""
        proto = parse(
            """(float[N,c,8,8] x) => (float y) <int64[1] one = {1}>
            { s = Shape(x) n = Gather(s, one) k = ConstantOfShape(n) a = ReduceSum<keepdims = 0>(k) y = Mul(x, a) }"""
        )
        runtime.open_model(read_model(proto, shapes={"x": (1, 3, 8, 8)}), settings).run()

    def test_a_model_that_cannot_be_opened(self, parse: Parse, runtime: OnnxRuntime, settings: RuntimeSettings) -> None:
        """Opening a model is refused with the message of lowering."""
        model = read_model(parse("(float[2] x) => (float[2] y) { y = ours.Secret(x) }", domains=("ours",)))
        with pytest.raises(LoweringError, match="Secret"):
            runtime.open_model(model, settings)

    def test_a_sequence_that_cannot_be_opened(self, runtime: OnnxRuntime, settings: RuntimeSettings) -> None:
        """A sequence with an unknown operator is refused in one sentence."""
        text = (
            '{"layers":[{"op":"Secret","domain":"","since":1,"attrs":{},"in":[0],"out":[1],"captured":0}],"outputs":[1],'
            '"values":[["float32",[2],0,"input",null],["float32",[2],0,"internal",null]]}'
        )
        with pytest.raises(MeasurementError, match="Secret") as caught:
            runtime.open_sequence(LayerSequence.from_text(text), settings)
        assert "\n" not in str(caught.value)

    def test_an_element_type_without_kernels(
        self, parse: Parse, lower: Lower, runtime: OnnxRuntime, settings: RuntimeSettings
    ) -> None:
        """A model that can be lowered, but has no kernel for a type, is refused when opened."""
        graph = lower(parse("(bfloat16[4] x) => (bfloat16[4] y) { y = Mul(x, x) }"))
        with pytest.raises(MeasurementError, match="Mul"):
            runtime.open_sequence(whole_model(graph), settings)

    def test_a_sequence_that_fails_when_run(self, runtime: OnnxRuntime, settings: RuntimeSettings) -> None:
        """An error while running is a MeasurementError."""
        text = (
            '{"layers":[{"op":"Reshape","domain":"","since":5,"attrs":{},"in":[0,1],"out":[2],"captured":0}],"outputs":[2],'
            '"values":[["float32",[2,3],0,"input",null],["int64",[1],0,"input",null],["float32",[7],0,"internal",null]]}'
        )
        with pytest.raises(MeasurementError, match="failed to run"):
            runtime.open_sequence(LayerSequence.from_text(text), settings).run()

    def test_a_blocked_sequence_on_a_host_without_blocks(self, lowered_light: Lower, settings: RuntimeSettings) -> None:
        """On a host without blocked layouts, a blocked sequence is refused with its name and what to do."""
        plain_host = OnnxRuntime()
        plain_host.block = 1
        sequence = next(s for s in decompose("m", lowered_light("squeezenet")).unique.values() if is_blocked(s))
        with pytest.raises(MeasurementError, match=f"{sequence.kind.split('+')[0]}.*no blocked layout"):
            plain_host.open_sequence(sequence, settings)

    def test_the_block_of_this_host(self, runtime: OnnxRuntime) -> None:
        """The block size is 8 on AVX2, 16 on AVX-512, 1 elsewhere, and is part of the fingerprint."""
        assert runtime.block in (1, 8, 16)
        assert str(runtime.block) in runtime.fingerprint()

    def test_weights_are_not_copied_into_the_lowered_graph(self, parse: Parse, lower: Lower) -> None:
        """A lowered graph has the types of weights and not their values."""
        graph = lower(parse("(float[1,500] x) => (float y) { y = MatMul(x, w) }", weights={"w": (500, 500)}))
        assert len(str(graph.to_dict())) < 2000
        assert TensorProto.DataType.Name(TensorProto.FLOAT) not in str(graph.constants)
