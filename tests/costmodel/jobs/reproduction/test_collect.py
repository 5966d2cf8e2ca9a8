"""Collection of the reproduction's results from a store."""

import json

from costmodel.jobs.reproduction.collect import collect_corpus
from costmodel.partition.decomposition import decompose, whole_model
from costmodel.store.store import Store
from tests.fakes import HOST
from tests.reproduced import FAMILIES, LOWERING, Graphs, put


def test_what_a_system_says_of_a_corpus(store: Store) -> None:
    """The results have every model and a summary at every measured granularity, and the kinds of all layers."""
    result = collect_corpus(store, "fake-1", LOWERING, "tiny", FAMILIES)
    assert result is not None
    assert (result.corpus, result.system) == ("tiny", "fake-1")
    assert [(c.model, c.granularity) for c in result.found] == [("deep", 1), ("deep", 2), ("wide", 1), ("wide", 2)]
    assert list(result.summaries) == [1, 2]
    assert [summary.models for summary in result.summaries.values()] == [2, 2]
    assert sorted(result.kinds.values()) == ["Add", "Exp", "Relu", "Tanh"]
    assert [construction.model for construction in result.at(1)] == ["wide", "deep"]  # branches before chains


def test_numbers_come_with_what_they_belong_to(store: Store) -> None:
    """Processor, runtime, settings, statistic and time are part of the results and can be written as JSON."""
    result = collect_corpus(store, "fake-1", LOWERING, "tiny", FAMILIES)
    assert result is not None
    environment = json.loads(json.dumps(result.environment))
    assert environment["processor"] == HOST.model_name
    assert (environment["runtime"], environment["threads"], environment["level"]) == ("fake 1.0", 1, "all")
    assert environment["statistic"] == "models: quantile 0.5 of all runs; layers: mean of uninterrupted runs"
    assert environment["measured_from"] == environment["measured_to"] == "2026-01-01T00:00:00.000+00:00"


def test_nothing_measured_is_no_result(empty: Store, layer_graphs: Graphs) -> None:
    """An unknown system, and models without measurements, give no result."""
    assert collect_corpus(empty, "nobody", LOWERING, "tiny", FAMILIES) is None
    assert collect_corpus(empty, "fake-1", LOWERING, "tiny", FAMILIES) is None
    for name, graph in layer_graphs.items():
        put(empty, name, graph)
    assert collect_corpus(empty, "fake-1", LOWERING, "tiny", FAMILIES) is None


def test_another_lowering_is_another_result(store: Store, layer_graphs: Graphs) -> None:
    """Models at another optimisation level are a separate result."""
    assert collect_corpus(store, "fake-1", "fake-1.0-none-simulated", "tiny", FAMILIES) is None
    put(store, "deep", layer_graphs["deep"], lowering="fake-1.0-none-simulated")
    other = collect_corpus(store, "fake-1", "fake-1.0-none-simulated", "tiny", FAMILIES)
    assert other is not None
    assert [(c.model, c.granularity) for c in other.found] == [("deep", 1)]
    signatures = {whole_model(layer_graphs["deep"]).signature, *decompose("deep", layer_graphs["deep"]).unique}
    assert set(other.kinds) <= signatures


def test_a_system_of_another_host_was_lowered_there(store: Store, layer_graphs: Graphs) -> None:
    """Without a given lowering, the one with the most measurements is used; families come from the store."""
    expected = collect_corpus(store, "fake-1", LOWERING, "tiny", FAMILIES)
    for other in ("a", "z"):
        put(store, "deep", layer_graphs["deep"], lowering=other)
    found = collect_corpus(store, "fake-1", None, "tiny", ["wide", "deep", "unknown"])
    assert found == expected
    assert found is not None
    assert found.families == FAMILIES
    assert collect_corpus(store, "fake-1", None, "tiny", ["unknown"]) is None
