"""Anchors: assumed costs of sequences until they are measured, which replace analytical bounds in features."""

from dataclasses import replace

import numpy as np

from costmodel.features.schema import SCHEMA
from costmodel.features.tabular import Encoded
from costmodel.training.dataset import Dataset
from costmodel.training.regressors.lightgbm_regressor import LightGBMRegressor

__all__ = ["anchored", "anchors"]

_ANCHOR = SCHEMA.names.index("log_bound_us")
# With fewer known single layers, analytical bounds are the anchors of unknown costs.
_LEAST_TO_LEARN = 30


def anchors(dataset: Dataset) -> np.ndarray:
    """Returns the anchor of each row in microseconds, shape [num_rows].

    The anchor is the cost on the base. Where that is unknown, it is the prediction of a regressor that is trained on
    the known costs, or, if too few are known, the analytical bound.

    Args:
        dataset: Sequences with their costs on the base, nan where they are unknown.
    """
    known = ~np.isnan(dataset.latencies_us)
    bounds = dataset.encoded.totals(dataset.encoded.bounds_us)
    if known.all():
        return dataset.latencies_us
    if (known & (dataset.encoded.lengths == 1)).sum() < _LEAST_TO_LEARN:
        return np.where(known, dataset.latencies_us, bounds)
    regressor = LightGBMRegressor(0).fit(dataset.encoded.take(known), dataset.latencies_us[known])
    predicted = dataset.encoded.totals(regressor.predict_us(dataset.encoded))
    return np.where(known, dataset.latencies_us, predicted)


def anchored(encoded: Encoded, anchors_us: np.ndarray) -> Encoded:
    """Returns sequences with anchors instead of analytical bounds, so that costs are predicted as factors on anchors.

    Args:
        encoded: Sequences as features; the feature of the analytical bound is replaced as well.
        anchors_us: Anchor of each sequence in microseconds, which is distributed over its layers in proportion to their
            bounds; shape [num_sequences].
    """
    shares = encoded.bounds_us / np.repeat(encoded.totals(encoded.bounds_us), encoded.lengths)
    bounds_us = shares * np.repeat(anchors_us, encoded.lengths)
    features = encoded.features.copy()
    features[:, _ANCHOR] = np.log(bounds_us)
    return replace(encoded, features=features, bounds_us=bounds_us)
