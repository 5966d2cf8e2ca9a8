"""Simulates queues of requests in front of replicas, first come, first served.

A single replica without batching follows Lindley's recursion, whose solution is a running maximum over arrays. Several
replicas, batches, or a machine that becomes cold while it is idle, need a loop. docs/adr/0021 compares with simpy.
"""

from bisect import bisect_right
from dataclasses import dataclass
from heapq import heapify, heapreplace

import numpy as np

from costmodel.traffic.idle import IdleEffects
from costmodel.traffic.objective import BatchPolicy
from costmodel.traffic.variation import Speed, Variation

__all__ = ["Served", "poisson_arrivals_us", "serve", "serve_in_turn"]

_US = 1e6
# Streams of random numbers, so that two simulations with one seed draw the same numbers for the same purpose.
_ARRIVALS, _RUNS, _STATES = range(3)


@dataclass(frozen=True)
class Served:
    """The latencies and the throughput of the requests of a simulation.

    Attributes:
        latencies_us: Time from arrival to completion of each request (closed scenarios: of each query) in microseconds,
            in order of arrival.
        span_us: Time from the begin of the simulation to the last completion, in microseconds.
        busy_us: Time that replicas spent on batches, in microseconds, added up over the replicas; the time to wake a
            thread for them is included.
        batches: Number of batches.
    """

    latencies_us: np.ndarray
    span_us: float
    busy_us: float
    batches: int


def poisson_arrivals_us(rate_per_s: float, number: int, seed: int) -> np.ndarray:
    """Returns the times of `number` arrivals of a Poisson process in microseconds, ascending.

    The last arrival is at exactly `number / rate_per_s`, so that the simulated rate does not scatter. The times at two
    rates differ by a factor only, so that a search over rates compares the same traffic.
    """
    times = np.cumsum(np.random.default_rng([seed, _ARRIVALS]).exponential(size=number))
    return np.asarray(times * (number / times[-1] * _US / rate_per_s))


def serve(
    arrivals_us: np.ndarray, service_us: np.ndarray, variation: Variation, replicas: int, policy: BatchPolicy, seed: int
) -> Served:
    """Serves requests that arrive at given times.

    Every replica is a machine of its own, whose states change independently of those of the others. The replica that
    has been free for the longest time takes the next batch.

    Args:
        arrivals_us: Times of arrival in microseconds, ascending, shape [num_requests].
        service_us: Service times by batch size on the quiet machine in microseconds, shape [>= max_size + 1].
        variation: How run times vary.
        replicas: Number of replicas.
        policy: How batches are formed.
        seed: Seed of the random numbers.
    """
    factors = variation.draw(np.random.default_rng([seed, _RUNS]), len(arrivals_us))
    span_us = float(arrivals_us[-1])
    speeds = [variation.speed(np.random.default_rng([seed, _STATES, one]), span_us) for one in range(replicas)]
    if replicas == 1 and policy.max_size == 1:
        return _lindley(arrivals_us, service_us[1] * factors, speeds[0], variation.idle)
    return _event_loop(arrivals_us, service_us.tolist(), factors.tolist(), speeds, policy, variation.idle)


def _lindley(arrivals_us: np.ndarray, work_us: np.ndarray, speed: Speed, idle: IdleEffects) -> Served:
    """Serves requests one by one on one replica.

    A request ends at E(i) = max(A(i), E(i - 1)) + S(i). With the sums C(i) = S(1) + ... + S(i), that is
    C(i) + max over j <= i of (A(j) - C(j - 1)). All of these are in units of work, of which the machine does as much as
    its state allows, so that a state which begins in the middle of a run slows its remainder. What an idle time costs
    is work too; it depends on the end of the request before, so that there is no closed form.
    """
    arrived = speed.work_at(arrivals_us)
    if not idle.total_us:
        total = np.cumsum(work_us)
        ended = total + np.maximum.accumulate(arrived - (total - work_us))
    else:
        ended = idle.ends(arrived.tolist(), work_us, speed.slowness_at(arrivals_us).tolist())
    ends_us = speed.time_at(ended)
    starts_us = np.maximum(arrivals_us, np.concatenate([[0.0], ends_us[:-1]]))
    return Served(ends_us - arrivals_us, float(ends_us[-1]), float((ends_us - starts_us).sum()), len(work_us))


