"""The contract that every regressor passes, and the definition of each baseline."""

import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest
from scipy.stats import gmean

from costmodel.features.schema import SCHEMA
from costmodel.features.tabular import Encoded, encode_all
from costmodel.training.dataset import Dataset
from costmodel.training.regressors.baselines import ForestPerOperatorRegressor
from costmodel.training.regressors.learner import Regressor
from costmodel.training.regressors.registry import REGRESSORS
from costmodel.training.regressors.targets import layer_targets
from tests.fakes import elementwise
from tests.synthetic import SYSTEM

Maker = Callable[[int], Regressor]


@pytest.fixture(params=REGRESSORS)
def make(request: pytest.FixtureRequest) -> Maker:
    """Each regressor in turn."""
    return REGRESSORS[request.param]


def _fitted(make: Maker, dataset: Dataset, seed: int = 0) -> Regressor:
    return make(seed).fit(dataset.encoded, dataset.latencies_us)


def test_fit_returns_the_regressor_itself(make: Maker, dataset: Dataset) -> None:
    """`fit` returns the regressor, as in scikit-learn."""
    regressor = make(0)
    assert regressor.fit(dataset.encoded, dataset.latencies_us) is regressor


def test_predictions_are_positive_finite_and_one_for_each_layer(make: Maker, dataset: Dataset) -> None:
    """Every layer, from the training data or not, has one positive finite prediction."""
    regressor = _fitted(make, dataset)
    random = np.random.default_rng(0)
    wild = random.uniform(0, 30, (50, len(SCHEMA.names))).astype(np.float32)
    for encoded in (
        dataset.encoded,
        dataset.encoded.take(np.array([0])),
        encode_all([elementwise(10**6, op_type="Unheard"), elementwise(0, op_type="Identity")], SYSTEM),
        Encoded(wild, random.uniform(1, 1e6, 50), np.arange(51), np.zeros((2, 0), dtype=np.int64)),
    ):
        costs = regressor.predict_us(encoded)
        assert costs.shape == encoded.bounds_us.shape
        assert np.isfinite(costs).all()
        assert (costs > 0).all()


def test_the_same_seed_gives_the_same_predictions(make: Maker, dataset: Dataset) -> None:
    """Randomness enters through the seed alone."""
    one, other = (_fitted(make, dataset, seed=7).predict_us(dataset.encoded) for _ in range(2))
    assert np.array_equal(one, other)


@pytest.mark.parametrize("length", ["single", "longer"])
def test_little_data_is_learnt_from_too(make: Maker, dataset: Dataset, length: str) -> None:
    """Twenty layers, or five whole models, are enough for a fit."""
    some = np.flatnonzero(~dataset.whole)[:20] if length == "single" else np.flatnonzero(dataset.whole)[:5]
    regressor = make(0).fit(dataset.encoded.take(some), dataset.latencies_us[some])
    assert (regressor.predict_us(dataset.encoded) > 0).all()


def test_fitting_leaves_the_data_alone(make: Maker, dataset: Dataset) -> None:
    """`fit` does not modify the data, which all regressors share on several threads."""
    encoded = dataset.encoded
    before = [encoded.features.copy(), encoded.bounds_us.copy(), dataset.latencies_us.copy()]
    _fitted(make, dataset).predict_us(encoded)
    after = [encoded.features, encoded.bounds_us, dataset.latencies_us]
    assert all(np.array_equal(one, other) for one, other in zip(before, after, strict=True))


def test_roofline_is_the_bound_times_one_factor(dataset: Dataset) -> None:
    """The roofline is exact where costs are three times their bounds."""
    encoded = dataset.encoded
    costs = REGRESSORS["roofline"](0).fit(encoded, 3 * encoded.totals(encoded.bounds_us)).predict_us(encoded)
    assert costs == pytest.approx(3 * encoded.bounds_us)


def test_flops_is_a_constant_and_a_rate(dataset: Dataset) -> None:
    """The FLOPs baseline is exact where a layer costs 5 us plus 1 us per million operations."""
    columns = [SCHEMA.names.index(f"log_{kind}_flops") for kind in ("multiply", "other")]
    encoded = dataset.encoded
    linear = 5 + np.expm1(encoded.features[:, columns].astype(np.float64)).sum(axis=1) / 1e6
    costs = REGRESSORS["flops"](0).fit(encoded, encoded.totals(linear)).predict_us(encoded)
    assert costs == pytest.approx(linear, rel=1e-4)


def test_nearest_remembers_what_it_saw(dataset: Dataset) -> None:
    """A layer of the training data is its own nearest neighbour."""
    rows, costs_us = layer_targets(dataset.encoded, dataset.latencies_us)
    _, first = np.unique(dataset.encoded.features[rows], axis=0, return_index=True)
    costs = _fitted(REGRESSORS["nearest"], dataset).predict_us(dataset.encoded)[rows[first]]
    assert np.median(np.abs(costs / costs_us[first] - 1)) < 1e-6


def test_operator_count_is_the_geometric_mean_of_the_operator(dataset: Dataset) -> None:
    """All layers of an operator cost its geometric mean; an unknown operator costs that of all layers."""
    regressor = _fitted(REGRESSORS["operator_count"], dataset)
    rows, costs_us = layer_targets(dataset.encoded, dataset.latencies_us)
    of_conv = dataset.encoded.features[rows, SCHEMA.names.index("op_Conv")] == 1
    assert regressor.predict_us(dataset.encoded)[rows[of_conv]] == pytest.approx(gmean(costs_us[of_conv]))
    unseen = regressor.predict_us(encode_all([elementwise(8, op_type="Unheard")], SYSTEM))
    assert unseen == pytest.approx(gmean(costs_us))


def test_a_forest_sees_its_operator_only(dataset: Dataset) -> None:
    """Other operators influence the prediction only of operators with few rows."""
    rows, _ = layer_targets(dataset.encoded, dataset.latencies_us)
    of_conv = dataset.encoded.features[:, SCHEMA.names.index("op_Conv")] == 1
    assert of_conv[rows].sum() >= ForestPerOperatorRegressor.least_rows
    single = dataset.encoded.lengths == 1
    dearer = dataset.latencies_us.copy()
    dearer[single] *= np.where(of_conv[dataset.encoded.starts[:-1][single]], 1, 100)
    one, other = (ForestPerOperatorRegressor(0).fit(dataset.encoded, us) for us in (dataset.latencies_us, dearer))
    unseen = encode_all([elementwise(8, op_type="Unheard")], SYSTEM)
    same, changed = (r.predict_us(dataset.encoded)[of_conv] for r in (one, other))
    assert np.array_equal(same, changed)
    assert other.predict_us(unseen) > 2 * one.predict_us(unseen)


def test_a_forest_comes_near_what_it_saw(dataset: Dataset) -> None:
    """Forests predict most layers of the training data within a tenth."""
    rows, costs_us = layer_targets(dataset.encoded, dataset.latencies_us)
    costs = _fitted(REGRESSORS["forest_per_operator"], dataset).predict_us(dataset.encoded)[rows]
    assert np.median(np.abs(costs / costs_us - 1)) < 0.1


@pytest.mark.parametrize("package", ["lightgbm", "sklearn", "joblib"])
def test_a_missing_extra_names_the_line_that_installs_it(package: str) -> None:
    """Serving needs no learning library; training without one says what to install."""
    code = f"import sys; sys.modules[{package!r}] = None; import costmodel.training.train"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "MissingExtraError" in done.stderr
    assert "--editable '.[train]'" in done.stderr
