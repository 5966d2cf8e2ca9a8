"""Covers: properties of every cover, and optimality on graphs small enough to try all covers."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256

import hypothesis.strategies as st
import pytest
from hypothesis import given
from onnx import ModelProto

from costmodel.ir.graph import Layer, LayerGraph, TensorType
from costmodel.ir.sequence import LayerSequence
from costmodel.partition.cover import Price, cheapest_cover, corpus_cover
from costmodel.partition.decomposition import CHEAPEST, Decomposition, decompose, whole_model

Graphs = Callable[..., st.SearchStrategy[LayerGraph]]
Lowered = Callable[..., LayerGraph]

granularities = st.integers(1, 5)
seeds = st.integers(0, 1 << 16)


def chance(seed: int) -> Price:
    """Returns prices from 0 to 3 by signature; a quarter of the sequences is measured."""

    def price(windows: Mapping[str, LayerSequence]) -> dict[str, float]:
        return {signature: float(sha256(f"{seed} {signature}".encode()).digest()[0] % 4) for signature in windows}

    return price


def equal(price_of_each: float) -> Price:
    """Returns the same price for all sequences."""
    return lambda windows: dict.fromkeys(windows, price_of_each)


def time(covers: Sequence[Decomposition], price: Price) -> float:
    """Returns the new benchmarking time of the unique sequences."""
    return sum(price({s: sequence for cover in covers for s, sequence in cover.unique.items()}).values())


def cost(cover: Decomposition, price: Price) -> tuple[float, int]:
    """Returns the new benchmarking time and the number of segments."""
    return time([cover], price), len(cover.segments)


def distinct(graph: LayerGraph) -> LayerGraph:
    """Returns the graph with all layers made different."""
    layers = tuple(replace(layer, attributes={"axis": {"i": i}}) for i, layer in enumerate(graph.layers))
    return replace(graph, layers=layers)


def window_of(graph: LayerGraph, begin: int, end: int) -> LayerSequence | None:
    """Returns layers `begin` to `end` as a sequence; None if one of them reads none of the earlier ones."""
    layers = graph.layers[begin:end]
    for position in range(1, len(layers)):
        if not any(set(before.outputs).intersection(layers[position].inputs) for before in layers[:position]):
            return None
    read_elsewhere = {name for layer in graph.layers[end:] for name in layer.inputs}
    leaving = read_elsewhere.union(graph.outputs)
    outputs = tuple(name for layer in layers for name in layer.outputs if name in leaving)
    return whole_model(replace(graph, layers=layers, outputs=outputs))


def windows_of(graph: LayerGraph, granularity: int) -> dict[tuple[int, int], LayerSequence]:
    """Returns every window of at most `granularity` layers, by its first and last position."""
    count = len(graph.layers)
    runs = [(i, j) for i in range(count) for j in range(i + 1, min(i + granularity, count) + 1)]
    return {run: window for run in runs if (window := window_of(graph, *run)) is not None}


def least_cost(graph: LayerGraph, granularity: int, price: Price) -> tuple[float, int]:
    """Returns the least cost of all covers, by trying each."""
    windows = {run: window.signature for run, window in windows_of(graph, granularity).items()}
    prices = price({window.signature: window for window in windows_of(graph, granularity).values()})

    def covers(begin: int) -> Iterator[list[str]]:
        if begin == len(graph.layers):
            yield []
        for (start, end), signature in windows.items():
            if start == begin:
                yield from ([signature, *rest] for rest in covers(end))

    return min((sum(prices[signature] for signature in set(cover)), len(cover)) for cover in covers(0))


def chain(*operators: str) -> LayerGraph:
    """Returns a chain of layers on one shape."""
    names = [f"v{i}" for i in range(len(operators) + 1)]
    layers = tuple(Layer(f"l{i}", op, "", 6, {}, (names[i],), (names[i + 1],)) for i, op in enumerate(operators))
    return LayerGraph(layers, dict.fromkeys(names, TensorType("float32", (4,))), {}, ("v0",), (names[-1],), 17)


def kinds(cover: Decomposition) -> list[str]:
    """Returns the kind of each segment."""
    return [segment.sequence.kind for segment in cover.segments]


@given(data=st.data(), granularity=granularities, seed=seeds)
def test_a_cover_is_a_decomposition(data: st.DataObject, granularity: int, seed: int, graphs: Graphs) -> None:
    """A cover has every layer once and in order, within the granularity, and reads from earlier segments only."""
    graph = data.draw(graphs())
    cover = cheapest_cover("m", graph, granularity, chance(seed))
    assert (cover.model, cover.granularity, cover.cover) == ("m", granularity, CHEAPEST)
    assert [name for segment in cover.segments for name in segment.layers] == [layer.name for layer in graph.layers]
    begin = 0
    for position, segment in enumerate(cover.segments):
        assert 1 <= len(segment.layers) <= granularity
        window = window_of(graph, begin, begin + len(segment.layers))
        assert window is not None
        assert segment.sequence == window
        assert all(needed < position for needed in segment.predecessors)
        begin += len(segment.layers)


@given(data=st.data(), granularity=granularities)
def test_every_window_is_priced_once(data: st.DataObject, granularity: int, graphs: Graphs) -> None:
    """Each window is priced once, under its signature, and nothing else is priced."""
    graph = data.draw(graphs())
    asked: list[Mapping[str, LayerSequence]] = []

    def price(windows: Mapping[str, LayerSequence]) -> dict[str, float]:
        asked.append(windows)
        return dict.fromkeys(windows, 1.0)

    cheapest_cover("m", graph, granularity, price)
    (windows,) = asked
    assert dict(windows) == {window.signature: window for window in windows_of(graph, granularity).values()}


@given(data=st.data(), granularity=granularities, seed=seeds)
def test_a_cover_never_costs_more_than_a_fixed_cut(
    data: st.DataObject, granularity: int, seed: int, graphs: Graphs
) -> None:
    """A cover needs no more new time than the fixed cut or single layers, and in ties no more sequences."""
    graph = data.draw(graphs())
    price = chance(seed)
    cover = cheapest_cover("m", graph, granularity, price)
    for finer in (1, granularity):
        assert cost(cover, price) <= cost(decompose("m", graph, finer), price)


@given(data=st.data(), granularity=granularities, seed=seeds)
def test_without_repeats_a_cover_is_the_best_there_is(
    data: st.DataObject, granularity: int, seed: int, graphs: Graphs
) -> None:
    """Without repeats, a cover has the least new time, and the fewest sequences among those."""
    graph = distinct(data.draw(graphs(max_layers=8)))
    price = chance(seed)
    cover = cheapest_cover("m", graph, granularity, price)
    assert cost(cover, price) == least_cost(graph, granularity, price)


@given(data=st.data(), granularity=granularities)
def test_where_all_is_known_a_cover_has_the_fewest_sequences(
    data: st.DataObject, granularity: int, graphs: Graphs
) -> None:
    """If everything is measured, a cover has the fewest sequences, with or without repeats."""
    graph = data.draw(graphs(max_layers=8))
    assert cost(cheapest_cover("m", graph, granularity, equal(0.0)), equal(0.0)) == least_cost(
        graph, granularity, equal(0.0)
    )


@given(data=st.data(), granularity=granularities)
def test_where_nothing_is_known_and_all_cost_the_same_a_cover_has_the_fewest_sequences(
    data: st.DataObject, granularity: int, graphs: Graphs
) -> None:
    """With equal prices and no repeats a cover has the fewest sequences; with repeats, the fewest unique ones."""
    graph = distinct(data.draw(graphs(max_layers=8)))
    cover = cheapest_cover("m", graph, granularity, equal(1.0))
    assert len(cover.segments) == least_cost(graph, granularity, equal(1.0))[1]


@given(data=st.data(), seed=seeds)
def test_single_layers_can_be_covered_in_one_way(data: st.DataObject, seed: int, graphs: Graphs) -> None:
    """At granularity 1 the cover is the fixed cut."""
    graph = data.draw(graphs())
    assert cheapest_cover("m", graph, 1, chance(seed)).segments == decompose("m", graph, 1).segments


def test_what_is_measured_is_found_where_it_lies() -> None:
    """A measured sequence is found across the positions of the fixed cut."""
    graph = chain("Relu", "Tanh", "Exp", "Neg")
    known = {segment.sequence.signature for segment in decompose("n", chain("Tanh", "Exp"), 2).segments}
    assert kinds(decompose("m", graph, 2)) == ["Relu+Tanh", "Exp+Neg"]

    def price(windows: Mapping[str, LayerSequence]) -> dict[str, float]:
        return {s: 0.0 if s in known else float(len(sequence.layers)) for s, sequence in windows.items()}

    assert kinds(cheapest_cover("m", graph, 2, price)) == ["Relu", "Tanh+Exp", "Neg"]


def test_what_repeats_is_benchmarked_once() -> None:
    """A repeated sequence is benchmarked once, so that two equal pairs are cheaper than a triple and a layer."""
    assert kinds(cheapest_cover("m", chain("Relu", "Tanh", "Relu", "Tanh"), 3, equal(1.0))) == ["Relu+Tanh"] * 2


def test_layers_that_can_only_run_together_stay_together() -> None:
    """Atomic groups are not split, even if longer than the granularity or not contiguous in the graph."""
    layers = (("a", "x", "s"), ("b", "x", "t"), ("c", "s", "u"), ("d", "ut", "y"))
    made = tuple(Layer(name, "Op", "", 1, {}, tuple(reads), tuple(makes)) for name, reads, makes in layers)
    types = {name: TensorType("float32", (2,)) for name in "xtuy"} | {"s": TensorType("sequence", ())}
    graph = LayerGraph(made, types, {}, ("x",), ("y",), 17)
    covers = {g: ["".join(p.layers) for p in cheapest_cover("m", graph, g, equal(1.0)).segments] for g in (1, 2, 3)}
    assert covers == {1: ["ac", "b", "d"], 2: ["ac", "bd"], 3: ["ac", "bd"]}


def test_what_a_layer_must_be_fed_is_not_computed_in_its_window(
    parse: Callable[..., ModelProto], lower: Callable[..., LayerGraph]
) -> None:
    """A computed shape is in another window than the Reshape that reads it, whatever the price."""
    model = parse(
        """(float[2,6,4] x) => (float[n,m] y)
        <int64 zero = {0}, int64[1] first = {0}, int64[1] rest = {-1}>
        { s = Shape(x) b = Gather(s, zero) u = Unsqueeze(b, first) to = Concat<axis = 0>(u, rest)
          r = Relu(x) y = Reshape(r, to) }"""
    )
    found = kinds(cheapest_cover("m", lower(model, "none"), 10, equal(1.0)))
    assert not any("Concat" in kind and "Reshape" in kind for kind in found)


@pytest.mark.parametrize("seed", range(3))
def test_every_sequence_of_a_cover_runs(
    lowered_light: Lowered, run_alone: Callable[[LayerSequence], None], seed: int
) -> None:
    """Every segment of a real model's cover runs in isolation."""
    for sequence in cheapest_cover("m", lowered_light("squeezenet"), 5, chance(seed)).unique.values():
        run_alone(sequence)


