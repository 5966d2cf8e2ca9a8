"""Costs on several base systems, of which each has measured a part of the sequences."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costmodel.training.base_costs import base_costs
from costmodel.training.dataset import Dataset


def _without(dataset: Dataset, missing: np.ndarray) -> Dataset:
    return replace(dataset, latencies_us=np.where(missing, np.nan, dataset.latencies_us))


def _measured(dataset: Dataset, factor: float, missing: np.ndarray) -> dict[str, float]:
    """Costs on another base, by signature: those of the data set times a factor."""
    rows = np.flatnonzero(~missing).tolist()
    return {dataset.signatures[row]: factor * float(dataset.latencies_us[row]) for row in rows}


@settings(max_examples=5, deadline=None)
@given(st.integers(0, 2**16))
def test_measured_costs_are_kept_and_the_others_follow(dataset: Dataset, seed: int) -> None:
    """Whatever a base has measured is its cost, and what it has not is predicted from the other base."""
    chance = np.random.default_rng(seed)
    first, second = chance.random((2, len(dataset))) < 0.3
    second &= ~first  # each row is measured on one base at least
    found = base_costs(_without(dataset, first), {"other": _measured(dataset, 3.0, second)})
    assert found.others == ("other",)
    exact = dataset.latencies_us
    assert found.anchors_us[~first] == pytest.approx(exact[~first])
    on_other = found.anchors_us * np.exp(found.ratios[:, 0])
    assert on_other[~second] == pytest.approx(3 * exact[~second])
    layers = (dataset.encoded.lengths == 1) & ~dataset.whole
    assert np.median(np.abs(found.anchors_us / exact - 1)[first & layers]) < 0.1
    assert np.median(np.abs(on_other / (3 * exact) - 1)[second & layers]) < 0.1


def test_a_base_without_common_layers_is_left_out(dataset: Dataset) -> None:
    """A base that shares only a few layers with the first one says nothing about the others."""
    few = np.arange(len(dataset)) >= 5
    found = base_costs(dataset, {"strange": _measured(dataset, 1.0, few)})
    assert (found.others, found.ratios.shape) == ((), (len(dataset), 0))
    assert found.anchors_us == pytest.approx(dataset.latencies_us)


def test_what_no_base_has_measured_is_predicted(dataset: Dataset) -> None:
    """A sequence that no base has measured has a cost on each of them."""
    missing = np.arange(len(dataset)) % 7 == 0
    found = base_costs(_without(dataset, missing), {"other": _measured(dataset, 2.0, missing)})
    assert np.isfinite(found.anchors_us).all()
    assert np.isfinite(found.ratios).all()
    assert np.median(found.ratios[missing & (dataset.encoded.lengths == 1)]) == pytest.approx(np.log(2), abs=0.05)
