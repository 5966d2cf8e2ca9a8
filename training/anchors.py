"""Anchors: what stands for a cost until it is measured, and takes the place of the analytical bound."""

from dataclasses import replace

import numpy as np

from costmodel.features.schema import SCHEMA
from costmodel.features.tabular import Encoded
from costmodel.training.boosted import LightGBMRegressor
from costmodel.training.dataset import Dataset

__all__ = ["anchored", "anchors"]

_ANCHOR = SCHEMA.names.index("log_bound_us")
# Of fewer layers nothing is learnt.
_LEAST_TO_LEARN = 30


def anchors(dataset: Dataset) -> np.ndarray:
    """Costs on the base; where it has none, what a regressor learns of those that it has, or else bounds."""
    known = ~np.isnan(dataset.latencies_us)
    bounds = dataset.encoded.totals(dataset.encoded.bounds_us)
    if known.all():
        return dataset.latencies_us
    if (known & (dataset.encoded.lengths == 1)).sum() < _LEAST_TO_LEARN:
        return np.where(known, dataset.latencies_us, bounds)
    regressor = LightGBMRegressor(0).fit(dataset.encoded.take(known), dataset.latencies_us[known])
    told = dataset.encoded.totals(regressor.predict_us(dataset.encoded))
    return np.where(known, dataset.latencies_us, told)


def anchored(encoded: Encoded, anchors_us: np.ndarray) -> Encoded:
    """Sequences whose costs are told as factors on anchors instead of on analytical bounds.

    Args:
        encoded: Their features; the bound among these is replaced, too.
        anchors_us: Of each sequence, shared out among its layers by their bounds; shape [num_sequences].
    """
    shares = encoded.bounds_us / np.repeat(encoded.totals(encoded.bounds_us), encoded.lengths)
    bounds_us = shares * np.repeat(anchors_us, encoded.lengths)
    features = encoded.features.copy()
    features[:, _ANCHOR] = np.log(bounds_us)
    return replace(encoded, features=features, bounds_us=bounds_us)
