"""The transfer of costs between systems, on the layers of the synthetic data set."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costmodel.features.schema import OPERATORS, SCHEMA
from costmodel.features.tabular import Encoded
from costmodel.training.dataset import Dataset
from costmodel.training.regressors.anchors import anchored
from costmodel.training.regressors.transfer import UNKNOWN_SPREAD, CostTransfer


@pytest.fixture(scope="module")
def layers(dataset: Dataset) -> Encoded:
    """The single layers of the data set, with their costs as anchors."""
    single = dataset.encoded.lengths == 1
    return anchored(dataset.encoded.take(single), dataset.latencies_us[single])


def _operators(layers: Encoded) -> np.ndarray:
    return layers.features[:, SCHEMA.names.index(f"op_{OPERATORS[0]}") :].argmax(axis=1)


def test_one_measured_layer_gives_its_factor_to_all(layers: Encoded) -> None:
    """With one measured layer, all layers have its ratio to the anchor, and others are less certain than it."""
    everything = np.arange(len(layers))
    means, deviations = CostTransfer(layers).predict(everything[:1], 3 * layers.bounds_us[:1], everything)
    assert np.exp(means) == pytest.approx(np.full(len(everything), 3.0))
    assert deviations.argmin() in np.flatnonzero(np.isclose(deviations, deviations[0]))
    assert (deviations > 0).all()


def test_layers_of_an_operator_are_alike(layers: Encoded) -> None:
    """An operator that is five times as slow on the new system is so in layers that are not measured either."""
    operators = _operators(layers)
    slow = np.bincount(operators).argmax()
    costs_us = layers.bounds_us * np.where(operators == slow, 5.0, 1.0)
    long = np.flatnonzero(layers.bounds_us > 20.0)
    measured, rest = long[::2], long[1::2]
    means, _ = CostTransfer(layers).predict(measured, costs_us[measured], rest)
    off = np.abs(means - np.log(costs_us[rest] / layers.bounds_us[rest]))
    assert np.median(off) < 0.1
    assert np.median(means[operators[rest] == slow]) > np.log(3)


def test_what_is_like_no_measured_layer_gets_the_median(layers: Encoded) -> None:
    """Far from all measured layers the median ratio holds, with the largest uncertainty."""
    features = layers.features.copy()
    features[-1, : len(SCHEMA.names) - len(OPERATORS) - 1] = 1e4
    strange = replace(layers, features=features)
    measured = np.arange(20)
    costs_us = layers.bounds_us[measured] * np.linspace(1.0, 3.0, 20)
    means, deviations = CostTransfer(strange).predict(measured, costs_us, np.array([5, len(layers) - 1]))
    assert abs(means[1] - np.log(2.0)) < 0.2
    assert deviations[1] > 2 * deviations[0]


@settings(max_examples=10, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 40))
def test_the_order_of_measurements_does_not_matter(layers: Encoded, chance: object, count: int) -> None:
    """Predictions do not depend on the order of the measured layers, nor on what else is predicted."""
    random = np.random.default_rng(chance.randrange(2**32))  # type: ignore[attr-defined]
    measured = random.permutation(len(layers))[:count]
    costs_us = layers.bounds_us[measured] * random.uniform(0.5, 4.0, count)
    transfer, wanted, order = CostTransfer(layers), np.arange(len(layers)), random.permutation(count)
    once = transfer.predict(measured, costs_us, wanted)
    again = transfer.predict(measured[order], costs_us[order], wanted[::-1])
    for one, other in zip(once, again, strict=True):
        assert one == pytest.approx(other[::-1], abs=1e-6)


def test_of_many_measurements_the_most_important_are_used(layers: Encoded) -> None:
    """Measurements beyond the limit are left out, those of the lowest importance first; predictions may be none."""
    transfer, measured = CostTransfer(layers), np.arange(4_000) % len(layers)
    important = np.arange(4_000) < 1_500
    costs_us = layers.bounds_us[measured] * np.where(important, 2.0, 50.0)
    means, _ = transfer.predict(measured, costs_us, np.arange(10), importance=important.astype(float))
    assert np.exp(means) == pytest.approx(np.full(10, 2.0))
    assert transfer.predict(measured, costs_us, np.empty(0, dtype=int))[0].shape == (0,)


def test_a_new_system_that_is_like_another_one_gets_its_costs(layers: Encoded) -> None:
    """Where another system's ratios explain what is measured, they also tell the layers that are not."""
    ratios = np.random.default_rng(0).normal(0.0, 1.0, (len(layers), 1))  # unlike anything that features could tell
    costs_us = layers.bounds_us * np.exp(ratios[:, 0])
    long = np.flatnonzero(layers.bounds_us > 20.0)
    measured, rest = long[::2], long[1::2]
    means, _ = CostTransfer(layers, ratios).predict(measured, costs_us[measured], rest)
    assert np.median(np.abs(means - ratios[rest, 0])) < 0.15
    without, _ = CostTransfer(layers).predict(measured, costs_us[measured], rest)
    assert np.median(np.abs(without - ratios[rest, 0])) > 0.4


def test_costs_of_sequences_are_sums_of_their_layers(dataset: Dataset) -> None:
    """Sequences that are wanted are predicted, and the others have the median ratio to their anchors."""
    transfer = CostTransfer(anchored(dataset.encoded, dataset.latencies_us))
    known = (dataset.encoded.lengths == 1) & ~dataset.whole
    wanted = ~dataset.whole
    costs, spread = transfer.predict_costs(2 * dataset.latencies_us, known, wanted, dataset.latencies_us)
    assert costs == pytest.approx(2 * dataset.latencies_us)
    assert (spread[dataset.whole] == UNKNOWN_SPREAD).all()
    assert (spread[known] < UNKNOWN_SPREAD).all()
