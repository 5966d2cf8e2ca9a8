"""The content of runnable networks."""

from collections.abc import Callable

import onnx
from onnx import ModelProto

from costmodel.ir.graph import LayerGraph
from costmodel.ir.sequence import input_indices, weight_indices
from costmodel.partition.decomposition import decompose, whole_model
from costmodel.synthetic.network import build_network, external_tensor, value_name

Lower = Callable[..., LayerGraph]


def test_a_network_is_valid_onnx_and_keeps_its_secrets(light_name: str, lowered_light: Lower) -> None:
    """A network has the layers, inputs, outputs and weights of its sequence, and no names of its model."""
    graph = lowered_light(light_name)
    names = {name for name in (*graph.types, *(layer.name for layer in graph.layers)) if len(name) > 4}
    for sequence in decompose(light_name, graph, 5).unique.values():
        weights = [external_tensor(value_name(i), sequence.values[i], "w") for i in weight_indices(sequence)]
        network = build_network(sequence, weights=weights)
        assert [node.op_type for node in network.graph.node] == [layer.op_type for layer in sequence.layers]
        assert [port.name for port in network.graph.input] == [value_name(i) for i in input_indices(sequence)]
        assert [port.name for port in network.graph.output] == [value_name(i) for i in sequence.outputs]
        assert network.ByteSize() < 50_000
        text = network.SerializeToString()
        assert not any(name.encode() in text for name in names)
        if all(layer.domain == "" for layer in sequence.layers) and not network.graph.initializer:
            onnx.checker.check_model(network)


def test_a_body_reads_what_its_network_calls_the_captured_values(
    parse: Callable[..., ModelProto], lower: Lower
) -> None:
    """Captured values of a subgraph are explicit in a sequence, and resolved by name in the network."""
    model = parse(
        """(bool c, float[3] x, float[3] k) => (float[3] y)
        { r = Relu(k)
          y = If (c) <then_branch = g () => (float[3] a) { a = Add(x, r) },
                      else_branch = h () => (float[3] b) { b = Mul(r, x) }> }"""
    )
    sequence = whole_model(lower(model))
    (layer,) = (layer for layer in sequence.layers if layer.op_type == "If")
    assert layer.num_captured == 2
    (node,) = (node for node in build_network(sequence, weights=[]).graph.node if node.op_type == "If")
    captured = {value_name(i) for i in layer.inputs[1:]}
    for branch in node.attribute:
        assert {name for inner in branch.g.node for name in inner.input} == captured
    assert len(node.input) == 1


def test_weights_inside_a_body_are_filled_in(
    parse: Callable[..., ModelProto], lower: Lower, run_isolated: Callable[..., None]
) -> None:
    """Weights in a loop's subgraph are synthetic, and the loop runs in isolation."""
    model = parse(
        """(int64 n, float[1,8] x) => (float[1,8] y) <bool c = {1}>
        { y = Loop (n, c, x) <body = g (int64 i, bool d, float[1,8] s) => (bool e, float[1,8] t)
                              { e = Identity(d) m = MatMul(s, w) t = Tanh(m) }> }"""
    )
    weights = onnx.numpy_helper.from_array(onnx.numpy_helper.np.ones((8, 8), "float32"), "w")
    model.graph.node[0].attribute[0].g.initializer.append(weights)
    for level in ("none", "extended", "all"):
        run_isolated(lower(model, level), 1, 2)
