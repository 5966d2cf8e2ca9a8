"""The perceptron, the ensemble of it with the trees, and their ONNX exports."""

import numpy as np
import pytest

from costmodel.features.schema import SCHEMA
from costmodel.features.tabular import Encoded
from costmodel.runtimes.base import RuntimeSettings
from costmodel.runtimes.ort.session import open_session
from costmodel.training.dataset import Dataset

pytest.importorskip("torch")

from costmodel.training.regressors.ensemble import EnsembleRegressor
from costmodel.training.regressors.learner import Learner
from costmodel.training.regressors.lightgbm_regressor import LightGBMRegressor
from costmodel.training.regressors.log_linear import LogLinearRegressor
from costmodel.training.regressors.operator_scale import OperatorScaleRegressor
from costmodel.training.regressors.perceptron import PerceptronRegressor

MAKERS = {
    "perceptron": lambda: PerceptronRegressor(0, epochs=20),
    "ensemble": lambda: EnsembleRegressor(
        {"lightgbm": LightGBMRegressor(0), "perceptron": PerceptronRegressor(0, epochs=5), "line": LogLinearRegressor()}
    ),
    "scaled perceptron": lambda: OperatorScaleRegressor(PerceptronRegressor(0, epochs=20)),
}


@pytest.fixture(scope="module", params=MAKERS)
def regressor(request: pytest.FixtureRequest, dataset: Dataset) -> Learner:
    """A perceptron with and without scales, and an ensemble of three regressors, fitted on the synthetic data set."""
    return MAKERS[request.param]().fit(dataset.encoded, dataset.latencies_us)


def _alone(features: np.ndarray) -> Encoded:
    """Returns layers with given features as sequences of one layer each, with a bound of 1 us."""
    return Encoded(features, np.ones(len(features)), np.arange(len(features) + 1), np.zeros((2, 0), dtype=np.int64))


@pytest.mark.parametrize("spread", [0.0, 1.0, 10.0])
def test_onnx_answers_as_the_regressor_does(regressor: Learner, dataset: Dataset, spread: float) -> None:
    """The ONNX model agrees to 1e-4 in the logarithm, on layers of the training data and far from them."""
    random = np.random.default_rng(0)
    rows = random.integers(0, len(dataset.encoded.features), 500)
    noise = random.normal(0, spread, (500, len(SCHEMA.names)))
    features = (dataset.encoded.features[rows] + noise).astype(np.float32)
    session = open_session(regressor.to_onnx(), RuntimeSettings(threads=1, spinning=False))
    (served,) = session.run(None, {"features": features})
    expected = np.log(regressor.predict_us(_alone(features)))
    assert np.asarray(served).reshape(-1) == pytest.approx(expected, abs=1e-4)


def test_it_learns(regressor: Learner, dataset: Dataset) -> None:
    """The factor of each kind of layer is learnt."""
    costs = dataset.encoded.totals(regressor.predict_us(dataset.encoded))
    assert np.median(np.abs(costs / dataset.latencies_us - 1)[~dataset.whole]) < 0.05


def test_an_ensemble_is_the_geometric_mean_of_its_members(dataset: Dataset) -> None:
    """The predictions of the members are averaged in the logarithm."""
    ensemble = EnsembleRegressor({"trees": LightGBMRegressor(0), "line": LogLinearRegressor()})
    ensemble.fit(dataset.encoded, dataset.latencies_us)
    trees, line = (member.predict_us(dataset.encoded) for member in ensemble.members.values())
    assert ensemble.predict_us(dataset.encoded) == pytest.approx(np.sqrt(trees * line))


def test_threads_of_an_ensemble_are_those_of_all_members() -> None:
    """Setting the number of threads reaches every member."""
    ensemble = EnsembleRegressor({"trees": LightGBMRegressor(0), "line": LogLinearRegressor()})
    ensemble.threads = 3
    assert [member.threads for member in ensemble.members.values()] == [3, 3]
    assert ensemble.threads == 3


def test_settings_name_the_member() -> None:
    """Settings of members with the same name are told apart."""
    ensemble = EnsembleRegressor({"a": LogLinearRegressor(ridge=1.0), "b": LogLinearRegressor(ridge=2.0)})
    assert (ensemble.settings["a.ridge"], ensemble.settings["b.ridge"]) == (1.0, 2.0)


def test_layers_beyond_the_training_data_keep_near_its_range(dataset: Dataset) -> None:
    """The perceptron answers absurd features with a ratio within e of those that it was trained on."""
    regressor = PerceptronRegressor(0, epochs=2).fit(dataset.encoded, dataset.latencies_us)
    single = dataset.encoded.lengths == 1
    seen = np.log(dataset.latencies_us / dataset.encoded.totals(dataset.encoded.bounds_us))[single]
    absurd = np.random.default_rng(0).normal(0, 1e6, (100, len(SCHEMA.names))).astype(np.float32)
    ratios = np.log(regressor.predict_us(_alone(absurd)))
    assert seen.min() - 1.001 <= ratios.min()
    assert ratios.max() <= seen.max() + 1.001