def test_a_granularity_below_one_is_refused() -> None:
    """A granularity below one is refused."""
    with pytest.raises(ValueError, match="at least 1, not 0"):
        cheapest_cover("m", chain("Relu"), 0, equal(1.0))


class TestCorpus:
    """Several models that are benchmarked together."""

    @given(data=st.data(), granularity=granularities, seed=seeds)
    def test_covers_never_cost_more_than_fixed_cuts(
        self, data: st.DataObject, granularity: int, seed: int, graphs: Graphs
    ) -> None:
        """The covers together need no more than fixed cuts, and each covers its own model."""
        drawn = {name: data.draw(graphs()) for name in ("one", "two", "three")}
        covers = corpus_cover(drawn, granularity, chance(seed))
        for cover, (name, graph) in zip(covers, drawn.items(), strict=True):
            assert (cover.model, cover.granularity, cover.cover) == (name, granularity, CHEAPEST)
            assert [name for segment in cover.segments for name in segment.layers] == [
                layer.name for layer in graph.layers
            ]
        for finer in (1, granularity):
            cuts = [decompose(name, graph, finer) for name, graph in drawn.items()]
            assert time(covers, chance(seed)) <= time(cuts, chance(seed))

    @given(data=st.data(), granularity=granularities, seed=seeds)
    def test_a_second_copy_needs_nothing_new(
        self, data: st.DataObject, granularity: int, seed: int, graphs: Graphs
    ) -> None:
        """A second copy of a model is cut alike and needs nothing new."""
        graph = data.draw(graphs())
        first, second = corpus_cover({"one": graph, "two": graph}, granularity, chance(seed))
        assert time([first, second], chance(seed)) == time([first], chance(seed))

    def test_models_are_cut_alike(self) -> None:
        """An additional first layer shifts fixed cuts, but in a cover the other windows remain."""
        graphs = {"short": chain("Relu", "Tanh", "Exp", "Neg"), "long": chain("Abs", "Relu", "Tanh", "Exp", "Neg")}
        covers = corpus_cover(graphs, 2, equal(1.0))
        assert [kinds(cover) for cover in covers] == [["Relu+Tanh", "Exp+Neg"], ["Abs", "Relu+Tanh", "Exp+Neg"]]
        fixed = [decompose(name, graph, 2) for name, graph in graphs.items()]
        assert [time(cuts, equal(1.0)) for cuts in (covers, fixed)] == [3, 5]
