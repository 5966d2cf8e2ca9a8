"""Conformal quantiles and the calibration of intervals."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.estimate.cost import Uncertainty
from costmodel.training.calibration import DISTANCES, Calibration, conformal_quantile, predicted_costs
from costmodel.training.support import MAX_DISTANCE

SCORES = st.floats(0, 1e3, allow_nan=False)
WIDTHS = tuple(0.1 * (1 + place) for place in range(len(DISTANCES) + 1))
CALIBRATION = Calibration(0.9, WIDTHS, {"Conv": 0.5}, extrapolated_from=3.0)


@given(scores=st.lists(SCORES, min_size=11, max_size=60), level=st.floats(0.5, 0.9))
def test_coverage_of_exchangeable_scores_is_at_least_the_level(scores: list[float], level: float) -> None:
    """At least `level` of the scores lie below the quantile of all other scores.

    This is the theorem of split conformal prediction; it holds exactly for any scores, if there are enough of them.
    """
    covered = [
        score <= conformal_quantile(scores[:position] + scores[position + 1 :], level)
        for position, score in enumerate(scores)
    ]
    assert np.mean(covered) >= level - 1e-12


@given(groups=st.lists(st.lists(SCORES, min_size=1, max_size=8), min_size=2, max_size=12), level=st.floats(0.5, 0.9))
def test_coverage_over_groups_is_at_least_the_level(groups: list[list[float]], level: float) -> None:
    """The share of a group's scores below the quantile of all other groups is at least `level`, as a mean over groups.

    That holds exactly, for any scores, if each group counts as one score (Dunn, Wasserman and Ramdas, 2022).
    """
    covered = []
    for number, of_group in enumerate(groups):
        others = [group for n, group in enumerate(groups) if n != number]
        scores = [score for group in others for score in group]
        counts = np.array([1 / len(group) for group in others for _ in group])
        covered.append(np.mean([score <= conformal_quantile(scores, level, counts) for score in of_group]))
    if len(groups) * (1 - level) >= 1:  # with fewer groups, the largest score may not be large enough
        assert np.mean(covered) >= level - 1e-9


@pytest.mark.parametrize("seed", range(3))
def test_coverage_of_fresh_scores_is_near_the_level(seed: int) -> None:
    """Over many calibrations of 50 scores, the coverage of new scores is near the level."""
    random = np.random.default_rng(seed)
    scores = np.abs(random.standard_t(3, (2000, 51)))
    covered = np.mean([row[0] <= conformal_quantile(row[1:], 0.9) for row in scores])
    assert 0.88 < covered < 0.93


def test_too_few_scores_give_the_largest() -> None:
    """Scores too few for the level give the largest one; no scores give none."""
    assert conformal_quantile([0.1, 0.3, 0.2], 0.9) == 0.3
    with pytest.raises(ValueError, match="no scores"):
        conformal_quantile([], 0.9)


@given(scores=st.lists(SCORES, min_size=1), low=st.floats(0.1, 0.9), high=st.floats(0.1, 0.99))
def test_a_higher_level_is_never_narrower(scores: list[float], low: float, high: float) -> None:
    """A higher level does not give a smaller quantile."""
    low, high = sorted((low, high))
    assert conformal_quantile(scores, low) <= conformal_quantile(scores, high)


def _residuals(seed: int, count: int) -> tuple[list[str], np.ndarray, np.ndarray, np.ndarray]:
    """Returns errors that depend on operator, size and distance, in the arguments of `Calibration.fit`."""
    random = np.random.default_rng(seed)
    kinds = random.choice(["Conv", "Relu", "Add"], count)
    costs_us = np.exp(random.uniform(0, 9, count))
    distances = random.uniform(0, 5, count)
    scale = np.select([kinds == "Conv", kinds == "Relu"], [0.02, 0.1], 0.05)
    errors = scale * np.where(costs_us < 10, 3, 1) * np.where(distances > 3, 4, 1) * random.standard_t(3, count)
    return kinds.tolist(), costs_us, distances, errors


@pytest.mark.parametrize("level", [0.5, 0.8, 0.9, 0.95])
def test_layers_are_covered_at_every_level_and_distance(level: float) -> None:
    """New errors are covered as promised: overall, near and far, for short and long layers, for each operator."""
    calibration = Calibration.fit(*_residuals(0, 6000), level)
    kinds, costs_us, distances, errors = _residuals(1, 6000)
    inside = np.abs(errors) <= calibration.half_widths(kinds, costs_us, distances)
    assert inside.mean() == pytest.approx(level, abs=0.02)
    classes = [distances < 1, distances > 3, costs_us < 10, costs_us > 100, np.array(kinds) == "Conv"]
    for of_class in classes:
        assert inside[of_class].mean() == pytest.approx(level, abs=0.05)


def test_what_is_known_worse_is_wider() -> None:
    """Operators, sizes and distances with larger errors have wider intervals; far ones count as extrapolated."""
    calibration = Calibration.fit(*_residuals(0, 6000), 0.9)
    assert calibration.by_kind["Conv"] < calibration.by_kind["Add"] < calibration.by_kind["Relu"]
    assert calibration.by_size[1] > 2 * calibration.by_size[-2]
    assert calibration.extrapolated_from == 3.0
    near, far, unknown = calibration.half_widths(["Conv"] * 3, np.full(3, 100.0), np.array([0.5, 4.0, MAX_DISTANCE]))
    assert 2 * near < far < unknown


def test_an_operator_that_was_never_measured_may_be_far_off() -> None:
    """Small errors on known operators say nothing of new ones, unless new ones were held out as well."""
    near = ["Conv"] * 200, np.full(200, 50.0), np.full(200, 0.1), np.full(200, 0.02)
    calibration = Calibration.fit(*near, 0.9)
    far, unknown = calibration.half_widths(["Conv", "GRU"], np.full(2, 50.0), np.array([4.0, MAX_DISTANCE]))
    assert far < 0.1
    assert np.exp(unknown) == pytest.approx(4.0, rel=0.1)
    wider = Calibration.fit(*near, 0.95).half_widths(["GRU"], np.array([50.0]), np.array([MAX_DISTANCE]))
    assert wider > unknown
    held_out = ["GRU"] * 50, np.full(50, 50.0), np.full(50, MAX_DISTANCE), np.full(50, 0.3)
    seen = Calibration.fit(near[0] + held_out[0], *map(np.concatenate, zip(near[1:], held_out[1:], strict=True)), 0.9)
    assert seen.half_widths(["LSTM"], np.array([50.0]), np.array([MAX_DISTANCE])) < 1.0


RESIDUALS = st.lists(
    st.tuples(st.sampled_from(["Conv", "Relu"]), st.floats(0.1, 1e6), st.floats(0, MAX_DISTANCE), st.floats(-3, 3)),
    min_size=1, max_size=60,
)  # fmt: skip


@given(residuals=RESIDUALS, level=st.sampled_from([0.5, 0.9, 0.99]))
def test_farther_is_never_narrower(residuals: list[tuple[str, float, float, float]], level: float) -> None:
    """Widths do not decrease with distance, for any residuals."""
    kinds, *numbers = zip(*residuals, strict=True)
    calibration = Calibration.fit(kinds, *map(np.array, numbers), level)
    assert list(calibration.by_distance) == sorted(calibration.by_distance)
    assert 0 < calibration.extrapolated_from <= MAX_DISTANCE
    near, far = calibration.half_widths(["Unmeasured"] * 2, np.array([5.0, 5.0]), np.array([0.0, MAX_DISTANCE]))
    assert 0 <= near <= far


def test_nothing_to_learn_from_says_nothing() -> None:
    """A calibration without residuals is refused."""
    with pytest.raises(ValueError, match="no residuals"):
        Calibration.fit([], np.array([]), np.array([]), np.array([]), 0.9)


def test_round_trip_through_json() -> None:
    """A calibration survives JSON."""
    calibration = replace(Calibration.fit(*_residuals(0, 100), 0.9), uncertainty=Uncertainty(0.2, 0.05))
    assert Calibration.from_dict(json.loads(json.dumps(calibration.to_dict()))) == calibration


def test_what_a_newer_costmodel_wrote_besides_is_read_past() -> None:
    """Unknown fields of a newer version are ignored, on both levels of the card."""
    calibration = Calibration.fit(*_residuals(0, 100), 0.9)
    card = calibration.to_dict()
    newer = {**card, "by_shape": [1.0], "uncertainty": {**card["uncertainty"], "season": 0.1}}
    assert Calibration.from_dict(newer) == calibration


@given(latency_us=st.floats(0.1, 1e9), kind=st.sampled_from(["Conv", "Relu"]), distance=st.floats(0, MAX_DISTANCE))
def test_a_predicted_cost_lies_in_its_interval(latency_us: float, kind: str, distance: float) -> None:
    """The interval is a factor either way around the cost, and the source says if it is extrapolated."""
    asked = np.array([latency_us]), [kind], np.array([distance])
    (cost,) = predicted_costs(*asked, CALIBRATION)
    assert cost.source == ("extrapolated" if distance >= CALIBRATION.extrapolated_from else "predicted")
    (width,) = CALIBRATION.half_widths([kind], asked[0], asked[2])
    low, high = cost.interval_us
    assert 0 < low < cost.latency_us < high
    assert math.log(high / cost.latency_us) == pytest.approx(width)
    assert math.log(cost.latency_us / low) == pytest.approx(width)
    assert cost.latency_us == latency_us
