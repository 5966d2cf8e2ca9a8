"""Granularity: candidate cuts of a model, and the choice within a budget."""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations

import hypothesis.strategies as st
import pytest
from hypothesis import given
from onnx import ModelProto

from costmodel.ir.graph import LayerGraph
from costmodel.onnx_io.model import read_model
from costmodel.partition.decomposition import decompose, whole_model
from costmodel.partition.granularity import (
    GRANULARITIES,
    NO_ESTIMATE,
    GranularityChoice,
    candidates,
    choose_granularities,
    is_whole,
)
from tests.fakes import FakeRuntime

Graphs = Callable[..., st.SearchStrategy[LayerGraph]]
Chosen = Mapping[str, GranularityChoice | None]

errors = st.floats(0.0, 2.0)
seconds = st.floats(0.0, 100.0)
models = st.dictionaries(
    st.sampled_from("abcd"),
    st.lists(st.builds(GranularityChoice, st.sampled_from(GRANULARITIES), errors, seconds, st.booleans()), max_size=6),
    min_size=1,
)


def spent_s(chosen: Chosen) -> float:
    """Returns the measuring time of all models in seconds."""
    return math.fsum(option.seconds for option in chosen.values() if option is not None)


def error(chosen: Chosen) -> float:
    """Returns the sum of expected errors, where a model without estimate counts as a factor of e."""
    return math.fsum(NO_ESTIMATE if o is None else min(o.error, NO_ESTIMATE) for o in chosen.values())


class TestCandidates:
    """The candidate cuts of a model."""

    @given(data=st.data())
    def test_they_go_from_single_layers_to_the_model_itself(self, data: st.DataObject, graphs: Graphs) -> None:
        """Candidates are cuts of different granularity, from single layers to the whole model."""
        graph = data.draw(graphs())
        first, *others = candidates("m", graph)
        assert first == decompose("m", graph, 1)
        sizes = [cut.granularity for cut in (first, *others)]
        assert sizes == sorted(set(sizes))
        for cut in others[:-1]:
            assert cut == decompose("m", graph, cut.granularity)
            assert not is_whole(cut)
        last = others[-1] if others else first
        assert is_whole(last)
        assert (last.granularity, list(last.unique)) == (len(graph.layers), [whole_model(graph).signature])
        assert last.segments[0].layers == tuple(layer.name for layer in graph.layers)

    @given(data=st.data())
    def test_no_two_are_the_same(self, data: st.DataObject, graphs: Graphs) -> None:
        """A granularity that cuts like a smaller one is left out."""
        cuts = candidates("m", data.draw(graphs()))
        assert all(one.counts != other.counts for one, other in combinations(cuts, 2))

    def test_branches_have_no_chains(self, parse: Callable[..., ModelProto]) -> None:
        """Short branches give single layers at granularity 3, because ends and joins are in different slices."""
        text = "(float[2] x) => (float[2] y) { a = Relu(x) \n b = Exp(x) \n c = Tanh(x) \n y = Sum(a, b, c) }"
        cuts = candidates("m", FakeRuntime().lower(read_model(parse(text)), "all"))
        assert [[len(segment.layers) for segment in cut.segments] for cut in cuts] == [[1, 1, 1, 1], [1, 1, 2], [4]]


class TestChoosing:
    """The choice within a budget."""

    @given(models, seconds)
    def test_the_budget_is_kept(self, options: Mapping[str, Sequence[GranularityChoice]], budget_s: float) -> None:
        """The estimated time stays within the budget, and every model has one of its options or none."""
        chosen = choose_granularities(options, budget_s)
        assert spent_s(chosen) <= budget_s * (1 + 1e-9)
        assert chosen.keys() == options.keys()
        assert all(option is None or option in options[model] for model, option in chosen.items())

    @given(models, seconds, seconds)
    def test_more_budget_is_never_worse(
        self, options: Mapping[str, Sequence[GranularityChoice]], budget_s: float, more_s: float
    ) -> None:
        """The sum of expected errors does not increase with the budget."""
        assert (
            error(choose_granularities(options, budget_s + more_s))
            <= error(choose_granularities(options, budget_s)) + 1e-9
        )

    @given(models)
    def test_without_budget_nothing_is_measured(self, options: Mapping[str, Sequence[GranularityChoice]]) -> None:
        """Without budget, the best option that takes no time is chosen."""
        for model, option in choose_granularities(options, 0.0).items():
            free = [o.error for o in options[model] if o.seconds == 0]
            assert (None if option is None else option.error) == min(free, default=None)

    @given(models)
    def test_a_budget_for_everything_buys_the_best(self, options: Mapping[str, Sequence[GranularityChoice]]) -> None:
        """With enough budget, each model has its smallest expected error."""
        chosen = choose_granularities(options, 1e6)
        best = {model: min((o.error for o in of), default=NO_ESTIMATE) for model, of in options.items()}
        assert error(chosen) == pytest.approx(math.fsum(min(e, NO_ESTIMATE) for e in best.values()))

    def test_what_is_measured_is_free(self) -> None:
        """A measured option is chosen without budget, the coarsest of equals, unless a better one is affordable."""
        options = {
            "m": [GranularityChoice(1, 0.05, 0.0), GranularityChoice(2, 0.05, 0.0), GranularityChoice(3, 0.04, 9.0)]
        }
        assert choose_granularities(options, 8.0)["m"] == GranularityChoice(2, 0.05, 0.0)
        assert choose_granularities(options, 9.0)["m"] == GranularityChoice(3, 0.04, 9.0)

    def test_a_second_goes_where_it_buys_most(self) -> None:
        """Time goes first to the largest reduction of error per second, then to smaller steps that still fit."""
        options = {
            "slow": [
                GranularityChoice(1, 0.2, 0.0, measured=False),
                GranularityChoice(1, 0.1, 20.0),
                GranularityChoice(9, 0.01, 60.0),
            ],
            "quick": [
                GranularityChoice(1, 0.2, 0.0, measured=False),
                GranularityChoice(1, 0.1, 2.0),
                GranularityChoice(4, 0.02, 5.0),
            ],
        }

        def sizes(budget_s: float) -> list[tuple[int, float]]:
            return [
                (o.granularity, o.seconds) for o in choose_granularities(options, budget_s).values() if o is not None
            ]

        assert sizes(1.0) == [(1, 0.0), (1, 0.0)]
        assert sizes(4.0) == [(1, 0.0), (1, 2.0)]
        assert sizes(6.0) == [(1, 0.0), (4, 5.0)]
        assert sizes(30.0) == [(1, 20.0), (4, 5.0)]
        assert sizes(65.0) == [(9, 60.0), (4, 5.0)]

    def test_a_model_without_estimate_goes_first(self) -> None:
        """A first estimate of a model is worth more than a better one of another model."""
        options = {
            "known": [GranularityChoice(1, 0.05, 0.0), GranularityChoice(5, 0.01, 3.0)],
            "unknown": [GranularityChoice(1, 0.05, 3.0)],
            "hopeless": [GranularityChoice(1, 0.05, 300.0)],
        }
        chosen = choose_granularities(options, 3.0)
        assert chosen == {"known": options["known"][0], "unknown": options["unknown"][0], "hopeless": None}
