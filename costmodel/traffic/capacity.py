"""Searches of the server scenario: the highest rate that meets an objective, and the replicas that a rate needs."""

import math
from dataclasses import replace

from costmodel.traffic.idle import ALWAYS_WARM
from costmodel.traffic.objective import LatencyObjective
from costmodel.traffic.scenarios import SEED, Serving, TrafficResult, simulate

__all__ = ["MAX_REPLICAS", "best_at", "highest_rate_per_s", "replicas_for"]

# More replicas than this are not simulated one by one.
MAX_REPLICAS = 1000
# Shares of the saturation at which rates are tried, from the highest on, and the precision of the search.
_LOADS = (0.995, 0.98, 0.95, 0.9, 0.85, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.05, 0.02, 0.01)
_PRECISION = 0.005
# Shares of the rate without the effects of an idle time at which rates with them are tried first.
_BELOW_WARM = (1.0, 0.97, 0.92, 0.85, 0.75, 0.6)


def highest_rate_per_s(serving: Serving, objective: LatencyObjective, *, seed: int = SEED) -> float:
    """Returns the highest rate of Poisson arrivals, in requests a second, at which the objective is met.

    Rates are tried downwards, because with a waiting time in the batching policy the latency of a low rate can be
    longer than that of a higher one; the highest rate that meets the objective is then refined by bisection. The result
    is 0 if even one percent of the saturation does not meet it.

    An idle time makes no request of a single replica without batches faster. The rate without its effects, which is
    quicker to simulate, is then an upper bound from which the search with them begins.
    """
    saturation_per_s = serving.saturation_per_s
    above = 1.0
    loads: tuple[float, ...] = _LOADS
    if serving.variation.idle.total_us and serving.replicas == 1 and serving.policy.max_size == 1:
        always_warm = replace(serving, variation=replace(serving.variation, idle=ALWAYS_WARM))
        warm = highest_rate_per_s(always_warm, objective, seed=seed) / saturation_per_s
        if not warm:
            return 0.0
        loads = (*(warm * share for share in _BELOW_WARM), *(one for one in _LOADS if one < _BELOW_WARM[-1] * warm))
        above = warm * (1 + _PRECISION)
    for load in loads:
        if _meets(serving, load * saturation_per_s, objective, seed):
            break
        above = load
    else:
        return 0.0
    while above - load > _PRECISION * load:
        middle = (load + above) / 2
        if _meets(serving, middle * saturation_per_s, objective, seed):
            load = middle
        else:
            above = middle
    return load * saturation_per_s


def replicas_for(
    serving: Serving, rate_per_s: float, objective: LatencyObjective, highest_per_s: float, *, seed: int = SEED
) -> int | None:
    """Returns the least number of replicas that carry a rate of Poisson arrivals within an objective.

    Replicas that share a queue carry at least what each would carry alone, unless they form batches: see `best_at`.
    Beyond `MAX_REPLICAS` the number is that of replicas with queues of their own.

    Args:
        serving: One replica.
        rate_per_s: Rate of arrivals in requests a second.
        objective: Latency objective.
        highest_per_s: Highest rate in requests a second that one replica carries within the objective.
        seed: Seed of the random numbers.

    Returns:
        The number; None if no number is enough, because one replica alone is too slow.
    """
    if highest_per_s <= 0:
        return None
    enough = math.ceil(rate_per_s / highest_per_s)
    if enough > MAX_REPLICAS:
        return enough
    too_few = math.floor(rate_per_s / serving.saturation_per_s)
    while enough - too_few > 1:
        middle = (too_few + enough) // 2
        if best_at(replace(serving, replicas=middle), rate_per_s, objective, seed=seed).meets:
            enough = middle
        else:
            too_few = middle
    return enough


def best_at(
    serving: Serving, rate_per_s: float, objective: LatencyObjective | None, *, seed: int = SEED
) -> TrafficResult:
    """Returns the server scenario at a rate, with one queue for all replicas or with a queue for each.

    One queue is better, with two exceptions, in which every replica gets its part of the rate in a queue of its own:
    more than `MAX_REPLICAS`, which are not simulated one by one; and batches that miss the objective because the one
    queue fills every batch, where the smaller batches of separate queues meet it.
    """
    if serving.replicas <= MAX_REPLICAS:
        found = simulate(serving, "server", rate_per_s=rate_per_s, objective=objective, seed=seed)
        if found.meets is not False or serving.replicas == 1 or serving.policy.max_size == 1:
            return found
        apart = _apart(serving, rate_per_s, objective, seed)
        return apart if apart.meets else found
    return _apart(serving, rate_per_s, objective, seed)


def _apart(serving: Serving, rate_per_s: float, objective: LatencyObjective | None, seed: int) -> TrafficResult:
    """Returns the server scenario with a queue for each replica, all of which are alike."""
    one = replace(serving, replicas=1)
    found = simulate(one, "server", rate_per_s=rate_per_s / serving.replicas, objective=objective, seed=seed)
    return replace(
        found, replicas=serving.replicas, rate_per_s=rate_per_s, shared_queue=False,
        throughput_per_s=serving.replicas * found.throughput_per_s,
    )  # fmt: skip


def _meets(serving: Serving, rate_per_s: float, objective: LatencyObjective, seed: int) -> bool:
    return bool(simulate(serving, "server", rate_per_s=rate_per_s, objective=objective, seed=seed).meets)
