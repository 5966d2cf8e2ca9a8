"""Intervals of models cover similar families as promised at every level, and are wider for extrapolation."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.estimate.composition import half_width
from costmodel.estimate.context_correction import ContextCorrection
from costmodel.features.schema import SCHEMA
from costmodel.features.tabular import Encoded
from costmodel.training.calibration import predicted_costs
from costmodel.training.dataset import Dataset, MeasuredModel
from costmodel.training.evaluation.distances import Distances
from costmodel.training.evaluation.held_out import HeldOut
from costmodel.training.evaluation.intervals import (
    LEVELS,
    HeldOutWithDistances,
    coverage_by_level,
    independent_shares,
)
from tests.synthetic import SYSTEM

FAMILIES, MODELS, LAYERS = 40, 5, 12
FAR = 5.0


def world(seed: int, *, shared: float, construction: float = 0.02) -> HeldOutWithDistances:
    """Returns families of models with errors of layers, of all layers of a model together, and of the sum.

    A third of the models consists of layers far from the training data, with four times the error. Every fourth layer
    is
    known from another family.

    Args:
        seed: Seed of all draws.
        shared: Part of the variance of an error that all layers of a model share.
        construction: Standard deviation of log(whole model / sum of its layers).
    """
    random = np.random.default_rng(seed)
    number = FAMILIES * MODELS * LAYERS
    owner = np.arange(number) // LAYERS
    far = (owner % 3 == 0) & (owner % MODELS != 0)
    predicted = np.exp(random.uniform(1, 6, number))
    together = random.normal(0, 1, FAMILIES * MODELS)[owner]
    scale = np.where(far, 0.4, 0.1)
    errors = scale * (np.sqrt(shared) * together + np.sqrt(1 - shared) * random.normal(0, 1, number))
    measured = predicted * np.exp(errors)
    families = [f"family{of // MODELS:02}" for of in owner.tolist()]
    rows = [np.flatnonzero(owner == model) for model in range(FAMILIES * MODELS)]
    latencies = [float(measured[of].sum() * np.exp(random.normal(0, construction))) for of in rows]
    models = tuple(
        MeasuredModel(
            name=f"model{i}",
            family=families[of[0]],
            rows=of,
            row=int(of[0]),
            latency_us=latency_us,
            measured_us=(latency_us,),
        )
        for i, (of, latency_us) in enumerate(zip(rows, latencies, strict=True))
    )
    data = Dataset(
        system=SYSTEM,
        signatures=tuple(map(str, range(number))),
        kinds=tuple(random.choice(["Conv", "Add"], number).tolist()),
        families=tuple(
            frozenset([family, "elsewhere"]) if row % 4 == 0 else frozenset([family])
            for row, family in enumerate(families)
        ),
        sampled=np.zeros(number, dtype=bool),
        whole=np.zeros(number, dtype=bool),
        encoded=Encoded(
            np.zeros((number, len(SCHEMA.names)), dtype=np.float32),
            np.ones(number),
            np.arange(number + 1),
            np.zeros((2, 0), dtype=int),
        ),
        latencies_us=measured,
        models=models,
        repeats=(),
    )
    run = HeldOut(
        data,
        predicted,
        tuple(predicted[of] for of in rows),
        tuple(measured[of] for of in rows),
        ContextCorrection(),
        ContextCorrection(),
    )
    distances = np.where(far, FAR, 0.1)
    return HeldOutWithDistances(run, Distances(distances, tuple(distances[of] for of in rows)))


@pytest.mark.parametrize("shared", [0.0, 0.3, 1.0])
def test_families_that_are_alike_are_covered_at_every_level(shared: float) -> None:
    """Coverage is as promised for any correlation between layer errors, which is estimated, not assumed."""
    worlds = [coverage_by_level(world(seed, shared=shared)) for seed in range(3)]
    for place, level in enumerate(LEVELS):
        at_level = [points[place] for points in worlds]
        inside = np.mean([(point.model, point.model_unseen, point.layer) for point in at_level], axis=0)
        assert inside == pytest.approx(level, abs=0.06)


def test_correlation_is_found_in_the_errors_of_models() -> None:
    """The larger the shared part of layer errors, the larger the estimated correlation."""
    found = [world(0, shared=shared).calibrate(0.9).uncertainty.correlation for shared in (0.0, 0.3, 1.0)]
    assert found[0] < 0.1 < found[1] < found[2]


def test_most_sums_of_measured_layers_are_within_the_error_of_composition() -> None:
    """The error of composition is calibrated at the nominal coverage, and larger for short models."""
    judged = world(0, shared=0.3, construction=0.05)
    uncertainty = judged.calibrate(0.9).uncertainty
    sums_us = np.array([costs.sum() for costs in judged.run.known_us])
    errors = np.abs(np.log([model.latency_us for model in judged.run.dataset.models] / sums_us))
    assert (errors <= uncertainty.construction_at(sums_us)).mean() == pytest.approx(0.9, abs=0.03)
    shortest, longest = uncertainty.construction_at(np.array([1e3, 5e4]))
    assert shortest > 1.5 * longest


def test_models_are_as_wide_as_composition_says() -> None:
    """The evaluation uses the same interval formula as predictions."""
    judged = world(0, shared=0.3)
    calibration = judged.calibrate(0.9)
    widths = judged.half_widths(calibration, known=False)
    for model in range(5):
        run, far = judged.run, judged.distances.models[model]
        kinds = [run.dataset.kinds[row] for row in run.dataset.models[model].rows.tolist()]
        costs = predicted_costs(run.models_us[model], kinds, far, calibration)
        assert half_width(costs, calibration.uncertainty) == pytest.approx(widths[model])


def test_what_is_far_is_wider_and_what_is_measured_narrower() -> None:
    """Models far from the training data have wider intervals; those with measured layers narrower ones."""
    judged = world(0, shared=0.3)
    calibration = judged.calibrate(0.9)
    assert 0.1 < calibration.extrapolated_from <= FAR
    covered = judged.coverage(0.9)
    assert covered.model_width is not None
    assert covered.model_unseen_width is not None
    assert covered.model_width < covered.model_unseen_width
    far = np.array([of.max() == FAR for of in judged.distances.models])
    widths = judged.half_widths(calibration, known=False)
    assert widths[~far].max() < widths[far].min()


def test_a_family_is_judged_by_the_others_alone() -> None:
    """A family's own errors do not change its intervals, even where others share its layers."""
    judged = world(0, shared=0.3)
    data = judged.run.dataset
    wrong = np.array(["family00" in families for families in data.families])
    spoilt = replace(
        judged, run=replace(judged.run, dataset=replace(data, latencies_us=np.where(wrong, 1e9, data.latencies_us)))
    )
    assert spoilt.calibrate(0.9, {"family00"}) == judged.calibrate(0.9, {"family00"})
    assert spoilt.calibrate(0.9) != judged.calibrate(0.9)


GROUPS = st.lists(st.lists(st.floats(0, 1e3), min_size=1, max_size=6), min_size=2, max_size=12)


@given(groups=GROUPS)
def test_a_group_counts_as_one_to_all_of_its_values(groups: list[list[float]]) -> None:
    """No group counts as less than one value, nor as more than it has."""
    values = np.array([value for group in groups for value in group])
    names = [str(number) for number, group in enumerate(groups) for _ in group]
    counts = independent_shares(values, names)
    for number, group in enumerate(groups):
        assert 1 - 1e-9 <= counts[[name == str(number) for name in names]].sum() <= len(group) + 1e-9


def test_equal_values_count_once_and_unrelated_ones_all() -> None:
    """Groups of equal values count as one value each, groups that do not matter as all of their values."""
    names = [str(group) for group in range(40) for _ in range(10)]
    equal = np.repeat(np.random.default_rng(0).random(40), 10)
    assert independent_shares(equal, names).sum() == pytest.approx(40)
    unrelated = np.random.default_rng(0).random(400)
    assert independent_shares(unrelated, names).sum() > 300
