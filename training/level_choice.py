"""Compares lowerings of the same models by how well their latencies are predicted from their layers.

It is often unknown how the runtime optimised the models whose latencies others observed. The lowering with the layers
that were executed explains the latencies best.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from costmodel.features.tabular import encode_all
from costmodel.ir.sequence import LayerSequence
from costmodel.systems.system import System
from costmodel.training.dataset import LEAST_MODELS
from costmodel.training.regressors.log_linear import LogLinearRegressor

__all__ = ["LEAST_COMPARED", "held_out_errors"]

# Smallest number of models by which lowerings can be compared.
LEAST_COMPARED = LEAST_MODELS
_FOLDS = 5


def held_out_errors(
    lowerings: Mapping[str, Sequence[LayerSequence]], systems: Mapping[str, System], latencies_us: Sequence[float]
) -> dict[str, float]:
    """Returns, for each lowering, the mean relative error of models that are predicted from the other models.

    Args:
        lowerings: For each lowering by name, the whole models as layer sequences, at least `LEAST_COMPARED`.
        systems: For each lowering, the system with its settings.
        latencies_us: Latency of each model in microseconds.
    """
    measured = np.asarray(latencies_us, dtype=np.float64)
    fold = np.random.default_rng(0).permutation(len(measured)) % _FOLDS
    errors = {}
    for name, wholes in lowerings.items():
        encoded = encode_all(wholes, systems[name])
        predicted = np.empty(len(measured))
        for number in range(_FOLDS):
            held = fold == number
            learnt = LogLinearRegressor().fit(encoded.take(~held), measured[~held])
            judged = encoded.take(held)
            predicted[held] = judged.totals(learnt.predict_us(judged)) + learnt.model_us_
        errors[name] = float(np.mean(np.abs(predicted / measured - 1)))
    return errors
