"""Constructed and end-to-end latency, compared with sums made by hand."""

import math
from dataclasses import replace

import hypothesis.strategies as st
import pytest
from hypothesis import given

from costmodel.jobs.reproduction import paper
from costmodel.jobs.reproduction.construction import Construction, constructions, summarise
from costmodel.partition.decomposition import decompose, whole_model
from costmodel.store.store import Store
from costmodel.training.corpora.dlbricks import RECIPES
from tests.fakes import elementwise, measured
from tests.reproduced import FAMILIES, LAYERS_US, LOWERING, Graphs, put, put_time

ratio = st.floats(0.1, 10.0)


def found(store: Store) -> dict[tuple[str, int], Construction]:
    """Every model of the corpus at every granularity."""
    models = [model for model in store.models() if model.lowering == LOWERING]
    return {(c.model, c.granularity): c for c in constructions(models, store.timings("fake-1"), FAMILIES)}


def test_a_model_is_the_sum_of_its_layers(store: Store) -> None:
    """The constructed latency counts repeated layers as often as they occur, without call overheads."""
    deep = found(store)["deep", 1]
    assert deep.sequential_us == 10.0 + 10.0 + 20.0
    assert deep.end_to_end_us == 40.0
    assert deep.ratio == 1.0
    assert deep.unique_share == 2 / 3


def test_the_critical_path_is_that_of_the_slowest_branch(store: Store) -> None:
    """The critical path follows the slowest branch; for a chain it is the sum."""
    both = found(store)
    assert both["wide", 1].sequential_us == 10.0 + 30.0 + 5.0
    assert both["wide", 1].parallel_us == 30.0 + 5.0
    assert both["deep", 1].parallel_us == both["deep", 1].sequential_us


def test_each_granularity_is_a_construction_of_its_own(store: Store) -> None:
    """Each granularity is compared with the same end-to-end latency."""
    pairs = found(store)["deep", 2]
    assert (pairs.sequential_us, pairs.end_to_end_us) == (18.0 + 20.0, 40.0)


def test_a_layer_that_was_measured_several_times_counts_with_the_median(store: Store, layer_graphs: Graphs) -> None:
    """A layer that was measured several times counts with the median."""
    before = found(store)
    for sequence in decompose("deep", layer_graphs["deep"]).unique.values():
        put_time(store, sequence, 999.0)
        put_time(store, sequence, LAYERS_US[sequence.kind])
    assert found(store) == before


def test_what_is_not_measured_whole_and_in_layers_is_left_out(empty: Store, layer_graphs: Graphs) -> None:
    """Models with a missing measurement are left out, because their sum would be too small."""
    graph = layer_graphs["deep"]
    put(empty, "deep", graph)
    put_time(empty, whole_model(graph), 40.0)
    relu, tanh = decompose("deep", graph).unique.values()
    put_time(empty, relu, 10.0)
    assert found(empty) == {}
    put_time(empty, tanh, 20.0)
    assert set(found(empty)) == {("deep", 1)}


def test_another_corpus_is_not_in_it(store: Store, layer_graphs: Graphs) -> None:
    """Models of other corpora on the same system are left out."""
    put(store, "other", layer_graphs["deep"])
    assert {name for name, _ in found(store)} == {"deep", "wide"}


def test_a_summary_says_what_the_paper_says(store: Store) -> None:
    """A summary has the paper's numbers: mean, range, shares, repetition and benchmarking time saved."""
    both = [construction for (_, granularity), construction in found(store).items() if granularity == 1]
    summary = summarise(both, store.timings("fake-1"))
    assert (summary.granularity, summary.models) == (1, 2)
    assert summary.geometric_mean == pytest.approx(math.sqrt(1.0 * 1.25))
    assert (summary.lowest, summary.highest) == (1.0, 1.25)
    assert (summary.within_5pct, summary.within_10pct) == (0.5, 0.5)
    # Relu occurs in both models, and twice in one of them: four layers are timed instead of six.
    assert (summary.sequences, summary.unique, summary.unique_share) == (6, 4, 4 / 6)
    # Each of the four has a call overhead in isolation.
    assert summary.speedup == pytest.approx((40.0 + 36.0) / (12.0 + 22.0 + 32.0 + 7.0))


@given(st.lists(ratio, min_size=1, max_size=20), st.floats(0.5, 2.0))
def test_a_summary_follows_its_models(ratios: list[float], factor: float) -> None:
    """The mean lies in the range, the shares are nested, and sums that are all too large remain visible."""
    sequence = elementwise(3)
    times = {sequence.signature: measured(sequence, [10.0]).timing}
    models = [Construction(f"m{i}", 1, 10.0 / r, 10.0, 10.0, (sequence.signature,)) for i, r in enumerate(ratios)]
    summary = summarise(models, times)
    assert summary.lowest <= summary.geometric_mean * (1 + 1e-9)
    assert summary.geometric_mean <= summary.highest * (1 + 1e-9)
    assert 0.0 <= summary.within_5pct <= summary.within_10pct <= 1.0
    assert summary.within_10pct == pytest.approx(sum(abs(r - 1) <= 0.10 for r in ratios) / len(ratios), abs=0.051)
    scaled = summarise([replace(model, sequential_us=factor * 10.0) for model in models], times)
    assert scaled.geometric_mean == pytest.approx(factor * summary.geometric_mean)
    assert scaled.speedup == summary.speedup


def test_the_papers_numbers_are_those_of_its_table() -> None:
    """The stored numbers of the paper are consistent: layer counts, and a worst model beyond its mean."""
    assert sum(recipe.published_layers for recipe in RECIPES) == paper.LAYERS
    assert paper.RANGE[0] < paper.GEOMETRIC_MEAN < paper.RANGE[1] < 1.0
    assert 0.0 < paper.UNIQUE_LAYERS / paper.LAYERS < 1.0
