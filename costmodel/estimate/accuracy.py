"""Expected error of constructed latencies by granularity.

Every cut between sequences adds an error, because a sequence that runs in isolation finds other data in the caches than
inside its model. With G times fewer cuts the sum of these errors is smaller by a factor of the square root of G, which
gives a default error for each granularity. Models that are measured both whole and in sequences show the actual error;
the more of them there are, the less the default counts.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import NormalDist

from costmodel.estimate.cost import TYPICAL_CONSTRUCTION
from costmodel.measure.measurement import Timing
from costmodel.measure.protocol import Protocol
from costmodel.partition.granularity import GRANULARITIES
from costmodel.store.store import StoredModel

__all__ = ["ConstructionError", "construction_error", "expected_error", "half_width_of", "known_ratios", "noise_of"]

# A default counts as much as this many measured models.
_DEFAULT_MODELS = 5
_LEVEL = 0.9


@dataclass(frozen=True, slots=True)
class ConstructionError:
    """Expected error |log(constructed latency / end-to-end latency)| of models on one system.

    Attributes:
        by_granularity: Expected error at each of `GRANULARITIES` and at each granularity at which models are measured;
            it never grows with the granularity.
        whole: Expected error of a model that is itself measured end to end, which is only the noise of that
            measurement.
    """

    by_granularity: Mapping[int, float]
    whole: float


def construction_error(ratios: Iterable[tuple[int, float]], noise: Iterable[float]) -> ConstructionError:
    """Returns the expected error of constructed latencies: a default, which counts less the more models are measured.

    Args:
        ratios: For each model that is measured both whole and in sequences, the granularity of the sequences and
            log(constructed latency / end-to-end latency).
        noise: Expected error of each end-to-end measurement.
    """
    of: dict[int, list[float]] = {granularity: [] for granularity in GRANULARITIES}
    for granularity, ratio in ratios:
        of.setdefault(granularity, []).append(abs(ratio))
    wholes = list(noise)
    whole = _shrunk(wholes, Protocol().agreement)
    error, finer = expected_error(TYPICAL_CONSTRUCTION, _LEVEL), 1
    errors = []
    for granularity, known in sorted(of.items()):
        of_cuts = max(0.0, error**2 - whole**2) * finer / granularity
        error, finer = _shrunk(known, math.sqrt(whole**2 + of_cuts)), granularity
        errors.append((error, len(known) + _DEFAULT_MODELS))
    *falling, whole = _falling([*errors, (whole, len(wholes) + _DEFAULT_MODELS)])
    return ConstructionError(dict(zip(sorted(of), falling, strict=True)), whole)


def _shrunk(known: list[float], default: float) -> float:
    return (math.fsum(known) + _DEFAULT_MODELS * default) / (len(known) + _DEFAULT_MODELS)


def _falling(values: Iterable[tuple[float, int]]) -> list[float]:
    """Returns the non-increasing values nearest to those given: neighbours that rise become their weighted mean.

    The algorithm is pool adjacent violators. `scipy.optimize.isotonic_regression` computes the same, but predictions
    must work without SciPy, which is installed for training only.

    Args:
        values: Pairs of a value and its weight.
    """
    pools: list[tuple[float, int, int]] = []  # mean, weight, number of values
    for mean, weight in values:
        count = 1
        while pools and pools[-1][0] <= mean:
            before, its_weight, its_count = pools.pop()
            mean = (before * its_weight + mean * weight) / (its_weight + weight)
            weight, count = its_weight + weight, its_count + count
        pools.append((mean, weight, count))
    return [mean for mean, _, count in pools for _ in range(count)]


def known_ratios(models: Iterable[StoredModel], latencies_us: Mapping[str, float]) -> list[tuple[int, float]]:
    """Returns granularity and log ratio of each model that is measured both whole and in all its sequences.

    Args:
        models: Stored models; one that several runtimes lower to the same layers counts once at each granularity.
        latencies_us: Latency of each measured signature in microseconds.

    Returns:
        Pairs of the granularity and log(constructed latency / end-to-end latency).
    """
    found = {}
    for model in models:
        signatures = [segment.signature for segment in model.segments]
        if len(signatures) > 1 and latencies_us.keys() >= {model.whole, *signatures}:
            constructed = math.fsum(latencies_us[signature] for signature in signatures)
            found[model.granularity, model.whole] = math.log(constructed / latencies_us[model.whole])
    return [(granularity, ratio) for (granularity, _), ratio in found.items()]


def noise_of(timing: Timing) -> float:
    """Returns the expected error of a measured latency, computed from the width of its interval."""
    low, high = timing.interval_us
    return expected_error(math.log(high / low) / 2, _LEVEL)


def expected_error(half_width: float, level: float) -> float:
    """Returns the mean absolute value of a normal error that is within ±`half_width` with probability `level`."""
    return half_width / half_width_of(1.0, level)


def half_width_of(error: float, level: float) -> float:
    """Returns the half-width within which a normal error of mean absolute value `error` is with probability `level`."""
    return error * math.sqrt(math.pi / 2) * NormalDist().inv_cdf((1 + level) / 2)
