"""MLPerf's four scenarios of inference traffic, simulated.

Source: Reddi et al., "MLPerf Inference Benchmark" (ISCA 2020), section IV. Single stream: a query of one sample is sent
when the one before it is complete; its figure is the 90th percentile of the latency. Multi-stream: the same with eight
samples in a query and the 99th percentile. Server: queries of one sample arrive in a Poisson process; its figure is the
highest rate at which the 99th percentile meets the objective. Offline: all samples are there at the beginning; its
figure is the throughput.
"""

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from costmodel.traffic.early_stopping import early_stopping_estimate_us
from costmodel.traffic.objective import BatchPolicy, LatencyObjective
from costmodel.traffic.queueing import Served, poisson_arrivals_us, serve, serve_in_turn
from costmodel.traffic.service_times import ServiceTimes
from costmodel.traffic.variation import Variation

__all__ = ["SCENARIOS", "Scenario", "Serving", "TrafficResult", "is_closed", "simulate"]

Scenario = Literal["single-stream", "multi-stream", "server", "offline"]
SCENARIOS: tuple[str, ...] = get_args(Scenario)
SEED = 20_26_11
_US = 1e6
# Samples in a query, and the percentile that MLPerf reports, of the scenarios in which queries follow each other.
_CLOSED = {"single-stream": (1, 90.0), "multi-stream": (8, 99.0)}
# Requests of a simulation, without and with an event loop, and the sojourns that a simulation should contain.
_REQUESTS, _REQUESTS_IN_LOOP = (200_000, 400_000), (30_000, 60_000)
_SOJOURNS = 30


@dataclass(frozen=True)
class Serving:
    """The replicas of one model on one system that serve the traffic.

    Attributes:
        service_times: Service times by batch size.
        variation: How run times vary on the system.
        policy: How batches are formed.
        replicas: Number of replicas, each on a machine of its own.
    """

    service_times: ServiceTimes
    variation: Variation
    policy: BatchPolicy
    replicas: int = 1

    @property
    def saturation_per_s(self) -> float:
        """Throughput in requests a second if requests always wait; no higher rate is stable."""
        times_us = self.service_times.up_to(self.policy.max_size)[1:] * self.variation.mean_run_factor
        per_us = float(np.max(np.arange(1, self.policy.max_size + 1) / times_us))
        return self.replicas * per_us * self.variation.mean_speed * _US


@dataclass(frozen=True, slots=True)
class TrafficResult:
    """Latencies and throughput of a simulated scenario.

    Attributes:
        replicas: Number of replicas.
        rate_per_s: Rate of arrivals in requests a second; None in the scenarios without arrivals.
        throughput_per_s: Samples that are answered in a second.
        utilisation: Share of the time during which a replica is busy.
        mean_batch: Mean number of samples in a batch.
        mean_us: Mean latency in microseconds; this and the following are None in the offline scenario, and if more
            requests arrive than can be served, so that the queue grows without end.
        p50_us: Median latency in microseconds.
        p90_us: 90th percentile of the latency in microseconds.
        p99_us: 99th percentile of the latency in microseconds.
        objective_us: Latency in microseconds at the percentile of the objective; None without an objective.
        share_within: Share of the requests that meet the latency of the objective; None without an objective, 0 if
            the queue grows without end.
        meets: Whether the objective is met; None without an objective.
        mlperf_us: Latency that MLPerf would report, in microseconds: the early-stopping estimate of the 90th percentile
            (single stream) or the 99th (multi-stream); None in the other scenarios.
        shared_queue: Whether the replicas share one queue; if not, each has a queue of its own, among which the
            requests are divided at random.
    """

    replicas: int
    rate_per_s: float | None
    throughput_per_s: float
    utilisation: float
    mean_batch: float
    mean_us: float | None = None
    p50_us: float | None = None
    p90_us: float | None = None
    p99_us: float | None = None
    objective_us: float | None = None
    share_within: float | None = None
    meets: bool | None = None
    mlperf_us: float | None = None
    shared_queue: bool = True


