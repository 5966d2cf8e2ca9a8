"""The noise of measured latencies, and errors of predictions without it."""

import hypothesis.strategies as st
import numpy as np
from hypothesis import given

from costmodel.training.evaluation.truth import standard_errors, truth_of


def measurements(
    random: np.random.Generator, models: int, most: int, noise: float
) -> tuple[np.ndarray, list[list[float]]]:
    """Returns true latencies of models, and one to `most` measurements of each, which spread by `noise`."""
    true_us = np.exp(random.uniform(5, 12, models))
    counts = random.integers(1, most + 1, models)
    return true_us, [
        list(np.exp(np.log(us) + random.normal(0, noise, n))) for us, n in zip(true_us, counts, strict=True)
    ]


@given(st.integers(0, 1000), st.floats(0.005, 0.2), st.floats(0.005, 0.2))
def test_the_noise_of_the_truth_is_taken_out(seed: int, noise: float, error: float) -> None:
    """The noise of a measurement is found, and what remains without it is the error against the true latencies."""
    random = np.random.default_rng(seed)
    true_us, measured_us = measurements(random, 600, 4, noise)
    latencies_us = np.array([np.exp(np.log(of_model).mean()) for of_model in measured_us])
    predicted_us = true_us * np.exp(random.normal(0, error, len(true_us)))
    truth = truth_of(predicted_us, latencies_us, measured_us)
    assert truth is not None
    assert abs(truth.noise / noise - 1) < 0.2
    assert truth.repeated == sum(len(of_model) > 1 for of_model in measured_us)
    variance = np.mean(np.log(predicted_us / true_us) ** 2)
    assert abs(truth.rms_without_noise**2 - variance) < 0.25 * (noise**2 + error**2)
    assert truth.rms_without_noise <= truth.rms


def test_models_that_spread_are_uncertain() -> None:
    """A model whose own measurements differ by half is counted apart, and does not weigh in the error of the others."""
    steady = [[1000.0, 1001.0, 999.0]] * 30
    latencies_us = np.array([1000.0] * 30 + [1250.0])
    truth = truth_of(np.full(31, 1010.0), latencies_us, [*steady, [1000.0, 1500.0]])
    assert truth is not None
    assert truth.uncertain == 1
    assert truth.certain_mape is not None
    assert abs(truth.certain_mape - 0.01) < 1e-9


def test_more_measurements_are_more_certain() -> None:
    """The standard error falls with the root of the number of measurements."""
    found = standard_errors([[100.0, 110.0]] * 20 + [[100.0, 110.0] * 8] + [[105.0]])
    assert found is not None
    noise, errors = found
    assert errors[20] < errors[0] / 2
    assert errors[21] == noise


def test_without_repeats_the_noise_is_unknown() -> None:
    """Nothing is said where fewer than ten models were measured more than once."""
    assert truth_of(np.ones(50), np.ones(50), [[1.0]] * 41 + [[1.0, 1.1]] * 9) is None
