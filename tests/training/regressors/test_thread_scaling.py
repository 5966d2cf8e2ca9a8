"""Costs with two threads, from those with one."""

from dataclasses import replace

import numpy as np
import pytest

from costmodel.features.schema import SCHEMA
from costmodel.features.tabular import Encoded, concatenated
from costmodel.runtimes.base import RuntimeSettings
from costmodel.runtimes.ort.session import open_session
from costmodel.training.dataset import Dataset
from costmodel.training.regressors.lightgbm_regressor import LightGBMRegressor
from costmodel.training.regressors.thread_scaling import THREADS, ThreadScalingRegressor

_CONV = SCHEMA.names.index("op_Conv")
_SPEEDUP, _WAIT = SCHEMA.names.index("log_threads_speedup"), SCHEMA.names.index("log_threads_wait")


def _with_threads(encoded: Encoded, threads: int) -> Encoded:
    features = encoded.features.copy()
    features[:, THREADS] = threads
    features[:, _SPEEDUP], features[:, _WAIT] = np.log(1.8), np.log1p(0.5)
    return replace(encoded, features=features)


@pytest.fixture(scope="module")
def both(dataset: Dataset) -> tuple[Encoded, np.ndarray]:
    """Layers with two threads, of which every second is measured, behind all layers with one.

    Convolutions take 0.5 times as long with two threads, all other layers 0.9 times.
    """
    few = dataset.encoded.take(~dataset.whole)
    some = np.arange(0, len(few), 2)
    costs_us = dataset.latencies_us[~dataset.whole]
    is_conv = few.features[few.starts[:-1], _CONV] == 1
    quicker_us = costs_us * np.where(is_conv, 0.5, 0.9)
    encoded = concatenated([_with_threads(few.take(some), 2), _with_threads(few, 1)])
    return encoded, np.concatenate([quicker_us[some], costs_us])


@pytest.fixture(scope="module")
def regressor(both: tuple[Encoded, np.ndarray]) -> ThreadScalingRegressor:
    """The regressor, trained on both."""
    fitted = ThreadScalingRegressor(LightGBMRegressor(0)).fit(*both)
    assert fitted.factor_ is not None
    return fitted


def test_layers_that_only_one_thread_has_measured_are_scaled(
    regressor: ThreadScalingRegressor, dataset: Dataset
) -> None:
    """What is known of one thread counts for two, with the factor of the operator."""
    rest = dataset.encoded.take(~dataset.whole)
    layers = rest.take(np.arange(1, len(rest), 2))
    slower, quicker = (
        regressor.base.predict_us(_with_threads(layers, 1)),
        regressor.predict_us(_with_threads(layers, 2)),
    )
    is_conv = layers.features[:, _CONV] == 1
    factors = quicker / slower
    assert np.median(factors[is_conv]) == pytest.approx(0.5, abs=0.03)
    assert np.median(factors[~is_conv]) == pytest.approx(0.9, abs=0.03)


def test_it_is_better_than_learning_from_two_threads_alone(
    regressor: ThreadScalingRegressor, both: tuple[Encoded, np.ndarray], dataset: Dataset
) -> None:
    """Layers that were not measured with two threads are predicted better than from those that were."""
    encoded, costs_us = both
    many = encoded.features[encoded.starts[:-1], THREADS] == 2
    alone = LightGBMRegressor(0).fit(encoded.take(many), costs_us[many])
    rest = _with_threads(dataset.encoded.take(~dataset.whole), 2)
    unseen = np.arange(len(rest)) % 2 == 1
    is_conv = rest.features[rest.starts[:-1], _CONV] == 1
    true_us = dataset.latencies_us[~dataset.whole] * np.where(is_conv, 0.5, 0.9)
    errors = [
        np.mean(np.abs(np.log(rest.totals(one.predict_us(rest)) / true_us))[unseen]) for one in (regressor, alone)
    ]
    assert errors[0] < 0.7 * errors[1]


def test_with_one_number_of_threads_it_is_its_base(dataset: Dataset) -> None:
    """Nothing changes where there is nothing to scale, down to the bytes of the ONNX model."""
    scaling = ThreadScalingRegressor(LightGBMRegressor(0)).fit(dataset.encoded, dataset.latencies_us)
    base = LightGBMRegressor(0).fit(dataset.encoded, dataset.latencies_us)
    np.testing.assert_array_equal(scaling.predict_us(dataset.encoded), base.predict_us(dataset.encoded))
    assert scaling.to_text() == base.to_text()
    assert scaling.settings == base.settings


def test_a_few_pairs_are_no_reason_to_scale(dataset: Dataset) -> None:
    """With ten layers of two threads, costs are learnt from all rows together."""
    layers = dataset.encoded.take(~dataset.whole)
    costs_us = dataset.latencies_us[~dataset.whole]
    some = np.arange(10)
    encoded = concatenated([_with_threads(layers.take(some), 2), _with_threads(layers, 1)])
    all_us = np.concatenate([costs_us[some] / 2, costs_us])
    scaling = ThreadScalingRegressor(LightGBMRegressor(0)).fit(encoded, all_us)
    together = LightGBMRegressor(0).fit(encoded, all_us)
    np.testing.assert_array_equal(scaling.predict_us(encoded), together.predict_us(encoded))


def test_little_with_one_thread_is_no_base(dataset: Dataset) -> None:
    """Where most layers were measured with two threads only, costs are learnt from all rows together."""
    layers = dataset.encoded.take(~dataset.whole)
    costs_us = dataset.latencies_us[~dataset.whole]
    some = np.flatnonzero(layers.lengths == 1)[:110]  # as many as there have to be pairs, and less than half of all
    assert 100 < len(some) < 0.5 * len(layers)
    encoded = concatenated([_with_threads(layers, 2), _with_threads(layers.take(some), 1)])
    all_us = np.concatenate([costs_us / 2, costs_us[some]])
    scaling = ThreadScalingRegressor(LightGBMRegressor(0)).fit(encoded, all_us)
    assert scaling.factor_ is None
    together = LightGBMRegressor(0).fit(encoded, all_us)
    np.testing.assert_array_equal(scaling.predict_us(encoded), together.predict_us(encoded))


def test_onnx_answers_as_the_regressor_does(
    regressor: ThreadScalingRegressor, both: tuple[Encoded, np.ndarray]
) -> None:
    """Both stages are one ONNX model, which agrees to 1e-4 in the logarithm, or to 0.05 where a tree differs.

    The second stage reads what the first one predicts, which ONNX Runtime computes in float32: a threshold of a tree
    may lie between the two results.
    """
    encoded, _ = both
    session = open_session(regressor.to_onnx(), RuntimeSettings(threads=1, spinning=False))
    (served,) = session.run(None, {"features": encoded.features})
    expected = np.log(regressor.predict_us(encoded) / encoded.bounds_us)
    errors = np.abs(np.asarray(served).reshape(-1) - expected)
    assert np.mean(errors < 1e-4) > 0.98
    assert errors.max() < 0.05
    assert regressor.to_text() == ""
    assert regressor.settings["scaled_from_threads"] == 1
