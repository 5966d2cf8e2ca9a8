"""Conformal quantiles and what intervals are made of them."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.composition import TYPICAL_CONSTRUCTION, Cost, Uncertainty, half_width
from costmodel.training.calibration import (
    EXTRAPOLATION_FACTOR,
    Calibration,
    conformal_quantile,
    model_scores,
    predicted_cost,
)

SCORES = st.floats(0, 1e3, allow_nan=False)
CALIBRATION = Calibration(0.9, 0.2, {"Conv": 0.1}, Uncertainty(1.5, 0.05))


@given(scores=st.lists(SCORES, min_size=11, max_size=60), level=st.floats(0.5, 0.9))
def test_coverage_of_exchangeable_scores_is_at_least_the_level(scores: list[float], level: float) -> None:
    """Each score in turn is judged by the quantile of the others: at least `level` of them lie below it.

    That is split conformal prediction's theorem; it holds exactly, for any scores, if there are enough of them.
    """
    covered = [
        score <= conformal_quantile(scores[:position] + scores[position + 1 :], level)
        for position, score in enumerate(scores)
    ]
    assert np.mean(covered) >= level - 1e-12


@pytest.mark.parametrize("seed", range(3))
def test_coverage_of_fresh_scores_is_near_the_level(seed: int) -> None:
    """Over many calibrations of 50 scores, new ones of the same kind are covered as often as promised."""
    random = np.random.default_rng(seed)
    scores = np.abs(random.standard_t(3, (2000, 51)))
    covered = np.mean([row[0] <= conformal_quantile(row[1:], 0.9) for row in scores])
    assert 0.88 < covered < 0.93


def test_too_few_scores_give_the_largest() -> None:
    """Three scores cannot vouch for 90%: the widest is all they can say, and none say nothing."""
    assert conformal_quantile([0.1, 0.3, 0.2], 0.9) == 0.3
    with pytest.raises(ValueError, match="no scores"):
        conformal_quantile([], 0.9)


@given(scores=st.lists(SCORES, min_size=1), low=st.floats(0.1, 0.9), high=st.floats(0.1, 0.99))
def test_a_higher_level_is_never_narrower(scores: list[float], low: float, high: float) -> None:
    """More certainty costs width."""
    low, high = sorted((low, high))
    assert conformal_quantile(scores, low) <= conformal_quantile(scores, high)


def test_kinds_have_widths_of_their_own_once_there_is_enough_of_them() -> None:
    """Thirty residuals fix the width of a kind; fewer share that of all."""
    kinds = ["Conv"] * 30 + ["Relu"] * 29
    residuals = np.array([0.1] * 30 + [-0.5] * 29)
    calibration = Calibration.fit(kinds, residuals, np.array([0.02, -0.03]), 0.9)
    assert calibration.by_kind == {"Conv": 0.1}
    assert calibration.half_width_of("Conv", extrapolated=False) == 0.1
    assert calibration.half_width_of("Relu", extrapolated=False) == calibration.half_width == 0.5
    assert calibration.half_width_of("Never seen", extrapolated=False) == 0.5
    assert calibration.uncertainty.construction == 0.03


def test_without_whole_models_the_construction_error_is_the_typical_one() -> None:
    """That nobody looked is no evidence that a sum of layers is exact."""
    calibration = Calibration.fit(["Conv"], np.array([0.1]), np.array([]), 0.9)
    assert calibration.uncertainty.construction == TYPICAL_CONSTRUCTION > 0


def test_round_trip_through_json() -> None:
    """What an artefact writes down is read back equal."""
    assert Calibration.from_dict(json.loads(json.dumps(CALIBRATION.to_dict()))) == CALIBRATION


@given(latency_us=st.floats(0.1, 1e9), kind=st.sampled_from(["Conv", "Relu"]))
def test_a_predicted_cost_lies_in_its_interval(latency_us: float, kind: str) -> None:
    """An interval is a factor either way; outside the training range it is wider, and says so."""
    inside = predicted_cost(latency_us, kind, CALIBRATION)
    outside = predicted_cost(latency_us, kind, CALIBRATION, extrapolated=True)
    assert (inside.source, outside.source) == ("predicted", "extrapolated")
    width = CALIBRATION.half_width_of(kind, extrapolated=False)
    for cost, expected in ((inside, width), (outside, EXTRAPOLATION_FACTOR * width)):
        low, high = cost.interval_us
        assert 0 < low < cost.latency_us < high
        assert math.log(high / cost.latency_us) == pytest.approx(expected)
        assert math.log(cost.latency_us / low) == pytest.approx(expected)


@given(width=st.floats(0.01, 1), error=st.floats(-2, 2))
def test_the_score_of_a_model_is_its_error_in_half_widths(width: float, error: float) -> None:
    """1 when the measured latency lies at the edge of the interval that the parts give."""
    costs = [Cost(us, (us * math.exp(-width), us * math.exp(width)), "predicted", "Conv") for us in (10.0, 30.0)]
    uncertainty = Uncertainty(construction=0.0)
    (score,) = model_scores([costs], [40 * math.exp(error)], uncertainty)
    assert score == pytest.approx(abs(error) / half_width(costs, uncertainty))
