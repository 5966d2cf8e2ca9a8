"""The contract that every regressor passes, and what each baseline is."""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import gmean

from costmodel.features.schema import SCHEMA
from costmodel.features.tabular import encode_all
from costmodel.training.dataset import Dataset
from costmodel.training.regressors import REGRESSORS, Regressor
from tests.fakes import elementwise
from tests.synthetic import SYSTEM

Maker = Callable[[int], Regressor]


@pytest.fixture(params=REGRESSORS)
def make(request: pytest.FixtureRequest) -> Maker:
    """Each regressor in turn."""
    return REGRESSORS[request.param]


def _fitted(make: Maker, dataset: Dataset, seed: int = 0) -> Regressor:
    return make(seed).fit(dataset.features, dataset.bounds_us, dataset.latencies_us)


def test_fit_returns_the_regressor_itself(make: Maker, dataset: Dataset) -> None:
    """As everywhere in this field, so that making, fitting and asking is one line."""
    regressor = make(0)
    assert regressor.fit(dataset.features, dataset.bounds_us, dataset.latencies_us) is regressor


def test_predictions_are_positive_finite_and_one_for_each_row(make: Maker, dataset: Dataset) -> None:
    """Nothing costs 0 or less, on rows that were seen and on any others."""
    regressor = _fitted(make, dataset)
    random = np.random.default_rng(0)
    wild = random.uniform(0, 30, (50, len(SCHEMA.names))).astype(np.float32)
    for features, bounds in (
        (dataset.features, dataset.bounds_us),
        (dataset.features[:1], dataset.bounds_us[:1]),
        encode_all([elementwise(10**6, op_type="Sinh"), elementwise(0, op_type="Identity")], SYSTEM),
        (wild, random.uniform(1, 1e6, 50)),
    ):
        costs = regressor.predict_us(features, bounds)
        assert costs.shape == (len(features),)
        assert np.isfinite(costs).all()
        assert (costs > 0).all()


def test_the_same_seed_gives_the_same_predictions(make: Maker, dataset: Dataset) -> None:
    """Chance enters through the seed alone."""
    one, other = (_fitted(make, dataset, seed=7).predict_us(dataset.features, dataset.bounds_us) for _ in range(2))
    assert np.array_equal(one, other)


def test_little_data_is_learnt_from_too(make: Maker, dataset: Dataset) -> None:
    """Twenty rows are enough to answer, if not to be right."""
    some = slice(0, 20)
    regressor = make(0).fit(dataset.features[some], dataset.bounds_us[some], dataset.latencies_us[some])
    assert (regressor.predict_us(dataset.features, dataset.bounds_us) > 0).all()


def test_fitting_leaves_the_data_alone(make: Maker, dataset: Dataset) -> None:
    """The rows are shared by all regressors, on several threads."""
    before = [dataset.features.copy(), dataset.bounds_us.copy(), dataset.latencies_us.copy()]
    _fitted(make, dataset).predict_us(dataset.features, dataset.bounds_us)
    after = [dataset.features, dataset.bounds_us, dataset.latencies_us]
    assert all(np.array_equal(one, other) for one, other in zip(before, after, strict=True))


def test_roofline_is_the_bound_times_one_factor(dataset: Dataset) -> None:
    """Where the cost is always three times the bound, it is exact."""
    scaled = replace(dataset, latencies_us=3 * dataset.bounds_us)
    costs = _fitted(REGRESSORS["roofline"], scaled).predict_us(dataset.features, dataset.bounds_us)
    assert costs == pytest.approx(3 * dataset.bounds_us)


def test_flops_is_a_constant_and_a_rate(dataset: Dataset) -> None:
    """Where the cost is 5 us and one for each million operations, it is exact."""
    columns = [SCHEMA.names.index(f"log_{kind}_flops") for kind in ("multiply", "other")]
    flops = np.expm1(dataset.features[:, columns].astype(np.float64)).sum(axis=1)
    linear = replace(dataset, latencies_us=5 + flops / 1e6)
    costs = _fitted(REGRESSORS["flops"], linear).predict_us(dataset.features, dataset.bounds_us)
    assert costs == pytest.approx(linear.latencies_us, rel=1e-4)


def test_nearest_remembers_what_it_saw(dataset: Dataset) -> None:
    """A row that was measured is its own nearest neighbour."""
    rows = np.unique(dataset.features, axis=0, return_index=True)[1]
    costs = _fitted(REGRESSORS["nearest"], dataset).predict_us(dataset.features[rows], dataset.bounds_us[rows])
    assert np.median(np.abs(costs / dataset.latencies_us[rows] - 1)) < 1e-6


def test_operator_count_is_the_geometric_mean_of_the_operator(dataset: Dataset) -> None:
    """Every convolution costs the same, whatever its size; an operator that was never seen costs the mean of all."""
    regressor = _fitted(REGRESSORS["operator_count"], dataset)
    costs = regressor.predict_us(dataset.features, dataset.bounds_us)
    of_conv = np.array([kind == "Conv" for kind in dataset.kinds])
    assert costs[of_conv] == pytest.approx(gmean(dataset.latencies_us[of_conv]))
    unseen = regressor.predict_us(*encode_all([elementwise(8, op_type="Sinh")], SYSTEM))
    assert unseen == pytest.approx(gmean(dataset.latencies_us))


@pytest.mark.parametrize("package", ["lightgbm", "sklearn", "joblib"])
def test_a_missing_extra_names_the_line_that_installs_it(package: str) -> None:
    """Serving needs no learning library; who trains without one is told what to install."""
    code = f"import sys; sys.modules[{package!r}] = None; import costmodel.training.train"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "MissingExtraError" in done.stderr
    assert "pip install 'costmodel[train]'" in done.stderr
