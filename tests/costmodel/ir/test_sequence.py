"""Layer sequences and what their signature depends on."""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from onnx import ModelProto, numpy_helper

from costmodel.ir.graph import Layer, LayerGraph, TensorType
from costmodel.ir.sequence import LayerSequence, SequenceLayer, Value
from costmodel.partition.decomposition import decompose, whole_model

Graphs = Callable[..., st.SearchStrategy[LayerGraph]]
Lower = Callable[..., LayerGraph]
Parse = Callable[..., ModelProto]


def renamed(graph: LayerGraph, prefix: str) -> LayerGraph:
    """Returns the graph with other names for all layers and values."""

    def new(name: str) -> str:
        return prefix + name if name else ""

    def each(names: Sequence[str]) -> tuple[str, ...]:
        return tuple(new(name) for name in names)

    return replace(
        graph,
        layers=tuple(
            replace(layer, name=new(layer.name), inputs=each(layer.inputs), outputs=each(layer.outputs))
            for layer in graph.layers
        ),
        types={new(name): kind for name, kind in reversed(graph.types.items())},
        constants={new(name): data for name, data in reversed(graph.constants.items())},
        inputs=each(graph.inputs),
        outputs=each(graph.outputs),
    )


def shuffled(graph: LayerGraph, seed: int) -> LayerGraph:
    """Returns the graph with its layers in another topological order."""
    rng = random.Random(seed)
    waiting, layers = list(graph.layers), []
    made = set(graph.inputs) | set(graph.constants) | {""}
    while waiting:
        layer = rng.choice([layer for layer in waiting if made.issuperset(layer.inputs)])
        waiting.remove(layer)
        layers.append(layer)
        made |= set(layer.outputs)
    return replace(graph, layers=tuple(layers))


def signature(graph: LayerGraph) -> str:
    """Returns the signature of a whole graph."""
    return whole_model(graph).signature


@given(data=st.data(), seed=st.integers(0, 2**32))
@settings(max_examples=200)
def test_neither_names_nor_the_order_of_branches_matter(data: st.DataObject, seed: int, graphs: Graphs) -> None:
    """Names and the order of branches do not change the signature."""
    graph = data.draw(graphs())
    assert whole_model(shuffled(renamed(graph, "other/"), seed)).text == whole_model(graph).text


@pytest.mark.parametrize("pairs", ["ab", "abc", "abcd"])
@pytest.mark.parametrize("seed", range(8))
def test_branches_that_only_share_what_they_read(pairs: str, seed: int) -> None:
    """The signature depends on which of several equal inputs a layer reads, in any order of layers."""
    kind = TensorType("float32", (4,))
    layers = [
        *(Layer(f"r{x}", "Relu", "", 6, {}, (x,), (f"r{x}",)) for x in pairs),
        *(Layer(f"e{x}", "Exp", "", 6, {}, (f"{x}2",), (f"e{x}",)) for x in pairs),
        *(Layer(f"s{x}", "Add", "", 7, {}, (x, f"{x}2"), (f"s{x}",)) for x in pairs),
    ]
    inputs = (*pairs, *(f"{x}2" for x in pairs))
    outputs = tuple(layer.outputs[0] for layer in layers)
    graph = LayerGraph(tuple(layers), dict.fromkeys((*inputs, *outputs), kind), {}, inputs, outputs, 17)
    assert signature(shuffled(graph, seed)) == signature(graph)


@pytest.mark.parametrize("seed", range(3))
def test_the_order_of_branches_of_a_real_model(seed: int, lowered_light: Lower) -> None:
    """The order of Inception's branches does not change the signature."""
    graph = lowered_light("inception_v1")
    assert signature(shuffled(renamed(graph, "x"), seed)) == signature(graph)


@given(data=st.data())
def test_what_does_the_work_matters(data: st.DataObject, graphs: Graphs) -> None:
    """Operator, version, attributes, shape, element type, edges and outputs change the signature."""
    graph = data.draw(graphs())
    position = data.draw(st.integers(0, len(graph.layers) - 1))
    layer = graph.layers[position]

    def changed(**what: object) -> LayerGraph:
        return replace(graph, layers=(*graph.layers[:position], replace(layer, **what), *graph.layers[position + 1 :]))

    made = layer.outputs[0]
    others = [
        changed(op_type="Softsign"),
        changed(domain="com.microsoft"),
        changed(since=99),
        changed(attributes={**layer.attributes, "new": {"i": 1}}),
        changed(inputs=(*layer.inputs, layer.inputs[0])),
        changed(outputs=(*layer.outputs, "another")),
        replace(graph, types={**graph.types, made: TensorType("float32", (4, 9))}),
        replace(graph, types={**graph.types, made: TensorType("float16", (4, 8))}),
        replace(graph, types={**graph.types, made: TensorType("float32", (4, 8), blocked=True)}),
        replace(graph, constants={**graph.constants, layer.inputs[0]: (1, 2)}),
    ]
    others = [replace(other, types={"another": TensorType("float32", (1,)), **other.types}) for other in others]
    if layer.inputs[0] not in (*graph.inputs, *graph.constants):
        del others[-1]  # the output of a layer cannot be a constant
    signatures = [signature(graph), *(signature(other) for other in others)]
    assert len(set(signatures)) == len(signatures)