def is_closed(scenario: Scenario) -> bool:
    """Returns whether queries follow each other in a scenario, so that their rate follows from their latency."""
    return scenario in _CLOSED


def simulate(
    serving: Serving, scenario: Scenario, *, rate_per_s: float | None = None, objective: LatencyObjective | None = None,
    seed: int = SEED,
) -> TrafficResult:  # fmt: skip
    """Simulates a scenario.

    Args:
        serving: What serves the traffic.
        scenario: One of MLPerf's scenarios.
        rate_per_s: Rate of arrivals in requests a second; for the scenario "server", and for no other.
        objective: Latency objective; None for none. The offline scenario has no latencies.
        seed: Seed of the random numbers.
    """
    if scenario == "offline":
        policy = serving.policy
        full_us = float(serving.service_times.up_to(policy.max_size)[-1]) * serving.variation.mean_run_factor
        per_us = serving.replicas * policy.max_size / full_us * serving.variation.mean_speed
        return TrafficResult(serving.replicas, None, per_us * _US, 1.0, float(policy.max_size))
    if scenario == "server":
        assert rate_per_s is not None
        return _server(serving, rate_per_s, objective, seed)
    samples, percentile = _CLOSED[scenario]
    service_us = serving.service_times.up_to(serving.policy.max_size)
    served = serve_in_turn(
        _requests(serving, _US / float(service_us[1]), len(service_us)), samples, service_us, serving.variation,
        serving.replicas, serving.policy, seed,
    )  # fmt: skip
    reported_us = early_stopping_estimate_us(served.latencies_us, percentile)
    return _result(serving, served, samples, None, objective, reported_us)


def _server(serving: Serving, rate_per_s: float, objective: LatencyObjective | None, seed: int) -> TrafficResult:
    saturation_per_s = serving.saturation_per_s
    if rate_per_s >= saturation_per_s:
        verdict = (None, None) if objective is None else (0.0, False)
        return TrafficResult(
            serving.replicas, rate_per_s, saturation_per_s, 1.0, float(serving.policy.max_size),
            share_within=verdict[0], meets=verdict[1],
        )  # fmt: skip
    arrivals_us = poisson_arrivals_us(rate_per_s, _requests(serving, rate_per_s, serving.policy.max_size), seed)
    served = serve(
        arrivals_us, serving.service_times.up_to(serving.policy.max_size), serving.variation, serving.replicas,
        serving.policy, seed,
    )  # fmt: skip
    return _result(serving, served, 1, rate_per_s, objective, None)


def _requests(serving: Serving, rate_per_s: float, batch: int) -> int:
    """Returns the number of requests to simulate: enough for percentiles, and for states to come and go."""
    least, most = _REQUESTS if serving.replicas == 1 and batch == 1 else _REQUESTS_IN_LOOP
    wanted = rate_per_s * _SOJOURNS * serving.variation.sojourn_s if serving.variation.states else least
    return int(min(max(wanted, least), most))


def _result(
    serving: Serving, served: Served, samples: int, rate_per_s: float | None, objective: LatencyObjective | None,
    mlperf_us: float | None,
) -> TrafficResult:  # fmt: skip
    latencies_us = served.latencies_us
    percentiles = np.percentile(latencies_us, [50, 90, 99, 50 if objective is None else objective.percentile])
    p50_us, p90_us, p99_us, objective_us = (float(one) for one in percentiles)
    within = None if objective is None else float((latencies_us <= objective.latency_us).mean())
    number = samples * len(latencies_us)
    return TrafficResult(
        replicas=serving.replicas,
        rate_per_s=rate_per_s,
        throughput_per_s=number / served.span_us * _US,
        utilisation=min(1.0, served.busy_us / (serving.replicas * served.span_us)),
        mean_batch=number / served.batches,
        mean_us=float(latencies_us.mean()),
        p50_us=p50_us,
        p90_us=p90_us,
        p99_us=p99_us,
        objective_us=None if objective is None else objective_us,
        share_within=within,
        meets=None if objective is None else objective_us <= objective.latency_us,
        mlperf_us=mlperf_us,
    )
