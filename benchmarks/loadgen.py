"""Compares simulated traffic with MLPerf's LoadGen, which drives ONNX Runtime on this machine.

    pip install mlcommons-loadgen
    python benchmarks/loadgen.py [--only encoder] [--seconds 4] [--rounds 4] [--results build/loadgen.jsonl]

Twelve models with a symbolic batch (made_models.py) take, on one thread, 1 to 50 ms. Each is timed directly before and
after each of LoadGen's runs, and these times are what the simulation gets: queueing is judged, and not the prediction
of latencies. A shared machine is now quicker and now slower, for seconds; runs are therefore short, take turns in
rounds, and the latencies of all rounds are pooled. What an idle time costs is measured as `costmodel bench` does. The
load generator's own part of the latency, measured in its runs, is added in the scenario "server".

In that scenario LoadGen runs at seven loads, 10% to 70% of the saturation by the first timing. The highest rate is
where its p99 reaches four times the median latency, interpolated between two loads, at most the highest of them; p90
and p99 are compared at that one. The simulation gets the requests of each of LoadGen's runs at their times of arrival,
as both begin with an empty queue and a run of a slow model has too few requests for its p99 to be that of others; its
machine has the timings before and after the run as states. Beside it are simulations

- of "other arrivals": a long time with arrivals of its own and the states of all timings, as `costmodel capacity` does;
- of the "same seconds": the same arrivals, and the run times of those of LoadGen's requests that had waited, which show
  what is left if the machine does not change between timing and run;
- without the effects of an idle time.

In the other scenarios the simulated machine has each timing as a state, all of them for equal shares of the time.

LoadGen's even rounds are compared with its odd ones as well. A run during which other processes of this machine took
CPU time is repeated, at most twice. Results are appended to a file as they come, and a second start continues there. A
complete run takes about 40 minutes.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import TypeVar

import numpy as np
from loadgen_comparison import Compared, summarise
from loadgen_driver import SIZES, Network, Reported, drive
from made_models import MODELS

from costmodel.measure.idle import idle_sequence, measure_idle_effects
from costmodel.runtimes.base import RuntimeSettings, get_runtime
from costmodel.traffic.capacity import highest_rate_per_s
from costmodel.traffic.idle import ALWAYS_WARM, IdleEffects, measured_idle_effects
from costmodel.traffic.objective import NO_BATCHING, BatchPolicy, LatencyObjective
from costmodel.traffic.queueing import serve
from costmodel.traffic.scenarios import Scenario, Serving, simulate
from costmodel.traffic.service_times import ServiceTimes
from costmodel.traffic.variation import MachineState, Variation

BATCHES = BatchPolicy(8)
SLO_FACTOR = 4.0
LOADS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)
# Load at which percentiles are compared.
COMPARED = 0.7
# Each run of LoadGen has other times of arrival.
_SEEDS = count(1)
PERCENTILES = {"p90": 90.0, "p99": 99.0}
# What is simulated of the requests of LoadGen's runs, and how often their run times are drawn.
REPLAYS = ("simulated", "same seconds", "no idle effects")
DRAWS = 10
_Round = TypeVar("_Round")


class Timed:
    """Times a network before every run of LoadGen and after the last, so that the simulation knows the same minutes."""

    def __init__(self, network: Network, sizes: tuple[int, ...] = SIZES) -> None:
        network.times_us(0.5)
        self._network, self._sizes = network, sizes
        self._parts: list[dict[int, list[float]]] = []
        self.add()

    def add(self) -> None:
        """Times the network (again)."""
        seconds = 1 if len(self._sizes) > 1 else 0.6
        self._parts.append(self._network.undisturbed(lambda: self._network.times_us(seconds, self._sizes)))

    def serving(self, policy: BatchPolicy, idle: IdleEffects = ALWAYS_WARM) -> Serving:
        """Returns what the timings say."""
        return _serving(self._parts, policy, idle)

    def around(self, run: int, idle: IdleEffects) -> Serving:
        """Returns a machine for single requests whose states are the timings before and after a run, given its number.

        Runs vary within a state as in all timings, because two are too short for what happens once in a thousand runs.
        """
        return _serving(self._parts, NO_BATCHING, idle, slice(run, run + 2))


def _serving(
    parts: Sequence[dict[int, list[float]]],
    policy: BatchPolicy,
    idle: IdleEffects = ALWAYS_WARM,
    states_of: slice = slice(None),
) -> Serving:
    """Returns a machine that was timed several times: each time is a state of it, all of them equally frequent.

    States and the variation within them are those of the largest batch of the policy.

    Args:
        parts: Run times in microseconds by batch size, of each timing.
        policy: How batches are formed.
        idle: What an idle time costs.
        states_of: The timings that are states.
    """
    largest = policy.max_size
    sizes = [size for size in SIZES if size <= largest]
    latency_us = {size: float(np.median([np.median(part[size]) for part in parts])) for size in sizes}
    slowdowns = [float(np.median(part[largest])) / latency_us[largest] for part in parts]
    factors = np.concatenate(
        [
            np.asarray(part[largest]) / (slowdown * latency_us[largest])
            for part, slowdown in zip(parts, slowdowns, strict=True)
        ]
    )
    slowdowns = slowdowns[states_of]
    states = tuple(MachineState(f"timing {number}", 1 / len(slowdowns), one) for number, one in enumerate(slowdowns))
    variation = Variation(tuple(factors.tolist()), states if len(states) > 1 else (), idle=idle)
    return Serving(ServiceTimes(latency_us), variation, policy)


def _drive(network: Network, scenario: Scenario, seconds: float, rate_per_s: float, batch: int = 1) -> Reported:
    seed = next(_SEEDS)
    return network.undisturbed(lambda: drive(network, scenario, seconds, rate_per_s=rate_per_s, batch=batch, seed=seed))


def closed(name: str, network: Network, seconds: float, rounds: int) -> Iterator[Compared]:
    """Compares the scenarios without arrivals."""
    timed = Timed(network)
    kinds: dict[Scenario, BatchPolicy] = {
        "single-stream": NO_BATCHING, "multi-stream": BATCHES, "offline": BATCHES,
    }  # fmt: skip
    samples = {"single-stream": 1, "multi-stream": 8, "offline": 1}
    expected = {kind: simulate(timed.serving(policy), kind).throughput_per_s for kind, policy in kinds.items()}
    runs: dict[Scenario, list[Reported]] = {kind: [] for kind in kinds}
    for _ in range(rounds):
        for kind, policy in kinds.items():
            queries_per_s = expected[kind] / samples[kind]
            runs[kind].append(_drive(network, kind, seconds / 2, queries_per_s, policy.max_size))
            timed.add()
    for kind, policy in kinds.items():
        result = simulate(timed.serving(policy), kind)
        if kind == "offline":
            yield Compared(name, kind, "rate", *_pooled(runs[kind], _rate_per_s), result.throughput_per_s)
            continue
        latencies_us = [run.latencies_us for run in runs[kind]]
        for figure, percentile in PERCENTILES.items():
            measured = _pooled(latencies_us, partial(_percentile_us, percentile=percentile))
            yield Compared(name, kind, figure, *measured, getattr(result, f"{figure}_us") or float("inf"))


def server(name: str, network: Network, seconds: float, rounds: int) -> Iterator[Compared]:
    """Compares the scenario "server": percentiles at one load, and the highest rate."""
    timed, idle = Timed(network, (1,)), _measured_idle(network)
    begin = timed.serving(NO_BATCHING)
    slo_us = SLO_FACTOR * begin.service_times.latency_us[1]
    rates_per_s = {load: load * begin.saturation_per_s for load in LOADS}
    runs: dict[float, list[Reported]] = {load: [] for load in LOADS}
    for _ in range(rounds):
        for load, rate_per_s in rates_per_s.items():
            runs[load].append(_drive(network, "server", seconds, rate_per_s))
            timed.add()
    replayed: dict[str, dict[float, list[np.ndarray]]] = {kind: {load: [] for load in LOADS} for kind in REPLAYS}
    for number, load in enumerate(LOADS * rounds):
        run, around = runs[load][number // len(LOADS)], timed.around(number, idle)
        here = _serving([{1: run.warm_us.tolist()}], NO_BATCHING, idle) if len(run.warm_us) else around
        for kind, serving in zip(REPLAYS, (around, here, timed.around(number, ALWAYS_WARM)), strict=True):
            replayed[kind][load].append(_replayed_us(run, serving))
    machine = timed.serving(NO_BATCHING, idle)
    steady = simulate(machine, "server", rate_per_s=rates_per_s[COMPARED])
    generator_us = _generator_us(runs[COMPARED])
    driven = {load: [run.latencies_us for run in of_load] for load, of_load in runs.items()}
    for figure, percentile in PERCENTILES.items():
        replayed_us, here_us, warm_us = (_percentile_us(replayed[kind][COMPARED], percentile) for kind in REPLAYS)
        steady_us = _latency_us(getattr(steady, f"{figure}_us"), generator_us)
        measured = _pooled(driven[COMPARED], partial(_percentile_us, percentile=percentile))
        yield Compared(name, "server", figure, *measured, replayed_us, steady_us, here_us, warm_us)
    generator_us = _generator_us([run for of_load in runs.values() for run in of_load])
    # The load generator's own part of the latency is part of what the objective allows.
    steady_rate = highest_rate_per_s(machine, LatencyObjective(99.0, slo_us - generator_us))
    replayed_rate, here_rate, warm_rate = (_crossing(replayed[kind], rates_per_s, slo_us) for kind in REPLAYS)
    halves = [_crossing({load: driven[load][half::2] for load in LOADS}, rates_per_s, slo_us) for half in (0, 1)]
    found = _crossing(driven, rates_per_s, slo_us)
    yield Compared(
        name, "server", "highest rate", found, (halves[0], halves[1]) if rounds > 1 else None,
        replayed_rate, steady_rate, here_rate, warm_rate,
    )  # fmt: skip
    yield Compared(name, "effects", "generator", generator_us, None, generator_us)
    for figure, us in (("extra", idle.extra_us), ("cooling", idle.cooling_us), ("wake-up", idle.wake_up_us)):
        yield Compared(name, "effects", figure, us, None, us)


# The parts of a comparison, by the scenario and the name of a figure that tells whether it is done.
PARTS = {("server", "highest rate"): server, ("offline", "rate"): closed}


def _percentile_us(latencies_us: Sequence[np.ndarray], percentile: float) -> float:
    return float(np.percentile(np.concatenate(latencies_us), percentile))


def _rate_per_s(runs: Sequence[Reported]) -> float:
    return float(np.mean([run.samples_per_s for run in runs]))


def _generator_us(runs: Sequence[Reported]) -> float:
    """Returns the mean part of the latency that is the load generator's own."""
    return float(np.concatenate([run.generator_us for run in runs]).mean())


