"""Training targets of regressors that predict one layer at a time: the costs of single layers."""

import numpy as np

from costmodel.features.tabular import Encoded

__all__ = ["layer_targets"]

# With fewer single layers than this, costs of layers are derived from longer sequences.
_LEAST_SINGLE = 20


def layer_targets(encoded: Encoded, latencies_us: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns layers with their costs, derived from measured sequences.

    The cost of a layer is that of a measured sequence which consists of this layer only. If there are too few such
    sequences, the cost of every sequence is distributed over its layers in proportion to their analytical bounds.

    Args:
        encoded: Measured sequences.
        latencies_us: Measured cost of each sequence in microseconds, shape [num_sequences].

    Returns:
        Rows of `encoded.features` that are the layers, and the cost of each of these layers in microseconds; both of
        shape [num_targets].
    """
    single = encoded.lengths == 1
    if single.sum() >= _LEAST_SINGLE or single.all():
        return encoded.starts[:-1][single], latencies_us[single]
    share = encoded.bounds_us / np.repeat(encoded.totals(encoded.bounds_us), encoded.lengths)
    return np.arange(len(encoded.bounds_us)), share * np.repeat(latencies_us, encoded.lengths)
