"""Compares simulated traffic with MLPerf's LoadGen, which drives ONNX Runtime on this machine.

    pip install mlcommons-loadgen
    python benchmarks/loadgen.py [--only encoder] [--seconds 4] [--results build/loadgen.jsonl]

Twelve models with a symbolic batch (made_models.py) take, on one thread, 1 to 50 ms. Each is timed at several batch
sizes directly before and after LoadGen's runs, and these times are what the simulation gets: queueing is judged, and
not the prediction of latencies. What an idle time costs is measured as `costmodel bench` does. The load generator's own
part of the latency, measured in its runs, is added in the scenario "server".

The highest rate of that scenario is searched by bisection, with p99 within four times the median latency. At 70% of the
saturation, p90 and p99 are compared as well. "same seconds" are simulations with the run times of those requests of
LoadGen's own run that had waited: they show what is left if the machine does not change between timing and run.

LoadGen runs everything twice, so that LoadGen can be compared with LoadGen. A run during which other processes of this
machine took CPU time is repeated, at most twice. Results are appended to a file as they come, and a second start
continues there. A complete run takes about 16 minutes.
"""

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import count
from pathlib import Path

import numpy as np
from loadgen_driver import SIZES, Network, Reported, drive
from made_models import MODELS

from costmodel.measure.idle import idle_sequence, measure_idle_effects
from costmodel.runtimes.base import RuntimeSettings, get_runtime
from costmodel.traffic.capacity import highest_rate_per_s
from costmodel.traffic.idle import IdleEffects, measured_idle_effects
from costmodel.traffic.objective import NO_BATCHING, BatchPolicy, LatencyObjective
from costmodel.traffic.queueing import serve
from costmodel.traffic.scenarios import Scenario, Serving, simulate
from costmodel.traffic.service_times import ServiceTimes
from costmodel.traffic.variation import Variation

BATCHES = BatchPolicy(8)
SLO_FACTOR = 4.0
LOAD = 0.7
STEPS = 4
SEARCHED = (0.1, 0.9)  # loads between which the highest rate is searched
# Each run of LoadGen has other times of arrival.
_SEEDS = count(1)
BAR_RATE, BAR_PERCENTILE = 0.10, 0.15


@dataclass(frozen=True)
class Compared:
    """One figure of LoadGen and of the simulation: a rate in samples a second, or a latency in microseconds.

    Attributes:
        model: Name of the model.
        scenario: Scenario of MLPerf.
        figure: Name of the figure.
        measured: Figure that LoadGen reports in its first run.
        repeated: The same in its second run; None if there is none.
        simulated: Mean of the figures that are simulated for the two runs.
        same_seconds: The same with run times of the same seconds; None if there are none.
        always_warm: The same as `simulated` without the effects of an idle time; None if it has none.
        others: Largest share of a CPU that other processes of this machine took meanwhile.
    """

    model: str
    scenario: str
    figure: str
    measured: float
    repeated: float | None
    simulated: float
    same_seconds: float | None = None
    always_warm: float | None = None
    others: float = 0.0

    @property
    def bar(self) -> float:
        """Largest relative difference at which the two agree."""
        return BAR_RATE if self.figure.endswith("rate") else BAR_PERCENTILE

    @property
    def line(self) -> str:
        """The figures, and the ratios of the simulated ones to LoadGen's."""
        figures = (self.measured, self.repeated or float("nan"), self.simulated)
        ratios = (self.ratio(one) for one in (self.simulated, self.same_seconds, self.always_warm))
        return (
            f"{self.model:<24}{self.scenario:<15}{self.figure:<14}"
            + "".join(f"{figure:>10.1f}" for figure in figures)
            + "".join(f"{ratio:>6.2f}" for ratio in ratios)
            + f"{self.others:>6.0%}"
        )

    def ratio(self, other: float | None) -> float:
        """Returns a figure over the geometric mean of LoadGen's."""
        repeated = self.measured if self.repeated is None else self.repeated
        return float("nan") if other is None else other / (self.measured * repeated) ** 0.5


class Timed:
    """Times a network before every run of LoadGen and after the last, so that the simulation knows the same minutes."""

    def __init__(self, network: Network, sizes: tuple[int, ...] = SIZES) -> None:
        network.times_us(0.5)
        self._network = network
        self._parts: list[dict[int, list[float]]] = []
        self.add(sizes)

    def add(self, sizes: tuple[int, ...] = SIZES) -> None:
        """Times the network (again)."""
        seconds = 1 if len(sizes) > 1 else 0.7
        self._parts.append(self._network.undisturbed(lambda: self._network.times_us(seconds, sizes)))

    def serving(self, last: int, policy: BatchPolicy) -> Serving:
        """Returns what the last so many timings say; run times vary as they do at the largest batch of the policy."""
        sizes = [size for size in SIZES if size <= policy.max_size]
        pooled = {size: np.concatenate([part[size] for part in self._parts[-last:]]) for size in sizes}
        return _serving(pooled, policy)