def _pooled(
    rounds: Sequence[_Round], figure: Callable[[Sequence[_Round]], float]
) -> tuple[float, tuple[float, float] | None]:
    """Returns a figure of all rounds, and of the even and the odd ones."""
    return figure(rounds), (figure(rounds[::2]), figure(rounds[1::2])) if len(rounds) > 1 else None


def _crossing(latencies_us: dict[float, list[np.ndarray]], rates_per_s: dict[float, float], slo_us: float) -> float:
    """Returns the highest rate whose p99 is within the objective, between the loads at which LoadGen ran.

    It is 0 if no load meets the objective.
    """
    p99_us = {load: _percentile_us(of_load, 99) for load, of_load in latencies_us.items() if of_load}
    above = None
    for load in sorted(p99_us, reverse=True):
        if p99_us[load] <= slo_us:
            if above is None:
                return rates_per_s[load]
            share = np.log(slo_us / p99_us[load]) / np.log(p99_us[above] / p99_us[load])
            return float(rates_per_s[load] + share * (rates_per_s[above] - rates_per_s[load]))
        above = load
    return 0.0


def _replayed_us(run: Reported, machine: Serving) -> np.ndarray:
    """Returns simulated latencies of the requests of a run of LoadGen, with several draws of their run times."""
    served = [
        serve(run.arrivals_us, machine.service_times.up_to(1), machine.variation, 1, NO_BATCHING, draw)
        for draw in range(DRAWS)
    ]
    return np.concatenate([one.latencies_us + run.generator_us for one in served])