MODEL = """(float[1,8,6] x) => (float y) <int64[2] to = {8, 6}>
{ a = Reshape(x, to) b = MatMul(a, w) c = Add(b, v) y = Softmax(c) }"""


def test_weights_do_not_matter_and_small_integers_do(parse: Parse, lower: Lower) -> None:
    """Weights do not change the signature; Reshape's shape values do."""
    proto = parse(MODEL, weights={"w": (6, 6), "v": (6,)})
    before = signature(lower(proto, "none"))
    for name, count in (("w", 36), ("v", 6)):
        tensor = next(t for t in proto.graph.initializer if t.name == name)
        tensor.raw_data = bytes(4 * count)
    assert signature(lower(proto, "none")) == before
    tensor = next(t for t in proto.graph.initializer if t.name == "to")
    tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor) - [9, 0], "to"))
    assert signature(lower(proto, "none")) != before


@pytest.mark.parametrize(
    ("operator", "shape", "one", "other", "same"),
    [
        ("Relu", "2,3", 9, 12, True),
        ("Relu", "2,3", 9, 18, False),
        ("Softmax", "2,3,4", 9, 13, False),
        ("MaxPool<kernel_shape = [2]>", "1,2,8", 12, 21, True),
        ("AveragePool<kernel_shape = [2]>", "1,2,8", 11, 18, True),
        ("AveragePool<kernel_shape = [2]>", "1,2,8", 18, 19, False),
    ],
)
def test_the_opset_of_the_model_matters_where_the_operator_changed(
    operator: str, shape: str, one: int, other: int, same: bool, parse: Parse, lower: Lower
) -> None:
    """The model's opset changes the signature only where it changes the version of an operator."""
    text = f"(float[{shape}] x) => (float y) {{ y = {operator}(x) }}"
    signatures = {signature(lower(parse(text, opset=opset))) for opset in (one, other)}
    assert (len(signatures) == 1) is same


@given(data=st.data())
def test_a_sequence_survives_its_text(data: st.DataObject, graphs: Graphs) -> None:
    """A sequence equals the one read from its canonical text, signature included."""
    sequence = whole_model(data.draw(graphs()))
    again = LayerSequence.from_text(sequence.text)
    assert again == sequence
    assert again.text == sequence.text
    assert again.signature == sequence.signature


def test_real_sequences_survive_their_text(light_name: str, lowered_light: Lower) -> None:
    """Sequences of real models equal the ones read from their canonical text."""
    for sequence in decompose(light_name, lowered_light(light_name), 3).unique.values():
        assert LayerSequence.from_text(sequence.text) == sequence


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        "{}",
        '{"layers": 1, "values": 2, "outputs": 3}',
        '{"layers": [{}], "values": [], "outputs": []}',
        '{"layers": [], "values": [["float32"]], "outputs": []}',
        '{"layers":[{"op":"A","domain":"","since":1,"attrs":{},"in":[5],"out":[0],"captured":0}],"values":[],"outputs":[0]}',
        '{"layers":[{"op":"A","domain":"","since":1,"attrs":{"a":{"f":NaN}},"in":[],"out":[],"captured":0}],"values":[],"outputs":[]}',
    ],
)
def test_what_is_no_sequence_is_refused(text: str) -> None:
    """Invalid text raises ValueError and nothing else."""
    with pytest.raises(ValueError, match=r"."):
        LayerSequence.from_text(text)


def test_a_layer_whose_outputs_are_not_read_still_runs() -> None:
    """A layer without readers has its first output exported, because runtimes would drop it otherwise."""
    kind = TensorType("float32", (2,))
    layers = (Layer("a", "Relu", "", 6, {}, ("x",), ("y",)), Layer("b", "Neg", "", 6, {}, ("x",), ("z",)))
    graph = LayerGraph(layers, dict.fromkeys("xyz", kind), {}, ("x",), ("y",), 17)
    assert len(whole_model(graph).outputs) == 2


def test_the_text_is_json_as_the_standard_has_it() -> None:
    """A sequence with NaN or infinity has no canonical text and no signature, because JSON has no such numbers."""
    for number in (math.nan, math.inf):
        layer = SequenceLayer("Elu", "", 6, {"alpha": {"f": number}}, (0,), (1,))
        kinds = (Value(TensorType("float32", (2,)), "input"), Value(TensorType("float32", (2,)), "internal"))
        with pytest.raises(ValueError, match="not JSON compliant"):
            _ = LayerSequence((layer,), kinds, (1,)).signature


@pytest.mark.parametrize("index", [2, -2, 10**30])
def test_a_text_mentions_only_values_that_it_has(index: int) -> None:
    """Indices must be positions in the list of values, or -1."""
    kinds = (Value(TensorType("float32", (2,)), "input"), Value(TensorType("float32", (2,)), "internal"))
    for inputs, outputs in (((index,), (1,)), ((0,), (index,))):
        text = LayerSequence((SequenceLayer("Elu", "", 6, {}, inputs, (1,)),), kinds, outputs).text
        with pytest.raises(ValueError, match="values that it does not have"):
            LayerSequence.from_text(text)
