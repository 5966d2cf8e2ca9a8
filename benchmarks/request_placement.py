"""Simulates a cluster of several systems under a trace of requests, and compares rules that place the requests.

    python benchmarks/request_placement.py HELD_OUT.json ...

The files, one for each system, are made by `benchmarks/held_out_latencies.py`. The cluster has the same number of
machines of each system; each serves one request at a time, in the order of arrival. A request to a model takes the
latency that was measured on the machine's system, times the system's jitter. Its objective is drawn between 1.5 and 5
times the model's latency on the median system. Prints the share of the requests that meet their objective, and the
machine time that a request costs at the highest load at which 95% of them do.
"""

import json
import random
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median

from placement_rules import RULES, Clock, Machine, System

SEEDS = range(5)
REQUESTS = 20_000
MACHINES = 3  # of each system
LOADS = (0.5, 0.7, 0.85)
SHORTEST_US, LONGEST_US = 2e3, 200e3  # on the median system
SLO = (1.5, 5.0)
# In a burst, requests arrive at four times the rate of the calm between bursts, for a fifth of the time.
BURST, BURST_SHARE, BURST_REQUESTS = 4.0, 0.2, 40
NEEDED = 0.95  # share of the objectives to meet, for the highest load
HALVINGS = 6
COST_SEEDS = range(3)


@dataclass(frozen=True)
class Request:
    """A request of the trace; `chance` determines the jitter wherever it is placed."""

    at_us: float
    model: str
    slo_us: float
    chance: float


def read(paths: Sequence[Path]) -> list[System]:
    """Returns the systems with the models that all of them have, and that are neither too short nor too long."""
    documents = [json.loads(path.read_text()) for path in paths]
    by_name = [{model["name"]: model for model in document["models"]} for document in documents]
    common = sorted(set.intersection(*(set(models) for models in by_name)))
    served = [
        name
        for name in common
        if SHORTEST_US <= median(models[name]["measured_us"] for models in by_name) <= LONGEST_US
    ]
    return [
        System(
            document["system"],
            {name: models[name]["measured_us"] for name in served},
            {name: models[name]["predicted_us"] for name in served},
            document["jitter"],
            document["gemm_gflops"],
        )
        for document, models in zip(documents, by_name, strict=True)
    ]


def gaps(generator: random.Random, rate: float, bursty: bool) -> Iterator[float]:
    """Yields the times between requests in microseconds, for a rate in requests per microsecond.

    Calm and burst have exponential durations, whose means are chosen such that the mean rate is `rate`.
    """
    calm = rate / (1 - BURST_SHARE + BURST * BURST_SHARE) if bursty else rate
    burst_us = BURST_REQUESTS / (BURST * calm)
    in_burst, left_us = False, generator.expovariate(1 / (burst_us / BURST_SHARE * (1 - BURST_SHARE)))
    waited_us = 0.0
    while True:
        gap_us = generator.expovariate(calm * (BURST if in_burst else 1.0))
        if bursty and gap_us > left_us:
            waited_us += left_us
            in_burst = not in_burst
            mean_us = burst_us if in_burst else burst_us / BURST_SHARE * (1 - BURST_SHARE)
            left_us = generator.expovariate(1 / mean_us)
        else:
            left_us -= gap_us
            yield waited_us + gap_us
            waited_us = 0.0


def trace(systems: Sequence[System], rate: float, seed: int, *, bursty: bool) -> list[Request]:
    """Returns requests to models drawn uniformly."""
    generator = random.Random(seed)
    models = list(systems[0].measured_us)
    requests, now_us = [], 0.0
    for _, gap_us in zip(range(REQUESTS), gaps(random.Random(seed + 1000), rate, bursty), strict=False):
        now_us += gap_us
        model = generator.choice(models)
        typical_us = median(system.measured_us[model] for system in systems)
        requests.append(Request(now_us, model, generator.uniform(*SLO) * typical_us, generator.random()))
    return requests


def capacity(systems: Sequence[System], machines: int) -> float:
    """Returns the requests per microsecond that machines of each system serve if they are never idle."""
    return machines * sum(1 / fmean(system.measured_us.values()) for system in systems)