def _latency_us(simulated_us: float | None, generator_us: float) -> float:
    """Returns a simulated latency with the load generator's part; infinite if the machine is too slow for the rate."""
    return float("inf") if simulated_us is None else simulated_us + generator_us


def _measured_idle(network: Network) -> IdleEffects:
    runner = get_runtime().open_sequence(idle_sequence(), RuntimeSettings())
    found = measured_idle_effects(network.undisturbed(lambda: measure_idle_effects(runner)))
    assert found is not None
    return found


def main() -> None:
    """Compares all models that are not in the file of results yet, and prints the ratios and their summary."""
    parser = argparse.ArgumentParser(description="Compare simulated traffic with MLPerf's LoadGen.")
    parser.add_argument("--only", default="", help="part of the names of the models to run")
    parser.add_argument("--seconds", type=float, default=4.0, help="length of a run of the scenario server")
    parser.add_argument("--rounds", type=int, default=4, help="runs of LoadGen for each figure")
    parser.add_argument("--part", default="", help="server or closed; by default both of them")
    parser.add_argument("--budget", type=float, default=3600.0, help="seconds after which nothing more begins")
    parser.add_argument("--results", type=Path, default=Path("build/loadgen.jsonl"))
    arguments = parser.parse_args()
    known = arguments.results.read_text().splitlines() if arguments.results.exists() else []
    found = [Compared(**json.loads(line)) for line in known]
    done = {(one.model, one.scenario, one.figure) for one in found}
    arguments.results.parent.mkdir(parents=True, exist_ok=True)
    until = time.monotonic() + arguments.budget
    for (scenario, figure), part in PARTS.items():
        if arguments.part not in ("", part.__name__):
            continue
        for name in MODELS:
            if arguments.only not in name or (name, scenario, figure) in done or time.monotonic() > until:
                continue
            network = Network(MODELS[name]())
            compared = list(part(name, network, arguments.seconds, arguments.rounds))
            compared = [replace(one, others=network.others) for one in compared]
            with arguments.results.open("a") as file:
                file.writelines(json.dumps(asdict(one)) + "\n" for one in compared)
            found += compared
            for one in compared:
                print(one.line, flush=True)
    if found:
        summarise([one for one in found if arguments.only in one.model])


if __name__ == "__main__":
    main()
