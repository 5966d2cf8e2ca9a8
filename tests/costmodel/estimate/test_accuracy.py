"""Expected construction errors by granularity: from known models, from defaults, and combined."""

import math
from itertools import pairwise

import hypothesis.strategies as st
import pytest
from hypothesis import given

from costmodel.estimate.accuracy import (
    construction_error,
    expected_error,
    half_width_of,
    known_ratios,
    noise_of,
)
from costmodel.estimate.cost import TYPICAL_CONSTRUCTION
from costmodel.measure.measurement import Timing
from costmodel.partition.granularity import GRANULARITIES
from costmodel.store.store import StoredModel, StoredSegment

ratios = st.lists(st.tuples(st.integers(1, 12), st.floats(-1.0, 1.0)), max_size=30)
noise = st.lists(st.floats(0.0, 0.5), max_size=10)


@given(ratios, noise)
def test_larger_granularities_are_never_worse(known: list[tuple[int, float]], of_wholes: list[float]) -> None:
    """Expected errors do not increase with granularity, and the whole model has the smallest."""
    found = construction_error(known, of_wholes)
    assert found.by_granularity.keys() == {*GRANULARITIES, *(granularity for granularity, _ in known)}
    falling = [*(found.by_granularity[g] for g in sorted(found.by_granularity)), found.whole]
    assert all(finer >= coarser - 1e-12 for finer, coarser in pairwise(falling))
    assert falling[-1] >= 0


def test_where_nothing_is_known_there_is_a_default() -> None:
    """The default at 1 is that of an estimate's interval, and falls with the number of cuts."""
    found = construction_error([], [])
    assert found.by_granularity[1] == pytest.approx(expected_error(TYPICAL_CONSTRUCTION, 0.9))
    falling = [*(found.by_granularity[g] for g in GRANULARITIES), found.whole]
    assert all(finer > coarser > 0 for finer, coarser in pairwise(falling))


def test_many_models_outweigh_the_default_and_few_do_not() -> None:
    """Many models outweigh the default; errors at 1 also count for coarser ones until those are known."""
    default = construction_error([], []).by_granularity
    few, many = (construction_error([(1, 0.2)] * count, []).by_granularity for count in (1, 500))
    assert default[1] < few[1] < 0.1
    assert many[1] == pytest.approx(0.2, rel=0.01)
    assert default[3] < few[3] < many[3] < 0.2
    known = construction_error([(1, 0.2)] * 500 + [(3, -0.15)] * 500, []).by_granularity
    assert known[3] == pytest.approx(0.15, rel=0.01)
    assert known[2] < known[1]
    assert known[5] < known[3]


def test_a_coarser_one_that_is_worse_is_pooled() -> None:
    """A coarser granularity with a larger observed error is pooled with the finer one."""
    found = construction_error([(1, 0.1)] * 100 + [(2, 0.2)] * 100, []).by_granularity
    assert found[1] == found[2] == pytest.approx(0.15, rel=0.05)


def test_signs_do_not_cancel() -> None:
    """Positive and negative errors do not cancel."""
    assert construction_error([(1, 0.1), (1, -0.1)], []) == construction_error([(1, 0.1), (1, 0.1)], [])


@given(st.floats(0.0, 1.0), st.floats(0.5, 0.99))
def test_half_widths_and_expected_errors_are_one_thing(half_width: float, level: float) -> None:
    """Half-widths and expected errors convert into each other; at 90% the half-width is larger."""
    assert half_width_of(expected_error(half_width, level), level) == pytest.approx(half_width)
    assert expected_error(half_width, 0.9) == pytest.approx(half_width * 0.4851, rel=1e-3)


def test_the_noise_of_a_measurement_is_that_of_its_interval() -> None:
    """The noise of a measurement is its interval in log latency."""
    timing = Timing(100.0, (90.0, 110.0), 100.0, ("", ""))
    assert noise_of(timing) == pytest.approx(expected_error(math.log(110 / 90) / 2, 0.9))


def _stored(name: str, granularity: int, whole: str, *signatures: str) -> StoredModel:
    segments = tuple(StoredSegment(signature, (signature,), ()) for signature in signatures)
    return StoredModel(name, "ort", granularity, "family", whole, segments)


def test_a_ratio_needs_the_model_and_every_sequence() -> None:
    """A ratio needs the whole model and all its sequences; copies of a model count once."""
    latencies_us = {"whole": 40.0, "a": 10.0, "b": 25.0, "ab": 38.0}
    models = [
        _stored("m", 1, "whole", "a", "a", "b"),
        _stored("copy", 1, "whole", "a", "a", "b"),
        _stored("m", 2, "whole", "a", "ab"),
        _stored("m", 3, "whole", "whole"),
        _stored("m", 4, "whole", "a", "unknown"),
        _stored("n", 1, "unknown", "a", "b"),
    ]
    assert known_ratios(models, latencies_us) == [
        (1, pytest.approx(math.log(45 / 40))),
        (2, pytest.approx(math.log(48 / 40))),
    ]
