"""Estimates: coverage, quantiles, and the JSON document."""

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.estimate.cost import Cost
from costmodel.estimate.estimate import Estimate, LayerEstimate, PredictorId

SOURCES = ("measured", "predicted", "extrapolated")


def estimate_of(costs: Sequence[tuple[float, str]]) -> Estimate:
    """Returns an estimate over sequences of these latencies and sources."""
    layers = [
        LayerEstimate(f"layer{i}", "Conv", f"{i:032x}", Cost(us, (us * 0.9, us * 1.1), source, "Conv"))
        for i, (us, source) in enumerate(costs)
    ]
    total = sum(us for us, _ in costs)
    return Estimate(
        model="net", system="c5.xlarge", latency_us=total, interval_us=(total * 0.9, total * 1.1), interval_level=0.9,
        jitter={"p50": 1.0, "p90": 1.2, "p99": 2.0}, composition="sequential", granularity=1, layers=layers,
        predictor=PredictorId("lightgbm", "1"), warnings=("a warning",),
    )  # fmt: skip


@given(st.lists(st.tuples(st.floats(0.01, 1e6), st.sampled_from(SOURCES)), min_size=1, max_size=30))
def test_coverage_is_shares_that_sum_to_one(costs: list[tuple[float, str]]) -> None:
    """Coverage has the share of latency of all three sources, which sum to one."""
    coverage = estimate_of(costs).coverage
    assert tuple(coverage) == SOURCES
    assert sum(coverage.values()) == pytest.approx(1)
    for source, share in coverage.items():
        expected = sum(us for us, of in costs if of == source) / sum(us for us, _ in costs)
        assert share == pytest.approx(expected)


def test_holes_are_named_and_take_no_share() -> None:
    """Unpriced layers are listed and have no share."""
    estimate = estimate_of([(0.0, "unpriced"), (10.0, "measured")])
    assert estimate.unpriced == ("layer0",)
    assert estimate.coverage == {"measured": 1.0, "predicted": 0.0, "extrapolated": 0.0}
    assert set(estimate_of([(0.0, "unpriced")]).coverage.values()) == {0.0}


def test_what_is_off_the_critical_path_takes_no_share() -> None:
    """Layers that do not count in the composition have no share."""
    estimate = estimate_of([(10.0, "measured"), (30.0, "predicted")])
    off = replace(estimate, layers=[estimate.layers[0], replace(estimate.layers[1], share=0.0)])
    assert off.coverage == {"measured": 1.0, "predicted": 0.0, "extrapolated": 0.0}


def test_users_see_the_latency_times_the_jitter() -> None:
    """The quantiles are the latency times the jitter."""
    assert estimate_of([(10.0, "measured")]).quantiles_us == {"p50": 10.0, "p90": 12.0, "p99": 20.0}


def test_the_document_has_exactly_the_keys_of_the_contract() -> None:
    """The document has exactly the documented keys and is JSON without NaN."""
    document = json.loads(json.dumps(estimate_of([(10.0, "measured"), (5.0, "predicted")]).to_dict(), allow_nan=False))
    assert list(document) == [
        "model", "system", "latency_us", "interval_us", "interval_level", "quantiles_us", "composition", "granularity",
        "cover", "coverage", "layers", "predictor", "peak_memory_bytes", "peak_memory_interval_bytes",
        "load_time_us", "load_time_interval_us", "first_run_us", "first_run_interval_us", "beside",
        "slowdown", "slowdown_interval", "warnings",
    ]  # fmt: skip
    assert list(document["quantiles_us"]) == ["p50", "p90", "p99"]
    assert list(document["coverage"]) == ["measured", "predicted", "extrapolated"]
    assert document["predictor"] == {"name": "lightgbm", "version": "1"}
    assert document["warnings"] == ["a warning"]
    assert document["interval_us"] == [13.5, 16.5]
    for layer in document["layers"]:
        assert list(layer) == ["name", "op_type", "signature", "latency_us", "interval_us", "source", "share"]
        assert len(layer["interval_us"]) == 2


def test_a_newer_service_may_say_more_of_what_predicted() -> None:
    """Unknown fields of a newer service are ignored."""
    estimate = estimate_of([(10.0, "measured"), (5.0, "predicted")])
    document = estimate.to_dict()
    document["predictor"]["trained_on"] = 7
    assert Estimate.from_dict({**document, "energy_mj": 1.0}).predictor == estimate.predictor
