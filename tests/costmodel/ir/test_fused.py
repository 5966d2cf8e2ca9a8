"""Fused layers: what they are made from, and what they turn back into."""

from collections.abc import Callable
from dataclasses import replace

import hypothesis.strategies as st
import pytest
from hypothesis import given

from costmodel.ir.footprint import read_bytes
from costmodel.ir.fused import FUSED_DOMAIN, body_of, expand, fuse, fused_sequence, outer_values
from costmodel.ir.graph import Layer, LayerGraph, TensorType
from costmodel.ir.sequence import LayerSequence, build_sequence
from costmodel.synthetic.sampling import sample_around

Graphs = Callable[..., st.SearchStrategy[LayerGraph]]

KIND = TensorType("float32", (1, 8, 4, 4))
TYPES = {"x": KIND, "w": TensorType("float32", (8, 8, 1, 1)), "c": KIND, "r": KIND, "y": KIND}
LAYERS = (
    Layer("conv", "Conv", "", 11, {"kernel_shape": {"ints": [1, 1]}}, ("x", "w"), ("c",), sources=("conv",)),
    Layer("relu", "Relu", "", 14, {}, ("c",), ("r",), sources=("relu",)),
    Layer("add", "Add", "", 14, {}, ("r", "x"), ("y",), sources=("add",)),
)


def fused(name: str = "fused") -> Layer:
    """Returns a convolution with an activation and an addition, as one layer."""
    return fuse(name, LAYERS, TYPES, {"w": None}, {"y"})


def sequence_of(layer: Layer) -> LayerSequence:
    """Returns the sequence that consists of one layer of the example."""
    return build_sequence([layer], TYPES, {"w": None}, {"y"})


def test_a_fused_layer_has_the_operator_that_takes_the_time() -> None:
    """A convolution with what is fused into it is a convolution, with the inputs of all operators, each once."""
    layer = fused()
    assert (layer.op_type, layer.domain) == ("Conv", FUSED_DOMAIN)
    assert sorted(layer.inputs) == ["w", "x"]
    assert layer.outputs == ("y",)
    assert layer.sources == ("conv", "relu", "add")


def test_expanding_gives_the_operators_back() -> None:
    """The operators of a fused layer take its place, with its inputs and outputs at their indices."""
    sequence = sequence_of(fused())
    plain = expand(sequence)
    assert [layer.op_type for layer in plain.layers] == ["Conv", "Relu", "Add"]
    assert plain.values[: len(sequence.values)] == sequence.values
    assert plain.outputs == sequence.outputs
    assert expand(plain) is plain


def test_what_is_fused_decides_the_signature_and_names_do_not() -> None:
    """Two fused layers are the same if their operators are, whatever they are called."""
    other = fuse("other", LAYERS[:2], TYPES, {"w": None}, {"r"})
    assert sequence_of(fused("a")).signature == sequence_of(fused("b")).signature
    assert sequence_of(fused()).signature != build_sequence([other], TYPES, {"w": None}, {"r"}).signature


def test_a_fused_layer_reads_the_weights_of_its_operators() -> None:
    """Weights inside a fused layer count as those of its operators do."""
    assert read_bytes(sequence_of(fused())) == TYPES["w"].nbytes


def test_a_body_contains_no_fused_layers() -> None:
    """A body that contains a fused layer itself, which could nest without end, is refused."""
    nested = fuse("nested", [fused()], TYPES, {"w": None}, {"y"})
    with pytest.raises(ValueError, match="sequence of operators"):
        body_of(nested)


@pytest.mark.parametrize("text", ["", "{}", "[]", "null"])
def test_a_body_that_is_no_sequence_is_refused(text: str) -> None:
    """Text that is not the canonical text of a sequence is no body."""
    with pytest.raises(ValueError):  # noqa: PT011 - JSON has messages of its own
        body_of(replace(fused(), attributes={"body": {"s": text}}))


@given(st.data())
def test_a_graph_fused_into_one_layer_expands_to_its_own_sequence(graphs: Graphs, data: st.DataObject) -> None:
    """For any graph, the layer into which all of it is fused expands to the operators, types and constants it had."""
    graph = data.draw(graphs())
    whole = build_sequence(graph.layers, graph.types, graph.constants, graph.outputs)
    layer = fuse("all", graph.layers, graph.types, graph.constants, graph.outputs)
    one = build_sequence([layer], graph.types, graph.constants, graph.outputs)
    plain = expand(one)
    assert [(x.op_type, x.attributes) for x in plain.layers] == [(x.op_type, x.attributes) for x in whole.layers]
    assert sorted(map(str, plain.values)) == sorted(map(str, whole.values))


def test_fusing_what_was_expanded_gives_the_layer_back() -> None:
    """The operators of a fused layer make the same layer again."""
    sequence = sequence_of(fused())
    assert fused_sequence(expand(sequence)).signature == sequence.signature


def test_samples_of_a_fused_layer_are_fused_layers_of_other_sizes() -> None:
    """The body of a sample has the sizes of the sample, so that both say the same."""
    samples = sample_around([sequence_of(fused())], 8)
    assert samples
    for sample, _ in samples.values():
        (layer,) = sample.layers
        body = body_of(layer)
        assert body is not None
        assert [body.values[i].type for i in outer_values(body)] == [sample.values[i].type for i in layer.inputs]
