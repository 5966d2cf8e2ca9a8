"""Adaptation of one system's costs to a new one, between two synthetic systems of different strengths."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costmodel.errors import UnknownSystemError
from costmodel.measure.protocol import Protocol
from costmodel.runtimes.base import RuntimeSettings
from costmodel.store.store import Store
from costmodel.training.adaptation import Adaptation, load_adaptation
from costmodel.training.regressors.anchors import anchored, anchors
from tests.synthetic import MEASURED, SYSTEM, made_up_us

# The base is fast in arithmetic, this system in memory bandwidth.
NEW = replace(
    SYSTEM,
    name="made.new",
    settings=RuntimeSettings(threads=2),
    capabilities={**SYSTEM.capabilities, "gemm_gflops": 30.0, "memory_gbps": 40.0, "layer_us": 2.0},
)


@pytest.fixture(scope="module")
def adaptation(store: Store) -> Adaptation:
    """The adaptation from the synthetic system to the new one."""
    return load_adaptation(store, [SYSTEM.name], NEW)


@pytest.fixture(scope="module")
def truth(adaptation: Adaptation) -> dict[str, float]:
    """Costs of all sequences of models on the new system, by signature."""
    return {signature: made_up_us(sequence, NEW) for signature, sequence in adaptation.sequences.items()}


def _off(costs_us: np.ndarray, adaptation: Adaptation, truth: dict[str, float], rows: np.ndarray) -> float:
    exact = np.array([truth[adaptation.dataset.signatures[row]] for row in rows])
    return float(np.median(np.abs(costs_us[rows] / exact - 1)))


def _some(truth: dict[str, float], share: float) -> dict[str, float]:
    chance = np.random.default_rng(0)
    return {signature: us for signature, us in sorted(truth.items()) if chance.random() < share}


def test_the_models_of_the_base_are_what_may_be_measured(adaptation: Adaptation) -> None:
    """All layers of the base's models may be measured, but no samples or whole models."""
    assert {usage.name for usage in adaptation.usages} == set(MEASURED)
    assert not (adaptation.open & (adaptation.dataset.sampled | adaptation.dataset.whole)).any()
    assert {adaptation.dataset.signatures[row] for row in np.flatnonzero(adaptation.open)} == set(adaptation.sequences)
    assert adaptation.dataset.system == NEW


def test_before_anything_is_measured_the_base_answers(adaptation: Adaptation, store: Store) -> None:
    """Without measurements the base's costs are used, and no expected error is stated."""
    learnt = adaptation.learn({})
    known = store.latencies_us(SYSTEM.name)
    assert learnt.costs_us == pytest.approx([known[s] for s in adaptation.dataset.signatures])
    assert (learnt.spread > 0).all()
    assert not learnt.measured.any()
    assert np.isnan(adaptation.expected(learnt).error)


def test_a_few_measurements_give_a_common_factor(adaptation: Adaptation) -> None:
    """A few measurements scale all costs by one common factor."""
    signature = next(iter(adaptation.sequences))
    row = adaptation.row_of[signature]
    learnt = adaptation.learn({signature: 3 * adaptation.anchors_us[row]})
    assert learnt.costs_us == pytest.approx(3 * adaptation.anchors_us)


def test_what_is_measured_tells_of_what_is_not(adaptation: Adaptation, truth: dict[str, float]) -> None:
    """Measuring a third of the layers reduces the error of the others to a third or less."""
    learnt = adaptation.learn(_some(truth, 0.33))
    rest = np.flatnonzero(adaptation.open & ~learnt.measured)
    assert _off(learnt.costs_us, adaptation, truth, rest) < _off(adaptation.anchors_us, adaptation, truth, rest) / 3


def test_more_measurements_lower_the_expected_error(adaptation: Adaptation, truth: dict[str, float]) -> None:
    """With all layers measured, the expected error falls to that of summing measured layers."""
    expected = [adaptation.expected(adaptation.learn(_some(truth, share))) for share in (0.3, 1.0)]
    assert expected[1].error < expected[0].error
    construction = np.abs(1 / adaptation.construction - 1).mean()
    assert expected[1].error == pytest.approx(construction)
    assert expected[1].within_10pct == 1.0


