"""Decomposition: properties of every cut, and statistics over models."""

from collections.abc import Callable
from dataclasses import replace

import hypothesis.strategies as st
import pytest
from hypothesis import given
from onnx import ModelProto

from costmodel.ir.graph import LayerGraph
from costmodel.ir.sequence import LayerSequence
from costmodel.partition.decomposition import Decomposition, corpus_statistics, decompose, jaccard, whole_model

Graphs = Callable[..., st.SearchStrategy[LayerGraph]]
Lowered = Callable[..., LayerGraph]

GRANULARITIES = (1, 2, 3, 5, 10)


def check_cut(graph: LayerGraph, decomposition: Decomposition) -> None:
    """Asserts the properties of every cut of every graph."""
    segments = decomposition.segments
    assert [name for segment in segments for name in segment.layers] == [layer.name for layer in graph.layers]
    assert all(1 <= len(segment.layers) <= decomposition.granularity for segment in segments)
    assert all(len(segment.layers) == len(segment.sequence.layers) for segment in segments)
    made_by = {name: layer.name for layer in graph.layers for name in layer.outputs if name}
    segment_of = {name: position for position, segment in enumerate(segments) for name in segment.layers}
    layers = {layer.name: layer for layer in graph.layers}
    for position, segment in enumerate(segments):
        read = {made_by[name] for layer in segment.layers for name in layers[layer].inputs if name in made_by}
        assert set(segment.predecessors) == {segment_of[layer] for layer in read} - {position}
        assert all(needed < position for needed in segment.predecessors)
    assert sum(decomposition.counts.values()) == len(segments)
    assert set(decomposition.counts) == set(decomposition.unique)
    assert len(decomposition.unique) == round(decomposition.unique_share * len(segments))


@given(data=st.data(), granularity=st.integers(1, 10))
def test_a_cut_is_a_partition(data: st.DataObject, granularity: int, graphs: Graphs) -> None:
    """Segments have every layer once and in order, at most G each, and depend on earlier segments only."""
    graph = data.draw(graphs())
    check_cut(graph, decompose("m", graph, granularity))


@given(data=st.data(), granularity=st.integers(1, 10))
def test_a_sequence_is_a_chain(data: st.DataObject, granularity: int, graphs: Graphs) -> None:
    """Every layer of a segment but the first reads another layer of the segment."""
    for segment in decompose("m", data.draw(graphs()), granularity).segments:
        for position, layer in enumerate(segment.sequence.layers[1:], 1):
            before = {i for other in segment.sequence.layers[:position] for i in other.outputs}
            assert before.intersection(layer.inputs)


@given(data=st.data())
def test_granularity_one_is_one_layer_each(data: st.DataObject, graphs: Graphs) -> None:
    """At G = 1 there is one segment per layer."""
    graph = data.draw(graphs())
    assert len(decompose("m", graph).segments) == len(graph.layers)


@given(data=st.data())
def test_a_whole_model_is_one_sequence(data: st.DataObject, graphs: Graphs) -> None:
    """The whole model is one sequence with every layer; its outputs are the model's and unread values."""
    graph = data.draw(graphs())
    whole = whole_model(graph)
    assert len(whole.layers) == len(graph.layers)
    read = {name for layer in graph.layers for name in layer.inputs}
    leaving = {name for layer in graph.layers for name in layer.outputs if name in graph.outputs}
    dangling = [layer for layer in graph.layers if not leaving.union(read).intersection(layer.outputs)]
    assert len(whole.outputs) == len(leaving) + len(dangling)


@pytest.mark.parametrize("granularity", GRANULARITIES)
def test_every_light_model_is_cut(granularity: int, light_name: str, lowered_light: Lowered) -> None:
    """The properties hold for real models with repeated layers."""
    graph = lowered_light(light_name)
    decomposition = decompose(light_name, graph, granularity)
    check_cut(graph, decomposition)
    assert decomposition.model == light_name


def test_a_granularity_below_one_is_refused(lowered_light: Lowered) -> None:
    """A granularity below one is refused."""
    with pytest.raises(ValueError, match="at least 1, not 0"):
        decompose("m", lowered_light("squeezenet"), 0)


def test_the_slowest_part_of_resnet_repeats(lowered_light: Lowered) -> None:
    """Fewer than 60% of ResNet-50's layers are unique, because its stages have equal blocks."""
    decomposition = decompose("resnet50", lowered_light("resnet50"))
    assert decomposition.unique_share < 0.6
    assert max(decomposition.counts.values()) >= 5