def attainment(systems: Sequence[System], machines: int, requests: Sequence[Request], rule_name: str) -> float:
    """Returns the share of the requests that end within their objective."""
    clock = Clock()
    cluster = [Machine(f"{system.name} {i}", system, deque()) for i in range(machines) for system in systems]
    rule = RULES[rule_name](cluster, clock)
    met = 0
    for request in requests:
        ended = sorted(
            ((machine.ends.popleft()) for machine in cluster for _ in range(_num_ended(machine, request.at_us))),
            key=lambda end: end[0],
        )
        for end_us, token in ended:
            clock.now_us = end_us
            rule.finished(token)
        clock.now_us = request.at_us
        number, token = rule.place(request.model)
        machine = cluster[number]
        start_us = machine.ends[-1][0] if machine.ends else request.at_us
        end_us = start_us + machine.system.measured_us[request.model] * machine.system.jitter_at(request.chance)
        machine.ends.append((end_us, token))
        met += end_us - request.at_us <= request.slo_us
    return met / len(requests)


def highest_load(systems: Sequence[System], rule_name: str, *, bursty: bool) -> float:
    """Returns the highest load, as a share of the capacity, at which enough requests meet their objective."""
    low, high = 0.0, 1.0
    rate = capacity(systems, MACHINES)
    for _ in range(HALVINGS):
        load = (low + high) / 2
        traces = (trace(systems, load * rate, seed, bursty=bursty) for seed in COST_SEEDS)
        met = fmean(attainment(systems, MACHINES, requests, rule_name) for requests in traces)
        low, high = (load, high) if met >= NEEDED else (low, load)
    return low


def _num_ended(machine: Machine, now_us: float) -> int:
    return sum(end_us <= now_us for end_us, _ in machine.ends)


def main(paths: Sequence[Path]) -> None:
    """Reads, simulates, and prints the tables."""
    systems = read(paths)
    errors = [abs(s.predicted_us[name] / s.measured_us[name] - 1) for s in systems for name in s.measured_us]
    print(
        f"{len(systems[0].measured_us)} models on {len(systems)} systems, mean error of predictions {fmean(errors):.1%}"
    )
    for system in systems:
        mean_ms = fmean(system.measured_us.values()) / 1e3
        error = fmean(abs(system.predicted_us[name] / us - 1) for name, us in system.measured_us.items())
        print(f"  {system.name}: mean latency {mean_ms:.1f} ms, {system.gemm_gflops:.0f} GFLOP/s, error {error:.1%}")
    cases = [(bursty, load) for bursty in (False, True) for load in LOADS]
    print(f"\nobjectives met by {MACHINES * len(systems)} machines, mean of {len(SEEDS)} traces (range)")
    print(
        "| rule | " + " | ".join(f"{'bursts' if bursty else 'Poisson'}, load {load}" for bursty, load in cases) + " |"
    )
    rate = capacity(systems, MACHINES)
    traces = {case: [trace(systems, case[1] * rate, seed, bursty=case[0]) for seed in SEEDS] for case in cases}
    by_rule: dict[str, list[list[float]]] = {}
    for name in RULES:
        found = by_rule[name] = [
            [attainment(systems, MACHINES, requests, name) for requests in traces[case]] for case in cases
        ]
        print(
            f"| {name} | " + " | ".join(f"{fmean(f):.1%} ({min(f):.1%} to {max(f):.1%})" for f in found) + " |",
            flush=True,
        )
    ratios = [
        p / o for pair in zip(by_rule["prediction"], by_rule["oracle"], strict=True) for p, o in zip(*pair, strict=True)
    ]
    print(f"prediction over oracle, of {len(ratios)} traces: mean {fmean(ratios):.3f}, least {min(ratios):.3f}")
    print(f"\nhighest load at which {NEEDED:.0%} of the objectives are met, mean of {len(COST_SEEDS)} traces")
    for bursty in (False, True):
        for name in RULES:
            load = highest_load(systems, name, bursty=bursty)
            cost_ms = MACHINES * len(systems) / (load * rate) / 1e3
            print(f"| {'bursts' if bursty else 'Poisson'} | {name} | {load:.2f} | {cost_ms:.1f} ms |", flush=True)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit("usage: python benchmarks/request_placement.py HELD_OUT.json HELD_OUT.json ...")
    main([Path(name) for name in sys.argv[1:]])
