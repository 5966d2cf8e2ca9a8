"""How wrong a constructed latency is to be expected, by granularity: what is known of measured models, and a default.

Every cut brings an error of its own: a sequence by itself meets other caches than in its model. G times fewer cuts
have errors that add up to a square root of G times less. That is assumed where little is measured, and gives way to
what models say that are measured whole and in sequences.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import NormalDist

from costmodel.estimate.cost import TYPICAL_CONSTRUCTION
from costmodel.measure.measurement import Protocol, Timing
from costmodel.partition.granularity import GRANULARITIES
from costmodel.store.store import StoredModel

__all__ = ["ConstructionError", "construction_error", "expected_error", "half_width_of", "known_ratios", "noise_of"]

# A default counts as much as this many measured models.
_DEFAULT_MODELS = 5
_LEVEL = 0.9


@dataclass(frozen=True, slots=True)
class ConstructionError:
    """Expected |log(constructed / end to end)| on one system.

    Attributes:
        by_granularity: For every one of `GRANULARITIES`, and those that models are measured at; it never grows.
        whole: Of a model that was measured end to end itself: noise alone.
    """

    by_granularity: Mapping[int, float]
    whole: float


def construction_error(ratios: Iterable[tuple[int, float]], noise: Iterable[float]) -> ConstructionError:
    """What to expect by what is known.

    Args:
        ratios: Granularity and log(constructed / end to end) of models that are measured in both ways.
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
    """The nearest values that never rise: those that would are replaced by their mean (pool adjacent violators).

    Args:
        values: Each with its weight.
    """
    pools: list[tuple[float, int, int]] = []  # mean, weight, how many
    for mean, weight in values:
        count = 1
        while pools and pools[-1][0] <= mean:
            before, its_weight, its_count = pools.pop()
            mean = (before * its_weight + mean * weight) / (its_weight + weight)
            weight, count = its_weight + weight, its_count + count
        pools.append((mean, weight, count))
    return [mean for mean, _, count in pools for _ in range(count)]


def known_ratios(models: Iterable[StoredModel], latencies_us: Mapping[str, float]) -> list[tuple[int, float]]:
    """Granularity and log(constructed / end to end) of the models that are measured whole and in all sequences.

    Args:
        models: One that several runtimes lower to the same layers counts once.
        latencies_us: Of each measured signature.
    """
    found = {}
    for model in models:
        signatures = [segment.signature for segment in model.segments]
        if len(signatures) > 1 and latencies_us.keys() >= {model.whole, *signatures}:
            constructed = math.fsum(latencies_us[signature] for signature in signatures)
            found[model.granularity, model.whole] = math.log(constructed / latencies_us[model.whole])
    return [(granularity, ratio) for (granularity, _), ratio in found.items()]


def noise_of(timing: Timing) -> float:
    """Expected error of a measured latency by its interval."""
    low, high = timing.interval_us
    return expected_error(math.log(high / low) / 2, _LEVEL)


def expected_error(half_width: float, level: float) -> float:
    """Mean size of a normal error that stays within `half_width` with probability `level`."""
    return half_width / half_width_of(1.0, level)


def half_width_of(error: float, level: float) -> float:
    """What a normal error whose mean size is `error` stays within with probability `level`."""
    return error * math.sqrt(math.pi / 2) * NormalDist().inv_cdf((1 + level) / 2)
