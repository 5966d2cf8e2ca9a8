"""Anchors: costs that sequences are assumed to have on a new system until they are measured there.

The anchor of a sequence is usually its cost on a base system. While costs are adapted from the base system to the new
one, a cost is predicted as anchor * exp(r) instead of analytical bound * exp(r), where r is learnt.
"""

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
    """Returns the anchor of each row of a data set (a sequence) in microseconds, shape [num_rows].

    The anchor is the cost on the base system, from which adaptation starts. Where that cost is unknown, the anchor is
    predicted by a regressor that is trained on the known costs, or, if too few are known, it is the analytical bound.

    Args:
        dataset: Sequences with their costs on the base system, nan where they are unknown.
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
    """Returns sequences with anchors in place of analytical bounds, so that costs are predicted as factors on anchors.

    Args:
        encoded: Sequences as features; the feature of the analytical bound is replaced as well.
        anchors_us: Anchor of each sequence in microseconds, which is distributed over its layers in proportion to their
            analytical bounds; shape [num_sequences].
    """
    shares = encoded.bounds_us / np.repeat(encoded.totals(encoded.bounds_us), encoded.lengths)
    bounds_us = shares * np.repeat(anchors_us, encoded.lengths)
    features = encoded.features.copy()
    features[:, _ANCHOR] = np.log(bounds_us)
    return replace(encoded, features=features, bounds_us=bounds_us)
