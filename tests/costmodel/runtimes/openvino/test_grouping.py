"""Which operators are executed together, from what the executed graph tells."""

from dataclasses import replace

from costmodel.ir.graph import Layer, LayerGraph, TensorType
from costmodel.runtimes.openvino.executed import Primitive
from costmodel.runtimes.openvino.grouping import grouped

KIND = TensorType("float32", (1, 4, 8, 8))


def layer(name: str, op_type: str, *inputs: str) -> Layer:
    """Returns a layer whose output is called like the layer."""
    return Layer(name, op_type, "", 13, {}, inputs, (name,))


def graph(*layers: Layer) -> LayerGraph:
    """Returns a graph of layers that read "x" and each other; its output is that of the last layer."""
    types = {"x": KIND, **{name: KIND for one in layers for name in (*one.inputs, *one.outputs)}}
    return LayerGraph(layers, types, {}, ("x",), (layers[-1].name,), 13)


def primitive(kind: str, operators: str, *inputs: int) -> Primitive:
    """Returns a primitive that reads the first outputs of others."""
    return Primitive(
        "",
        kind,
        "",
        tuple(operators.split()),
        ("abcd",),
        ("f32",),
        (KIND.shape,),
        tuple((position, 0) for position in inputs),
    )


def groups(layers: LayerGraph, *primitives: Primitive) -> list[tuple[str, ...]]:
    """Returns the names of the operators of each group."""
    return [tuple(one.name for one in group.layers) for group in grouped(layers, primitives)]


def test_operators_of_one_primitive_are_one_group() -> None:
    """Operators that a primitive names are executed together."""
    model = graph(layer("a", "Conv", "x"), layer("b", "Relu", "a"), layer("c", "MaxPool", "b"))
    found = groups(model, primitive("Input", ""), primitive("Convolution", "a b", 0), primitive("Pooling", "c", 1))
    assert found == [("a", "b"), ("c",)]


def test_an_operator_whose_name_is_lost_belongs_to_its_reader() -> None:
    """A product whose name a transformation dropped is executed with the addition that names the primitive."""
    model = graph(layer("a", "MatMul", "x"), layer("b", "Add", "a"))
    assert groups(model, primitive("Input", ""), primitive("FullyConnected", "b", 0)) == [("a", "b")]


def test_a_quantisation_without_a_primitive_belongs_to_what_it_quantises() -> None:
    """A quantisation is fused with the layer before it, not with the one behind it."""
    model = graph(layer("a", "Conv", "x"), layer("q", "QuantizeLinear", "a"), layer("b", "Conv", "q"))
    found = groups(model, primitive("Input", ""), primitive("Convolution", "a", 0), primitive("Convolution", "b", 1))
    assert found == [("a", "q"), ("b",)]


def test_a_primitive_without_a_name_belongs_to_its_reader() -> None:
    """A normalisation of which only the last primitive is named is executed by both."""
    model = graph(layer("a", "LayerNormalization", "x"))
    found = grouped(model, [primitive("Input", ""), primitive("MVN", "new", 0), primitive("Subgraph", "a", 1)])
    assert [group.primitives for group in found] == [(1, 2)]


def test_a_primitive_called_like_an_output_is_the_operator_that_makes_it() -> None:
    """The last operator is not joined with the one before it if its primitive has the name of the model's output."""
    model = graph(layer("a", "Conv", "x"), layer("b", "Resize", "a"))
    model = replace(model, outputs=("y",), layers=(model.layers[0], replace(model.layers[1], outputs=("y",))))
    model = replace(model, types={**model.types, "y": KIND})
    found = groups(model, primitive("Input", ""), primitive("Convolution", "a", 0), primitive("Subgraph", "y", 1))
    assert found == [("a",), ("b",)]


def test_operators_and_primitives_without_names_are_matched_by_what_they_compute() -> None:
    """Transposed convolutions lose their names, but are no part of the convolution before them."""
    model = graph(layer("a", "Conv", "x"), layer("b", "ConvTranspose", "a"), layer("c", "ConvTranspose", "b"))
    found = grouped(
        model,
        [
            primitive("Input", ""),
            primitive("Convolution", "a", 0),
            primitive("Deconvolution", "new", 1),
            primitive("Deconvolution", "other", 2),
        ],
    )
    assert [([one.name for one in group.layers], group.primitives) for group in found] == [
        (["a"], (1,)), (["b"], (2,)), (["c"], (3,))
    ]  # fmt: skip


def test_a_part_of_an_operator_is_executed_with_the_operator() -> None:
    """The transposition of an argument, named after the operator and a slash, belongs to the operator."""
    model = graph(layer("a", "MatMul", "x"), layer("b", "Add", "a"))
    found = grouped(
        model, [primitive("Input", ""), primitive("Transpose", "a/transpose_b", 0), primitive("FullyConnected", "b", 1)]
    )
    assert [(len(group.layers), group.primitives) for group in found] == [(2, (1, 2))]


def test_groups_that_read_each_other_become_one() -> None:
    """If one group reads a result of another and the other way round, neither can run first: they are one layer."""
    model = graph(layer("a", "Relu", "x"), layer("b", "Exp", "a"), layer("c", "Add", "a", "b"))
    found = groups(model, primitive("Input", ""), primitive("Subgraph", "a c", 0), primitive("Math", "b", 1))
    assert found == [("a", "b", "c")]


def test_equal_dequantisations_belong_to_their_readers() -> None:
    """OpenVINO computes equal dequantisations once, under any of their names, which joins no groups."""
    model = graph(
        layer("q", "QuantizeLinear", "x"),
        layer("d1", "DequantizeLinear", "q"),
        layer("d2", "DequantizeLinear", "q"),
        layer("a", "MatMul", "d1"),
        layer("b", "Add", "a", "d2"),
    )
    found = groups(
        model,
        primitive("Input", ""),
        replace(primitive("FakeQuantize", "q", 0), dtypes=("u8",)),
        primitive("FullyConnected", "a", 1),
        primitive("Subgraph", "d1 b", 2, 1),
    )
    assert found == [("q",), ("d1", "a"), ("d2", "b")]


def test_what_only_reads_constants_is_not_executed() -> None:
    """A primitive without an input of the model runs once, while the model is loaded."""
    model = graph(layer("a", "Add", "x"))
    found = grouped(
        model,
        [
            primitive("Const", ""),
            primitive("Transpose", "w", 0),
            primitive("Input", ""),
            primitive("Eltwise", "a", 1, 2),
        ],
    )
    assert [group.primitives for group in found] == [(3,)]