def _event_loop(
    arrivals_us: np.ndarray, service_us: list[float], factors: list[float], speeds: list[Speed], policy: BatchPolicy,
    idle: IdleEffects,
) -> Served:  # fmt: skip
    """Serves requests in batches on several replicas; each pass of the loop forms the next batch."""
    arrivals = arrivals_us.tolist()
    number, most, wait_us = len(arrivals), policy.max_size, policy.max_wait_us
    free = [(0.0, replica) for replica in range(len(speeds))]
    heapify(free)
    ends_us: list[float] = []
    sizes: list[int] = []
    first, batch, busy_us = 0, 0, 0.0
    while first < number:
        free_us, replica = free[0]
        full = first + most - 1
        ready_us = arrivals[first] + wait_us
        if full < number and arrivals[full] < ready_us:
            ready_us = arrivals[full]
        start_us = free_us if free_us > ready_us else ready_us
        size = 1 if most == 1 else bisect_right(arrivals, start_us, first, min(number, first + most)) - first
        work_us = service_us[size] * factors[batch]
        if idle.total_us:
            work_us += idle.delay_us(start_us - free_us)
        end_us = speeds[replica].end_us(start_us, work_us)
        heapreplace(free, (end_us, replica))
        busy_us += end_us - start_us
        ends_us.append(end_us)
        sizes.append(size)
        first += size
        batch += 1
    latencies_us = np.repeat(ends_us, sizes) - arrivals_us
    return Served(latencies_us, max(ends_us), busy_us, batch)


def serve_in_turn(
    queries: int, samples: int, service_us: np.ndarray, variation: Variation, replicas: int, policy: BatchPolicy,
    seed: int,
) -> Served:  # fmt: skip
    """Serves queries of which each is sent when the one before it is complete.

    The samples of a query are divided into batches of at most `policy.max_size`, which the replicas share. The next
    query is sent at once, so that an idle time has no effect.

    Args:
        queries: Number of queries.
        samples: Number of samples in a query.
        service_us: Service times by batch size on the quiet machine in microseconds, shape [>= max_size + 1].
        variation: How run times vary.
        replicas: Number of replicas.
        policy: Largest size of a batch; nothing is waited for, because all samples are there.
        seed: Seed of the random numbers.
    """
    whole, rest = divmod(samples, policy.max_size)
    sizes = [policy.max_size] * whole + ([rest] if rest else [])
    factors = variation.draw(np.random.default_rng([seed, _RUNS]), queries * len(sizes)).reshape(queries, len(sizes))
    work_us = factors * service_us[sizes]
    used = min(replicas, len(sizes))
    span_us = float(work_us.sum()) / (used * variation.mean_speed)
    speeds = [variation.speed(np.random.default_rng([seed, _STATES, one]), span_us) for one in range(used)]
    if used == 1:
        ends_us = speeds[0].time_at(np.cumsum(work_us.sum(axis=1)))
        return Served(np.diff(ends_us, prepend=0.0), float(ends_us[-1]), float(ends_us[-1]), queries * len(sizes))
    now_us = busy_us = 0.0
    latencies_us = np.empty(queries)
    for query, of_query in enumerate(work_us.tolist()):
        free = [(now_us, replica) for replica in range(used)]
        for work in of_query:
            start_us, replica = free[0]
            end_us = speeds[replica].end_us(start_us, work)
            heapreplace(free, (end_us, replica))
            busy_us += end_us - start_us
        latencies_us[query] = max(free)[0] - now_us
        now_us += latencies_us[query]
    return Served(latencies_us, now_us, busy_us, queries * len(sizes))
