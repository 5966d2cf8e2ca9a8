"""How uncertain the measured latencies of whole models are, by which predictions are judged."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

__all__ = ["Truth", "standard_errors", "truth_of"]

# Standard error of a measured latency, in log latency, above which a model is counted apart.
UNCERTAIN = 0.02
# Smallest number of models that were measured more than once, from which the noise of a measurement is estimated.
_LEAST_MODELS = 10
# How many further measurements of a model its own spread is mixed with the noise of all models as if there were.
_PRIOR_WEIGHT = 1.0


@dataclass(frozen=True)
class Truth:
    """How uncertain the measured latencies of models are, and a predictor's errors without that uncertainty.

    Attributes:
        repeated: Number of judged models that were measured more than once.
        noise: Standard deviation of one measurement of a model, in log latency.
        rms: Root mean square of log(predicted / measured) over the judged models.
        rms_without_noise: The same with the variance of the measured latencies subtracted.
        uncertain: Number of judged models whose measured latency has a standard error of more than 2%.
        certain_mape: Mean absolute relative error over the other models; None if there are none.
    """

    repeated: int
    noise: float
    rms: float
    rms_without_noise: float
    uncertain: int
    certain_mape: float | None


def standard_errors(measured_us: Sequence[Sequence[float]]) -> tuple[float, np.ndarray] | None:
    """Returns the noise of one measurement, and the standard error of each model's latency, in log latency.

    The variance of a model's measurements is a mean of its own and that of all models, because two or three
    measurements tell little about their spread.

    Args:
        measured_us: For each model, the latency of each of its measurements.

    Returns:
        The standard deviation of one measurement and an array of shape [num_models]; None if fewer than ten models were
        measured more than once.
    """
    counts = np.array([len(of_model) for of_model in measured_us])
    if (counts > 1).sum() < _LEAST_MODELS:
        return None
    squares = np.array([len(of_model) * np.var(np.log(of_model)) for of_model in measured_us])
    variance = squares.sum() / (counts - 1).sum()
    own = (squares + _PRIOR_WEIGHT * variance) / (counts - 1 + _PRIOR_WEIGHT)
    return float(np.sqrt(variance)), np.sqrt(own / counts)


def truth_of(
    predicted_us: np.ndarray, latencies_us: np.ndarray, measured_us: Sequence[Sequence[float]]
) -> Truth | None:
    """Returns how uncertain measured latencies are, and the errors of predictions of them without that uncertainty.

    Args:
        predicted_us: Prediction for each model in microseconds, shape [num_models].
        latencies_us: Measured latency of each model, by which the predictions are judged, shape [num_models].
        measured_us: For each model, the latency of each of its measurements.

    Returns:
        None if fewer than ten models were measured more than once.
    """
    found = standard_errors(measured_us)
    if found is None:
        return None
    noise, errors = found
    squares = np.log(predicted_us / latencies_us) ** 2
    certain = errors <= UNCERTAIN
    relative = np.abs(predicted_us / latencies_us - 1)[certain]
    return Truth(
        repeated=sum(len(of_model) > 1 for of_model in measured_us),
        noise=noise,
        rms=float(np.sqrt(squares.mean())),
        rms_without_noise=float(np.sqrt(max(0.0, (squares - errors**2).mean()))),
        uncertain=int((~certain).sum()),
        certain_mape=float(relative.mean()) if len(relative) else None,
    )