def test_every_sequence_of_every_light_model_runs(
    light_name: str, lowered_light: Lowered, run_isolated: Callable[..., None]
) -> None:
    """At G = 1, 2, 3, 5 and 10, every sequence runs in isolation on synthetic weights."""
    run_isolated(lowered_light(light_name), *GRANULARITIES)


def test_inputs_that_a_layer_constrains_are_not_computed_in_its_sequence(
    parse: Callable[..., ModelProto], lower: Callable[..., LayerGraph], run_isolated: Callable[..., None]
) -> None:
    """A computed shape is in another segment than the Reshape that reads it."""
    model = parse(
        """(float[2,6,4] x) => (float[n,m] y)
        <int64 zero = {0}, int64[1] first = {0}, int64[1] rest = {-1}>
        { s = Shape(x) b = Gather(s, zero) u = Unsqueeze(b, first) to = Concat<axis = 0>(u, rest)
          r = Relu(x) y = Reshape(r, to) }"""
    )
    graph = lower(model, "none")
    for granularity in GRANULARITIES:
        kinds = [segment.sequence.kind for segment in decompose("m", graph, granularity).segments]
        assert not any("Concat" in kind and "Reshape" in kind for kind in kinds)
    run_isolated(graph, *GRANULARITIES)


@pytest.fixture(scope="module")
def corpus(light_models: dict[str, object], lowered_light: Lowered) -> list[Decomposition]:
    """Every light model at G = 1."""
    return [decompose(name, lowered_light(name)) for name in light_models]


def test_similarity_is_symmetric_and_whole_with_oneself(corpus: list[Decomposition]) -> None:
    """The Jaccard index of two models is symmetric and between 0 and 1; a model with itself has 1."""
    signatures = [set(decomposition.unique) for decomposition in corpus]
    for one in signatures:
        assert jaccard(one, one) == 1
        for other in signatures:
            assert 0 <= jaccard(one, other) == jaccard(other, one) <= 1


def test_models_of_one_family_are_more_alike_than_others(corpus: list[Decomposition]) -> None:
    """Two Inceptions are more similar than Inception and VGG."""
    by_name = {decomposition.model: set(decomposition.unique) for decomposition in corpus}
    assert jaccard(by_name["inception_v1"], by_name["inception_v2"]) > jaccard(by_name["densenet121"], by_name["vgg19"])


def test_statistics_over_a_corpus_add_up(corpus: list[Decomposition]) -> None:
    """The totals, unique layers and repeats of the models add up to those of the corpus."""
    statistics = corpus_statistics(corpus)
    assert statistics.total == sum(len(decomposition.segments) for decomposition in corpus)
    assert statistics.unique == len(set().union(*(decomposition.unique for decomposition in corpus)))
    assert statistics.unique_share == statistics.unique / statistics.total
    assert sum(statistics.repeats_by_kind.values()) == statistics.total - statistics.unique
    assert list(statistics.repeats_by_kind.values()) == sorted(statistics.repeats_by_kind.values(), reverse=True)


def test_a_model_measured_twice_costs_nothing_new(corpus: list[Decomposition]) -> None:
    """A second copy of a corpus adds to the total, but not to the unique sequences."""
    once, twice = corpus_statistics(corpus), corpus_statistics([*corpus, *corpus])
    assert (twice.total, twice.unique) == (2 * once.total, once.unique)


def test_a_model_without_sequences_in_common(lowered_light: Lowered) -> None:
    """Models without common sequences have similarity 0."""
    graph = lowered_light("squeezenet")
    strange = replace(graph, layers=tuple(replace(layer, since=77) for layer in graph.layers))
    assert jaccard(decompose("a", graph).unique.keys(), decompose("b", strange).unique.keys()) == 0


def test_sequences_say_nothing_of_their_model(corpus: list[Decomposition]) -> None:
    """The text of a sequence contains no names of layers or values."""
    for decomposition in corpus:
        text = "".join(sequence.text for sequence in decomposition.unique.values())
        assert not any(name in text for segment in decomposition.segments for name in segment.layers if len(name) > 3)


def test_the_kind_of_a_sequence_lists_its_operators() -> None:
    """The kind of a sequence lists its operators, such as "Conv+Relu"."""
    sequence = LayerSequence.from_text(
        '{"layers":[{"op":"Conv","domain":"","since":1,"attrs":{},"in":[0],"out":[1],"captured":0},'
        '{"op":"Relu","domain":"","since":6,"attrs":{},"in":[1],"out":[2],"captured":0}],'
        '"values":[["float32",[1],0,"input",null],["float32",[1],0,"internal",null],["float32",[1],0,"internal",null]],'
        '"outputs":[2]}'
    )
    assert sequence.kind == "Conv+Relu"