def _serving(times_us: dict[int, np.ndarray], policy: BatchPolicy) -> Serving:
    medians_us = {size: float(np.median(of_size)) for size, of_size in times_us.items()}
    factors = times_us[policy.max_size] / medians_us[policy.max_size]
    return Serving(ServiceTimes(medians_us), Variation(tuple(factors.tolist())), policy)


def _drive(network: Network, scenario: Scenario, seconds: float, rate_per_s: float, batch: int = 1) -> Reported:
    seed = next(_SEEDS)
    return network.undisturbed(lambda: drive(network, scenario, seconds, rate_per_s=rate_per_s, batch=batch, seed=seed))


def closed(name: str, network: Network, seconds: float, repeats: int) -> Iterator[Compared]:
    """Compares the scenarios without arrivals."""
    timed = Timed(network)
    kinds: tuple[tuple[Scenario, BatchPolicy], ...] = (("single-stream", NO_BATCHING), ("multi-stream", BATCHES))
    for scenario, policy in kinds:
        expected = simulate(timed.serving(1, policy), scenario)
        queries_per_s = expected.throughput_per_s / (1 if scenario == "single-stream" else 8)
        seen, simulated = [], []
        for _ in range(repeats):
            seen.append(_drive(network, scenario, seconds / 2, queries_per_s, policy.max_size))
            timed.add()
            result = simulate(timed.serving(2, policy), scenario)
            simulated.append((result.p90_us or 0.0, result.p99_us or 0.0))
        yield from _percentiles(name, scenario, seen, simulated)
    rates, simulated_rates = [], []
    for _ in range(repeats):
        rates.append(_drive(network, "offline", seconds / 2, expected.throughput_per_s, BATCHES.max_size).samples_per_s)
        timed.add()
        simulated_rates.append(simulate(timed.serving(2, BATCHES), "offline").throughput_per_s)
    yield Compared(name, "offline", "rate", *_two(rates), float(np.mean(simulated_rates)))


def server(name: str, network: Network, seconds: float, repeats: int) -> Iterator[Compared]:
    """Compares the latencies of the scenario "server" at one rate."""
    timed, idle = Timed(network, (1,)), _measured_idle(network)
    rate_per_s = LOAD * timed.serving(1, NO_BATCHING).saturation_per_s
    seen: list[Reported] = []
    simulated, same, warm = [], [], []
    for _ in range(repeats):
        run = _drive(network, "server", seconds, rate_per_s)
        timed.add((1,))
        seen.append(run)
        alone = timed.serving(2, NO_BATCHING)
        simulated.append(_open(_idling(alone, idle), rate_per_s, run.generator_us))
        warm.append(_open(alone, rate_per_s, run.generator_us))
        here = _serving({1: run.warm_us}, NO_BATCHING)
        variation = replace(here.variation, idle=idle)
        replayed_us = serve(
            run.arrivals_us, here.service_times.up_to(1), variation, 1, NO_BATCHING, 0
        ).latencies_us  # fmt: skip
        same.append(tuple(np.percentile(replayed_us + run.generator_us, [90, 99]).tolist()))
    yield from _percentiles(name, "server", seen, simulated, same, warm)
    parts_us = [one.generator_us for one in seen]
    yield Compared(name, "effects", "generator", *_two(parts_us), float(np.mean(parts_us)))
    for figure, us in (("extra", idle.extra_us), ("cooling", idle.cooling_us), ("wake-up", idle.wake_up_us)):
        yield Compared(name, "effects", figure, us, us, us)


