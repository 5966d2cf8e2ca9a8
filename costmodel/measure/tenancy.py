"""What tenants of a shared machine observe: its states, the share of time in each, and the latencies that follow.

`latency_us` is the latency on the quiet machine. Its users also meet the machine's other states, in which layers take
longer, as often as the machine is in them.
"""

from collections import defaultdict
from collections.abc import Iterable
from statistics import median

import numpy as np

from costmodel.measure.machine_state import QUIET
from costmodel.measure.measurement import Measurement
from costmodel.measure.statistics import MODEL_QUANTILE

__all__ = ["jitter", "quiet_factors", "slowdowns", "state_shares"]

_QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
# Points at which the distribution of run times on the quiet machine is described.
_GRID = (np.arange(500) + 0.5) / 500


def state_shares(measurements: Iterable[Measurement]) -> dict[str, float]:
    """Returns the share of the time that the machine spent in each state while it was measured, by name of the state.

    Networks that were timed in turn have seen the same time, which counts once. Empty if no states are recorded.
    """
    times_us: dict[str, float] = defaultdict(float)
    for states in {tuple(sorted(one.environment.get("states_us", {}).items())) for one in measurements}:
        for state, time_us in states:
            times_us[state] += time_us
    total_us = sum(times_us.values())
    return {state: time_us / total_us for state, time_us in times_us.items() if total_us}


def slowdowns(measurements: Iterable[Measurement]) -> dict[str, float]:
    """Returns how many times as long runs take in each state of the machine, other than the quiet one, by its name.

    It is the median, over the measurements, of the median time of a run in that state over that of the runs that count.
    """
    ratios: dict[str, list[float]] = defaultdict(list)
    for measurement in measurements:
        for state, (_, time_us) in measurement.environment.get("disturbed_us", {}).items():
            ratios[state].append(time_us / measurement.timing.call_us)
    return {state: median(of_state) for state, of_state in ratios.items()}


def quiet_factors(measurements: Iterable[Measurement]) -> np.ndarray:
    """Returns the distribution of run times on the quiet machine: equally likely factors to the median, ascending.

    Each is the median, over the measurements, of the same quantile of their run times.
    """
    relative = [np.asarray(one.times_us) / np.quantile(one.times_us, MODEL_QUANTILE) for one in measurements]
    return np.asarray(np.median([np.quantile(times, _GRID) for times in relative], axis=0))


def jitter(measurements: Iterable[Measurement]) -> dict[str, float]:
    """Returns the factors from the latency to the p50, p90 and p99 that users observe, each at least 1.

    The distribution of run times on the quiet machine is, at each quantile, the median over the measurements. In
    another state, it is longer by the slowdown in that state, and each state counts by its share of the time. States
    whose slowdown is unknown do not count. A measurement that is a latency observed elsewhere, a single number, does
    not count either; if nothing is left, the jitter is unknown and the result is empty.
    """
    timed = [measurement for measurement in measurements if not measurement.observed]
    if not timed:
        return {}
    quiet = quiet_factors(timed)
    shares = state_shares(timed)
    of_states = {QUIET: 1.0, **slowdowns(timed)}
    weights = {state: shares.get(state, 0.0) for state in of_states}
    if not sum(weights.values()):
        weights[QUIET] = 1.0
    observed = np.concatenate([quiet * factor for factor in of_states.values()])
    weight_of_each = np.repeat([weights[state] for state in of_states], len(_GRID))
    factors = np.quantile(observed, list(_QUANTILES.values()), weights=weight_of_each, method="inverted_cdf")
    return dict(zip(_QUANTILES, (float(max(1.0, factor)) for factor in factors), strict=True))
