"""Ifs whose condition is constant: their branch's layers take their place."""

from collections.abc import Callable

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper

from costmodel.onnx_io.branches import inline_branches
from costmodel.onnx_io.model import read_model
from costmodel.runtimes.base import RuntimeSettings
from costmodel.runtimes.ort.adapter import OnnxRuntime
from costmodel.runtimes.ort.session import open_session

FLAGS = ("a", "b")


def outputs(proto: ModelProto, **fed: object) -> np.ndarray:
    """Returns the output y of a model for x = 0.5 and -2, and what else is fed."""
    session = open_session(proto.SerializeToString(), RuntimeSettings(spinning=False), timed=True)
    fed = {"x": np.array([0.5, -2], np.float32), **fed}
    (y,) = session.run(["y"], {name: value for name, value in fed.items() if name in _fed(proto)})
    return np.asarray(y)


def _fed(proto: ModelProto) -> set[str]:
    return {port.name for port in proto.graph.input}


# A body is a list of steps. A step is the name of an operator, or a flag with the bodies of its two branches.
bodies = st.recursive(
    st.lists(st.sampled_from(["Neg", "Abs", "Exp"]), min_size=1, max_size=2),
    lambda inner: st.lists(
        st.one_of(st.sampled_from(["Neg", "Abs"]), st.tuples(st.sampled_from(FLAGS), inner, inner)),
        min_size=1,
        max_size=3,
    ),
    max_leaves=8,
)


def nodes_of(body: list[object], depth: int, value: str) -> tuple[list[NodeProto], str]:
    """Returns the nodes of a body and the name of its result; bodies at one depth define the same names."""
    made = []
    for number, step in enumerate(body):
        name = f"v{depth}_{number}"
        if isinstance(step, str):
            made.append(helper.make_node(step, [value], [name]))
        else:
            flag, *branches = step  # type: ignore[misc]
            then, other = (graph_of(branch, depth + 1, value) for branch in branches)
            made.append(helper.make_node("If", [flag], [name], then_branch=then, else_branch=other))
        value = name
    return made, value


def graph_of(body: list[object], depth: int, value: str) -> GraphProto:
    """Returns the branch of an If."""
    nodes, result = nodes_of(body, depth, value)
    return helper.make_graph(nodes, "branch", [], [helper.make_tensor_value_info(result, TensorProto.FLOAT, None)])


@given(bodies, st.sets(st.sampled_from(FLAGS)), st.booleans(), st.booleans())
@settings(deadline=None, max_examples=60)
def test_the_same_is_computed(body: list[object], given_flags: set[str], a: bool, b: bool) -> None:
    """Whatever is nested and whichever flags are given, the model computes what it did, and no given flag is left."""
    nodes, result = nodes_of(body, 0, "x")
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])]
    inputs += [helper.make_tensor_value_info(flag, TensorProto.BOOL, []) for flag in FLAGS]
    outs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph([*nodes, helper.make_node("Identity", [result], ["y"])], "m", inputs, outs)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    flags = {"a": np.array(a), "b": np.array(b)}
    model = read_model(proto, values={flag: float(flags[flag]) for flag in given_flags})
    np.testing.assert_array_equal(outputs(model.proto, **flags), outputs(proto, **flags))
    if given_flags == set(FLAGS):
        assert "If" not in {node.op_type for node in model.proto.graph.node}


@pytest.mark.parametrize(("rate", "operators"), [(16_000, ["Neg", "Exp"]), (8_000, ["Abs"]), (44_100, ["Abs", "Neg"])])
def test_a_rate_is_compared(
    parse: Callable[..., ModelProto], runtime: OnnxRuntime, rate: int, operators: list[str]
) -> None:
    """Conditions are computed from the value by comparisons, logic and casts, also in the branch that was chosen."""
    proto = parse(
        """(float[8] x, int64[1] rate) => (float[8] y) <int64 high = {16000}> {
            known = Constant<value_int = 8000>()
            same = Equal(rate, high)
            flag = Squeeze(same)
            y = If(flag) <
                then_branch = g1 () => (float[8] r) { s = Neg(x) r = Exp(s) },
                else_branch = g2 () => (float[8] r) {
                    s = Abs(x)
                    low = LessOrEqual(rate, known)
                    not_low = Not(low)
                    wanted = Cast<to = 9>(not_low)
                    r = If(wanted) <
                        then_branch = g3 () => (float[8] q) { q = Neg(s) },
                        else_branch = g4 () => (float[8] q) { q = Identity(s) }
                    >
                }
            >
        }"""
    )
    graph = runtime.lower(read_model(proto, values={"rate": rate}), "all")
    assert [layer.op_type for layer in graph.layers] == operators


@pytest.mark.parametrize("damage", ["no condition", "no branch", "more outputs", "no type", "one operand"])
def test_damaged_nodes_are_left_as_they_are(branches: ModelProto, damage: str) -> None:
    """Nodes that are not valid are neither computed nor replaced: the runtime says what is wrong with them."""
    graph = branches.graph
    graph.initializer.append(helper.make_tensor("one", TensorProto.BOOL, [], [True]))
    (node,) = graph.node
    node.input[0] = "one"
    if damage == "no condition":
        del node.input[:]
    elif damage == "no branch":
        del node.attribute[:]
    elif damage == "more outputs":
        node.output.append("z")
    else:
        broken = helper.make_node("Cast" if damage == "no type" else "And", ["one"], ["c"])
        node.input[0] = "c"
        graph.node.insert(0, broken)
    before = [one.op_type for one in graph.node]
    inline_branches(branches)
    assert [one.op_type for one in branches.graph.node] == before
