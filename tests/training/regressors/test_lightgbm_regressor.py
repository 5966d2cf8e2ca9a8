"""The gradient-boosted trees and their ONNX export."""

from dataclasses import replace

import numpy as np
import pytest

from costmodel.features.schema import FEATURE_GROUPS, SCHEMA
from costmodel.features.tabular import Encoded, encode_all
from costmodel.paths import Home
from costmodel.runtimes.base import RuntimeSettings
from costmodel.runtimes.ort.session import open_session
from costmodel.training.dataset import Dataset
from costmodel.training.regressors.lightgbm_regressor import LightGBMRegressor
from tests.synthetic import SYSTEM, corpus


@pytest.fixture(scope="module")
def regressor(dataset: Dataset) -> LightGBMRegressor:
    """A regressor fitted on the synthetic data set."""
    return LightGBMRegressor(0).fit(dataset.encoded, dataset.latencies_us)


def _served(regressor: LightGBMRegressor, features: np.ndarray) -> np.ndarray:
    session = open_session(regressor.to_onnx(), RuntimeSettings(threads=1, spinning=False))
    (ratios,) = session.run(None, {"features": features})
    return np.asarray(ratios).reshape(-1)


def _trained(regressor: LightGBMRegressor, features: np.ndarray) -> np.ndarray:
    rows = np.arange(len(features) + 1)
    alone = Encoded(features, np.ones(len(features)), rows, np.zeros((2, 0), dtype=np.int64))
    return np.asarray(np.log(regressor.predict_us(alone)))


def test_onnx_answers_as_the_trees_do_on_random_features(regressor: LightGBMRegressor, dataset: Dataset) -> None:
    """ONNX and LightGBM agree to 1e-5 in the logarithm, inside the training range and far outside it."""
    random = np.random.default_rng(0)
    for spread in (1.0, 10.0):
        noise = random.normal(0, spread, (500, len(SCHEMA.names)))
        rows = random.integers(0, len(dataset.encoded.features), 500)
        features = (dataset.encoded.features[rows] + noise).astype(np.float32)
        assert _served(regressor, features) == pytest.approx(_trained(regressor, features), abs=1e-5)


def test_onnx_answers_as_the_trees_do_on_real_layers(
    regressor: LightGBMRegressor, dataset: Dataset, trained: Home
) -> None:
    """ONNX and LightGBM agree to 1e-5 on trained layers, exactly at thresholds, and on other layers."""
    models = corpus(trained.cache).values()
    sequences = {s: q for item in models for s, q in item.decomposition.unique.items()}
    features = encode_all(sequences.values(), SYSTEM).features
    for rows in (features, dataset.encoded.features, features[:1]):
        assert _served(regressor, rows) == pytest.approx(_trained(regressor, rows), abs=1e-5)


def test_it_learns(regressor: LightGBMRegressor, dataset: Dataset) -> None:
    """The trees learn the factor of each kind of layer."""
    costs = dataset.encoded.totals(regressor.predict_us(dataset.encoded))
    assert np.median(np.abs(costs / dataset.latencies_us - 1)[~dataset.whole]) < 0.05


def test_seeds_differ_and_threads_do_not_matter(regressor: LightGBMRegressor, dataset: Dataset) -> None:
    """Another seed gives other trees; another number of threads gives the same ones."""
    data = (dataset.encoded, dataset.latencies_us)
    costs = regressor.predict_us(dataset.encoded)
    assert not np.array_equal(costs, LightGBMRegressor(1).fit(*data).predict_us(dataset.encoded))
    assert costs == pytest.approx(LightGBMRegressor(0, threads=2).fit(*data).predict_us(dataset.encoded))


@pytest.mark.parametrize("rising", [True, False])
def test_costs_never_fall_with_what_the_model_touches(dataset: Dataset, rising: bool) -> None:
    """Costs that fall with the footprint are learnt as costs that do not depend on it, unless nothing is said to rise.

    The features vary beyond the training range, each alone.
    """
    random = np.random.default_rng(0)
    of_model = [SCHEMA.names.index(name) for name in FEATURE_GROUPS["footprint"]]
    single = dataset.encoded.take(np.flatnonzero(dataset.encoded.lengths == 1))
    features = single.features.copy()
    features[:, of_model] = random.normal(0, 2, (len(features), len(of_model)))
    falling_us = single.bounds_us * np.exp(-0.3 * features[:, of_model].sum(axis=1))
    options = {} if rising else {"rising": ()}
    regressor = LightGBMRegressor(0, **options).fit(replace(single, features=features), falling_us)
    fell = 0
    for column in of_model:
        steps = np.repeat(features[:20], 9, axis=0)
        steps[:, column] = np.tile(np.linspace(-8, 8, 9), 20)
        fell += int((np.diff(_trained(regressor, steps).reshape(20, 9), axis=1) < -1e-9).sum())
    assert (fell == 0) == rising


def test_the_text_form_names_the_features(regressor: LightGBMRegressor) -> None:
    """The text form contains the feature names."""
    text = regressor.to_text()
    assert " ".join(SCHEMA.names) in text
