"""What single layers cost, of sequences that were measured: the targets of regressors that see a layer at a time."""

import numpy as np

from costmodel.features.tabular import Encoded

__all__ = ["layer_targets"]

# With fewer single layers than this, longer sequences have to tell what layers cost.
_LEAST_SINGLE = 20


def layer_targets(encoded: Encoded, latencies_us: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Layers and their costs.

    Sequences of one layer say it exactly. Where there are hardly any, the cost of a longer sequence is shared out among
    its layers by their bounds.

    Args:
        encoded: Measured sequences.
        latencies_us: Their costs, shape [num_sequences].

    Returns:
        Rows of `encoded`, and their costs in microseconds.
    """
    single = encoded.lengths == 1
    if single.sum() >= _LEAST_SINGLE or single.all():
        return encoded.starts[:-1][single], latencies_us[single]
    share = encoded.bounds_us / np.repeat(encoded.totals(encoded.bounds_us), encoded.lengths)
    return np.arange(len(encoded.bounds_us)), share * np.repeat(latencies_us, encoded.lengths)