def test_models_to_check_are_those_that_fit(adaptation: Adaptation, truth: dict[str, float]) -> None:
    """Models to check are unmeasured, fit the time, and are the same each time."""
    learnt = adaptation.learn(truth)
    rows = {model.row for model in adaptation.dataset.models}
    found = adaptation.to_check(learnt, Protocol(), 3600)
    assert {row for row, _ in found} == rows
    assert {usage.name for _, usage in found} == set(MEASURED)
    assert adaptation.to_check(learnt, Protocol(), 3600) == found
    assert adaptation.to_check(learnt, Protocol(), 0.0) == []
    known = {adaptation.dataset.signatures[row]: 1.0 for row in rows}
    assert adaptation.to_check(adaptation.learn(known), Protocol(), 3600) == []


def test_models_that_are_measured_whole_say_how_far_off_estimates_are(
    adaptation: Adaptation, truth: dict[str, float]
) -> None:
    """With enough whole models, their error is expected; what the context correction learns of it is not."""
    models = [model for model in adaptation.dataset.models for _ in range(2)]
    many = replace(adaptation, dataset=replace(adaptation.dataset, models=tuple(models)))

    def expected(factors: tuple[float, float]) -> float:
        wholes = {
            adaptation.dataset.signatures[model.row]:
                sum(truth[adaptation.dataset.signatures[row]] for row in model.rows) * factors[number // 2 % 2]
            for number, model in enumerate(models)
        }  # fmt: skip
        return many.expected(many.learn(truth | wholes)).error

    assert expected((0.9, 0.9)) < 0.02
    assert expected((0.7, 1.4)) > 0.1


@settings(max_examples=5, deadline=None)
@given(st.floats(0.0, 1.0))
def test_what_is_measured_is_exact(adaptation: Adaptation, truth: dict[str, float], share: float) -> None:
    """Measured sequences keep their costs, and have held-out predictions that do not use their family."""
    known = _some(truth, share)
    learnt = adaptation.learn({**known, "of no model": 1.0})
    assert learnt.measured.sum() == len(known)
    for signature, us in known.items():
        assert learnt.costs_us[adaptation.row_of[signature]] == us
    assert np.isnan(learnt.apart_us[~learnt.measured]).all()
    assert np.isfinite(learnt.costs_us).all()


def test_the_adapted_data_set_judges_on_measurements_only(adaptation: Adaptation, truth: dict[str, float]) -> None:
    """Transferred costs are for training only; whole models are scaled by the base's ratio to their sums."""
    learnt = adaptation.learn(_some(truth, 0.5))
    dataset = adaptation.adapted(learnt)
    assert dataset.system == NEW
    assert (dataset.sampled == (adaptation.dataset.sampled | ~(learnt.measured | dataset.whole))).all()
    everything = adaptation.adapted(adaptation.learn(truth))
    assert {model.name for model in everything.models} == set(MEASURED)
    for model in everything.models:
        on_base = adaptation.dataset.latencies_us
        ratio = on_base[model.row] / on_base[model.rows].sum()
        assert model.latency_us == pytest.approx(ratio * everything.latencies_us[model.rows].sum())


def test_without_a_base_bounds_are_the_anchors(store: Store) -> None:
    """Without a base, bounds are the anchors and all models of the store are used."""
    adaptation = load_adaptation(store, [], NEW)
    encoded = adaptation.dataset.encoded
    assert adaptation.anchors_us == pytest.approx(encoded.totals(encoded.bounds_us))
    assert {usage.name for usage in adaptation.usages} == set(MEASURED)


def test_layers_that_the_base_has_not_measured_have_anchors_too(adaptation: Adaptation) -> None:
    """A regressor trained on the base predicts the anchors of layers that the base lacks."""
    exact = adaptation.dataset.latencies_us
    holes = adaptation.open & (np.arange(len(exact)) % 3 == 0)
    found = anchors(replace(adaptation.dataset, latencies_us=np.where(holes, np.nan, exact)))
    assert (found[~holes] == exact[~holes]).all()
    assert np.median(np.abs(found[holes] / exact[holes] - 1)) < 0.1


def test_anchors_take_the_place_of_bounds(adaptation: Adaptation) -> None:
    """Anchors replace bounds; the anchor of a sequence is divided among its layers."""
    encoded = anchored(adaptation.dataset.encoded, adaptation.anchors_us)
    assert encoded.totals(encoded.bounds_us) == pytest.approx(adaptation.anchors_us)
    assert encoded.features[:, 0] == pytest.approx(np.log(encoded.bounds_us), rel=1e-5)


def test_an_unknown_base_is_named(store: Store) -> None:
    """An unknown base is refused with its name."""
    with pytest.raises(UnknownSystemError, match="nobody"):
        load_adaptation(store, ["nobody"], NEW)
