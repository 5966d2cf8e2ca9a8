"""Sizes of the weights of a model, and of what a runtime folds from them."""

from collections.abc import Callable

import numpy as np
from onnx import ModelProto, helper, numpy_helper

from costmodel.ir.graph import LayerGraph
from costmodel.onnx_io.shape_inference import infer_model
from costmodel.onnx_io.source_weights import source_weights

MODEL = """
    (float[1,64] x) => (float[1,32] y) {
        turned = Transpose(w)
        doubled = Add(turned, turned)
        y = MatMul(x, doubled)
    }
"""
WEIGHTS = {"w": (32, 64), "tiny": (8,)}


def test_what_follows_from_weights_is_folded(parse: Callable[..., ModelProto]) -> None:
    """Values that follow from weights alone are found in order, with their sizes; small constants are left out."""
    model = parse(MODEL, weights=WEIGHTS)
    found = source_weights(model, infer_model(model))
    assert found.stored_bytes == {"w": 8192}
    assert found.folded_bytes == {"turned": 8192, "doubled": 8192}
    assert found.copied_bytes == {"turned": (8192,), "doubled": (8192, 8192)}
    assert found.nodes == 3
    assert found.dropped == {"w", "turned"}
    assert found.labels == {"w": (1, 2)}


def test_a_normalisation_gives_each_convolution_a_weight_of_its_own(parse: Callable[..., ModelProto]) -> None:
    """Two convolutions share a weight, and each gets its own; one whose output is read elsewhere keeps its weight."""
    text = """
        (float[1,8,9,9] x) => (float[1,8,9,9] y, float[1,8,9,9] z) {
            a = Conv<pads=[1,1,1,1]>(x, w)
            b = BatchNormalization(a, scale, shift, mean, variance)
            c = Conv<pads=[1,1,1,1]>(b, w)
            d = BatchNormalization(c, scale, shift, mean, variance)
            z = Conv<pads=[1,1,1,1]>(d, v)
            y = BatchNormalization(z, scale, shift, mean, variance)
        }
    """
    parameters = dict.fromkeys(("scale", "shift", "mean", "variance"), (8,))
    model = parse(text, weights={"w": (8, 8, 3, 3), "v": (8, 8, 3, 3)} | parameters)
    found = source_weights(model, infer_model(model))
    assert found.stored_bytes == {"w": 2304, "v": 2304}
    assert list(found.folded_bytes.values()) == [2304, 2304]
    assert list(found.copied_bytes.values()) == [(2304,), (2304,)]
    assert found.dropped == {"w"}


def test_folded_values_come_in_the_order_of_the_runtime(parse: Callable[..., ModelProto]) -> None:
    """The runtime walks back from the last node, which reads a weight that was added after what the first one makes."""
    model = parse(
        """(float[1, 64] x) => (float[1, 64] y) {
            first = Transpose(v) a = MatMul(x, first) second = Transpose(w) y = MatMul(a, second)
        }""",
        weights={"v": (64, 64), "w": (64, 64)},
    )
    assert list(source_weights(model, infer_model(model)).folded_bytes) == ["second", "first"]


def test_constants_of_nodes_come_before_the_weights_of_the_graph(parse: Callable[..., ModelProto]) -> None:
    """The runtime converts the tensors of Constant nodes first."""
    model = parse("(float[64, 64] x) => (float[64, 64] y) { y = Add(x, w) }", weights={"w": (64, 64)})
    tensor = numpy_helper.from_array(np.ones((64, 64), np.float32))
    model.graph.node.insert(0, helper.make_node("Constant", [], ["c"], value=tensor))
    assert list(source_weights(model, infer_model(model)).stored_bytes) == ["c", "w"]


def test_a_value_of_unknown_size_is_left_out(parse: Callable[..., ModelProto]) -> None:
    """A value without a known type is not counted, and what follows from it still is."""
    model = parse(MODEL, weights=WEIGHTS)
    types = infer_model(model)
    del types["turned"]
    assert source_weights(model, types).folded_bytes == {"doubled": 8192}


def test_a_lowered_graph_carries_them(lowered_light: Callable[..., LayerGraph]) -> None:
    """The sizes survive writing and reading a graph, and removing its names."""
    graph = lowered_light("squeezenet")
    assert graph.source_weights is not None
    assert LayerGraph.from_dict(graph.to_dict()).source_weights == graph.source_weights
    hidden = graph.anonymous().source_weights
    assert hidden is not None
    assert list(hidden.stored_bytes.values()) == list(graph.source_weights.stored_bytes.values())
    assert not set(hidden.stored_bytes) & set(graph.source_weights.stored_bytes)
    assert hidden.nodes == graph.source_weights.nodes
    assert len(hidden.dropped) == len(graph.source_weights.dropped)
    assert list(hidden.labels.values()) == list(graph.source_weights.labels.values())
    assert hidden.labels.keys() == hidden.stored_bytes.keys()
    assert list(hidden.copied_bytes.values()) == list(graph.source_weights.copied_bytes.values())


def test_names_of_dropped_weights_are_removed_as_well(parse: Callable[..., ModelProto]) -> None:
    """Without names, the values that are dropped are still those of the same sizes."""
    model = parse(MODEL, weights=WEIGHTS)
    found = source_weights(model, infer_model(model))
    hidden = found.renamed({})
    assert hidden.copied_bytes.keys() == hidden.folded_bytes.keys()
    assert len(hidden.dropped) == 2
    assert not hidden.dropped & found.dropped
    assert hidden.dropped < hidden.stored_bytes.keys() | hidden.folded_bytes.keys()


def test_a_graph_from_an_older_client_lacks_the_number_of_nodes(lowered_light: Callable[..., LayerGraph]) -> None:
    """The number of nodes is not known if the document does not contain it."""
    document = lowered_light("squeezenet").to_dict()
    del document["source_weights"]["nodes"]
    weights = LayerGraph.from_dict(document).source_weights
    assert weights is not None
    assert weights.nodes is None
