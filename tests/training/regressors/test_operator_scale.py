"""The scale of each operator, from which a regressor learns how its layers differ."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Self

import numpy as np
import pytest

from costmodel.features.schema import FEATURE_GROUPS, SCHEMA
from costmodel.features.tabular import Encoded
from costmodel.training.regressors.lightgbm_regressor import LightGBMRegressor
from costmodel.training.regressors.operator_scale import OperatorScaleRegressor

_CONV, _LRN, _ELU, _TAN = (SCHEMA.names.index(f"op_{name}") for name in ("Conv", "LRN", "Elu", "Tan"))


class _Bounds:
    """A regressor that has nothing to learn: it predicts the bounds that it is given."""

    threads = 1
    settings: Mapping[str, object] = {"kind": "bounds"}

    def fit(self, encoded: Encoded, latencies_us: np.ndarray) -> Self:
        self.trained_us = encoded.bounds_us
        return self

    def predict_us(self, encoded: Encoded) -> np.ndarray:
        return encoded.bounds_us

    def to_onnx(self) -> bytes:
        raise NotImplementedError

    def to_text(self) -> str:
        return "bounds"


def _layers(operators: list[int]) -> Encoded:
    """Returns layers of some operators as sequences of one layer each, with bounds of 1, 2, 3, ... us."""
    features = np.zeros((len(operators), len(SCHEMA.names)), np.float32)
    features[np.arange(len(operators)), operators] = 1
    bounds_us = np.arange(1.0, len(operators) + 1)
    return Encoded(features, bounds_us, np.arange(len(operators) + 1), np.zeros((2, 0), dtype=np.int64))


def test_rare_operators_have_a_scale_of_their_own() -> None:
    """A dozen layers are enough; one layer counts less than what all have in common, and none not at all."""
    layers = _layers([_CONV] * 200 + [_LRN] * 12 + [_ELU])
    factors = np.array([1.5] * 200 + [9.0] * 12 + [9.0])
    regressor = OperatorScaleRegressor(_Bounds()).fit(layers, layers.bounds_us * factors)
    asked = _layers([_CONV, _LRN, _ELU, _TAN])
    conv, lrn, elu, tan = regressor.predict_us(asked) / asked.bounds_us
    assert conv == pytest.approx(1.5, rel=1e-3)
    assert 6 < lrn < 9
    assert 1.5 < elu < 3
    assert tan == pytest.approx(1.5)


def test_the_base_learns_from_scaled_bounds() -> None:
    """Features stay as they are, and what is predicted is scaled as what was trained on."""
    layers = _layers([_CONV] * 30 + [_LRN] * 30)
    costs_us = layers.bounds_us * np.where(np.arange(60) < 30, 2.0, 8.0)
    base = _Bounds()
    OperatorScaleRegressor(base).fit(layers, costs_us)
    assert np.abs(np.log(base.trained_us / costs_us)).max() < 0.1


def test_it_is_as_its_base_is_otherwise() -> None:
    """Threads reach the base, its settings are shown, and a text without the scales is not given out."""
    regressor = OperatorScaleRegressor(LightGBMRegressor(0))
    regressor.threads = 2
    assert (regressor.threads, regressor.base.threads) == (2, 2)
    assert regressor.settings == {**regressor.base.settings, "scaled_by_operator": True}
    assert regressor.to_text() == ""


def test_operators_that_no_feature_names_share_a_scale() -> None:
    """They are one group, as they are in the features."""
    other = SCHEMA.names.index(FEATURE_GROUPS["operator"][-1])
    layers = _layers([_CONV] * 50 + [other] * 50)
    regressor = OperatorScaleRegressor(_Bounds()).fit(layers, layers.bounds_us * np.repeat([1.0, 4.0], 50))
    asked = replace(_layers([other]), bounds_us=np.array([10.0]))
    assert regressor.predict_us(asked)[0] == pytest.approx(40, rel=0.15)