def highest(name: str, network: Network, seconds: float, repeats: int) -> Iterator[Compared]:
    """Compares the highest rate of the scenario "server"."""
    timed, idle = Timed(network, (1,)), _measured_idle(network)
    rates, simulated_rates, same_rates, warm_rates = [], [], [], []
    for _ in range(repeats):
        before = timed.serving(1, NO_BATCHING)
        slo_us = SLO_FACTOR * before.service_times.latency_us[1]
        low, high = (load * before.saturation_per_s for load in SEARCHED)
        steps: list[Reported] = []
        for _ in range(STEPS):
            middle = (low + high) / 2
            steps.append(_drive(network, "server", seconds, middle))
            timed.add((1,))
            low, high = (middle, high) if steps[-1].p99_us <= slo_us else (low, middle)
        rates.append((low + high) / 2)
        # The load generator's own part of the latency is part of what the objective allows.
        objective = LatencyObjective(99.0, slo_us - float(np.mean([step.generator_us for step in steps])))
        alone = timed.serving(STEPS + 1, NO_BATCHING)
        here = _serving({1: np.concatenate([step.warm_us for step in steps])}, NO_BATCHING)
        simulated_rates.append(highest_rate_per_s(_idling(alone, idle), objective))
        same_rates.append(highest_rate_per_s(_idling(here, idle), objective))
        warm_rates.append(highest_rate_per_s(alone, objective))
    means = [float(np.mean(one)) for one in (simulated_rates, same_rates, warm_rates)]
    yield Compared(name, "server", "highest rate", *_two(rates), *means)


# The parts of a comparison, by the scenario and the name of a figure that tells whether it is done.
PARTS = {("server", "p99"): server, ("server", "highest rate"): highest, ("offline", "rate"): closed}


def _two(figures: Sequence[float]) -> tuple[float, float | None]:
    return figures[0], figures[1] if len(figures) > 1 else None


def _measured_idle(network: Network) -> IdleEffects:
    runner = get_runtime().open_sequence(idle_sequence(), RuntimeSettings())
    found = measured_idle_effects(network.undisturbed(lambda: measure_idle_effects(runner)))
    assert found is not None
    return found


def _idling(serving: Serving, idle: IdleEffects) -> Serving:
    return replace(serving, variation=replace(serving.variation, idle=idle))


def _open(serving: Serving, rate_per_s: float, generator_us: float) -> tuple[float, float]:
    """Returns p90 and p99 of the simulated scenario "server"; infinite if the machine is too slow for the rate."""
    result = simulate(serving, "server", rate_per_s=rate_per_s)
    if result.p90_us is None or result.p99_us is None:
        return float("inf"), float("inf")
    return result.p90_us + generator_us, result.p99_us + generator_us


def _percentiles(
    name: str, scenario: str, seen: Sequence[Reported], *simulated: Sequence[tuple[float, ...]]
) -> list[Compared]:
    return [
        Compared(
            name, scenario, figure, *_two([getattr(one, f"{figure}_us") for one in seen]),
            *(float(np.mean([one[place] for one in of_kind])) for of_kind in simulated),
        )
        for place, figure in enumerate(("p90", "p99"))
    ]  # fmt: skip


def summarise(found: list[Compared]) -> None:
    """Prints how far the simulation is from LoadGen, and LoadGen from LoadGen, by scenario and figure."""
    print(f"\n{'scenario':<15}{'figure':<14}{'compared with LoadGen':<24}{'median':>8}{'range':>14}{'within bar':>12}")
    for scenario, figure in dict.fromkeys((one.scenario, one.figure) for one in found):
        of_figure = [one for one in found if (one.scenario, one.figure) == (scenario, figure)]
        if scenario == "effects":
            print(f"{scenario:<15}{figure:<14}{np.median([one.simulated for one in of_figure]):>8.0f} us")
            continue
        kinds = {
            "simulated": [one.ratio(one.simulated) for one in of_figure],
            "  same seconds": [one.ratio(one.same_seconds) for one in of_figure],
            "  no idle effects": [one.ratio(one.always_warm) for one in of_figure],
            "LoadGen, second run": [(one.repeated or float("nan")) / one.measured for one in of_figure],
        }
        for kind, ratios in kinds.items():
            if np.isnan(ratios).all():
                continue
            within = sum(abs(ratio - 1) <= of_figure[0].bar for ratio in ratios)
            print(
                f"{scenario:<15}{figure:<14}{kind:<24}{np.median(ratios):>8.2f}{min(ratios):>8.2f}{max(ratios):>6.2f}"
                f"{within:>7} of {len(ratios)}"
            )


def main() -> None:
    """Compares all models that are not in the file of results yet, and prints the ratios and their summary."""
    parser = argparse.ArgumentParser(description="Compare simulated traffic with MLPerf's LoadGen.")
    parser.add_argument("--only", default="", help="part of the names of the models to run")
    parser.add_argument("--seconds", type=float, default=4.0, help="length of a run of the scenario server")
    parser.add_argument("--repeats", type=int, default=2, choices=(1, 2), help="runs of LoadGen for each figure")
    parser.add_argument("--part", default="", help="server, highest or closed; by default all of them")
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
            compared = list(part(name, network, arguments.seconds, arguments.repeats))
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
