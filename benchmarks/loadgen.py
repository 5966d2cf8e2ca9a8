"""Compares simulated traffic with MLPerf's LoadGen, which drives ONNX Runtime on this machine.

    pip install mlcommons-loadgen
    python benchmarks/loadgen.py [--only encoder] [--seconds 9] [--results build/loadgen.jsonl]

Twelve models with a symbolic batch (made_models.py) take, on one thread, 1 to 50 ms. Each is timed at several batch
sizes directly before and after LoadGen's runs, and these times are what the simulation gets: queueing is judged, and
not the prediction of latencies. The highest rate of the scenario "server" is searched by bisection, with p99 within
four times the median latency. At 70% of the saturation, p90 and p99 are also compared with a simulation of the very
arrivals that LoadGen sent (replay), in which the traffic does not scatter. Results are appended to a file as they
come, and a second start continues there. A complete run takes about 17 minutes.
"""

import argparse
import json
import queue
import re
import tempfile
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import mlperf_loadgen as lg
import numpy as np
import onnxruntime as ort
from made_models import MODELS
from onnx import ModelProto

from costmodel.traffic.capacity import highest_rate_per_s
from costmodel.traffic.objective import NO_BATCHING, BatchPolicy, LatencyObjective
from costmodel.traffic.queueing import serve
from costmodel.traffic.scenarios import Scenario, Serving, simulate
from costmodel.traffic.service_times import ServiceTimes
from costmodel.traffic.variation import Variation

SIZES = (1, 2, 4, 8)
BATCHES = BatchPolicy(8)
SAMPLES = 64
SLO_FACTOR = 4.0
LOAD = 0.7
STEPS = 5
# Fewest runs that are timed at each batch size.
_FEWEST = 3
BAR_RATE, BAR_PERCENTILE = 0.10, 0.15


class Network:
    """A session on one thread, with inputs for each batch size."""

    def __init__(self, proto: ModelProto) -> None:
        options = ort.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.add_session_config_entry("session.set_denormal_as_zero", "1")
        self._session = ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
        shape = self._session.get_inputs()[0].shape[1:]
        random = np.random.default_rng(1)
        self._inputs = {
            size: {"x": random.normal(size=(size, *shape)).astype(np.float32)} for size in range(1, max(SIZES) + 1)
        }

    def run(self, size: int) -> None:
        """Runs a batch."""
        self._session.run(None, self._inputs[size])

    def times_us(self, seconds: float) -> dict[int, list[float]]:
        """Returns run times in microseconds by batch size; each size has its part of the time, with warm caches."""
        found: dict[int, list[float]] = {size: [] for size in SIZES}
        for size, times_us in found.items():
            self.run(size)
            until = time.perf_counter() + seconds / len(SIZES)
            while len(times_us) < _FEWEST or time.perf_counter() < until:
                began = time.perf_counter_ns()
                self.run(size)
                times_us.append((time.perf_counter_ns() - began) / 1e3)
        return found


@dataclass(frozen=True)
class Reported:
    """The figures that LoadGen reports of a run, and the times at which its queries came."""

    p90_us: float
    p99_us: float
    samples_per_s: float
    arrivals_us: np.ndarray


def drive(network: Network, scenario: Scenario, seconds: float, *, rate_per_s: float, batch: int) -> Reported:
    """Runs one scenario of LoadGen, with one replica that runs batches of at most `batch` samples of a query."""
    waiting: queue.SimpleQueue[list[int] | None] = queue.SimpleQueue()
    came_ns: list[int] = []

    def issue(samples: list[lg.QuerySample]) -> None:
        came_ns.append(time.perf_counter_ns())
        waiting.put([sample.id for sample in samples])

    def work() -> None:
        while (samples := waiting.get()) is not None:
            for first in range(0, len(samples), batch):
                part = samples[first : first + batch]
                network.run(len(part))
                lg.QuerySamplesComplete([lg.QuerySampleResponse(one, 0, 0) for one in part])

    settings = lg.TestSettings()
    settings.mode = lg.TestMode.PerformanceOnly
    settings.scenario = {
        "single-stream": lg.TestScenario.SingleStream, "multi-stream": lg.TestScenario.MultiStream,
        "server": lg.TestScenario.Server, "offline": lg.TestScenario.Offline,
    }[scenario]  # fmt: skip
    settings.min_duration_ms = settings.max_duration_ms = round(1000 * seconds)
    settings.min_query_count = 1
    settings.multi_stream_samples_per_query = 8
    settings.server_target_qps = settings.offline_expected_qps = rate_per_s
    settings.single_stream_expected_latency_ns = settings.multi_stream_expected_latency_ns = round(1e9 / rate_per_s)
    settings.server_target_latency_ns = 10**12
    if scenario == "server":
        settings.min_query_count = round(seconds * rate_per_s)
        settings.max_duration_ms = 0
    worker = threading.Thread(target=work)
    worker.start()
    with tempfile.TemporaryDirectory() as folder:
        logs = lg.LogSettings()
        logs.log_output.outdir = folder
        logs.log_output.copy_summary_to_stdout = False
        logs.enable_trace = False
        sut = lg.ConstructSUT(issue, lambda: None)
        qsl = lg.ConstructQSL(SAMPLES, SAMPLES, lambda _: None, lambda _: None)
        lg.StartTestWithLogSettings(sut, qsl, settings, logs)
        waiting.put(None)
        worker.join()
        lg.DestroyQSL(qsl)
        lg.DestroySUT(sut)
        summary = (Path(folder) / "mlperf_log_summary.txt").read_text()
    times_us = (np.asarray(came_ns) - came_ns[0]) / 1e3
    return Reported(
        _figure(summary, r"90\.00 percentile latency \(ns\) *: (\d+)") / 1e3,
        _figure(summary, r"99\.00 percentile latency \(ns\) *: (\d+)") / 1e3,
        _figure(summary, r"[Ss]amples per second *: ([\d.]+)"),
        times_us,
    )


def _figure(summary: str, pattern: str) -> float:
    match = re.search(pattern, summary)
    return float(match[1]) if match else float("nan")


@dataclass(frozen=True)
class Compared:
    """One figure of LoadGen and of the simulation: a rate in samples a second, or a latency in microseconds."""

    model: str
    scenario: str
    figure: str
    measured: float
    simulated: float

    @property
    def ratio(self) -> float:
        """The simulated figure over the measured one."""
        return self.simulated / self.measured

    @property
    def within(self) -> bool:
        """Whether the ratio is within the bar of the figure."""
        return abs(self.ratio - 1) <= (BAR_RATE if self.figure.endswith("rate") else BAR_PERCENTILE)


class Timed:
    """Times a network before every run of LoadGen and after the last, so that the simulation knows the same minutes."""

    def __init__(self, network: Network) -> None:
        network.times_us(0.5)
        self._network = network
        self._parts = [network.times_us(1)]

    def add(self) -> None:
        """Times the network again."""
        self._parts.append(self._network.times_us(1))

    def serving(self, last: int, policy: BatchPolicy) -> Serving:
        """Returns what the last so many timings say; run times vary as they do at the largest batch of the policy."""
        pooled = {size: np.concatenate([part[size] for part in self._parts[-last:]]) for size in SIZES}
        medians_us = {size: float(np.median(times_us)) for size, times_us in pooled.items()}
        factors = pooled[policy.max_size] / medians_us[policy.max_size]
        return Serving(ServiceTimes(medians_us), Variation(tuple(factors.tolist())), policy)


def compare(name: str, seconds: float) -> list[Compared]:
    """Runs all scenarios for one model."""
    network = Network(MODELS[name]())
    timed = Timed(network)
    found: list[Compared] = []
    closed: tuple[tuple[Scenario, BatchPolicy], ...] = (("single-stream", NO_BATCHING), ("multi-stream", BATCHES))
    for scenario, policy in closed:
        expected = simulate(timed.serving(1, policy), scenario)
        queries_per_s = expected.throughput_per_s / (1 if scenario == "single-stream" else 8)
        seen = drive(network, scenario, seconds / 2, rate_per_s=queries_per_s, batch=policy.max_size)
        timed.add()
        result = simulate(timed.serving(2, policy), scenario)
        found += _percentiles(name, scenario, seen, result.p90_us, result.p99_us)
    seen = drive(network, "offline", seconds / 2, rate_per_s=expected.throughput_per_s, batch=BATCHES.max_size)
    timed.add()
    result = simulate(timed.serving(2, BATCHES), "offline")
    found.append(Compared(name, "offline", "rate", seen.samples_per_s, result.throughput_per_s))
    return found + _server(name, network, timed, seconds)


def _server(name: str, network: Network, timed: Timed, seconds: float) -> list[Compared]:
    """Compares latencies at one rate, then searches the highest rate."""
    alone = timed.serving(1, NO_BATCHING)
    rate_per_s = LOAD * alone.saturation_per_s
    seen = drive(network, "server", seconds, rate_per_s=rate_per_s, batch=1)
    timed.add()
    alone = timed.serving(2, NO_BATCHING)
    result = simulate(alone, "server", rate_per_s=rate_per_s)
    found = _percentiles(name, "server", seen, result.p90_us, result.p99_us)
    replayed = serve(seen.arrivals_us, alone.service_times.up_to(1), alone.variation, 1, NO_BATCHING, 0).latencies_us
    p90_us, p99_us = np.percentile(replayed, [90, 99]).tolist()
    found += _percentiles(name, "server, replay", seen, p90_us, p99_us)
    objective = LatencyObjective(99.0, SLO_FACTOR * alone.service_times.latency_us[1])
    low, high = 0.1 * alone.saturation_per_s, alone.saturation_per_s
    for _ in range(STEPS):
        middle = (low + high) / 2
        seen = drive(network, "server", seconds, rate_per_s=middle, batch=1)
        timed.add()
        low, high = (middle, high) if seen.p99_us <= objective.latency_us else (low, middle)
    expected_per_s = highest_rate_per_s(timed.serving(STEPS + 1, NO_BATCHING), objective)
    return [*found, Compared(name, "server", "highest rate", (low + high) / 2, expected_per_s)]


def _percentiles(
    name: str, scenario: str, seen: Reported, p90_us: float | None, p99_us: float | None
) -> list[Compared]:
    return [
        Compared(name, scenario, figure, measured, simulated)
        for figure, measured, simulated in (("p90", seen.p90_us, p90_us), ("p99", seen.p99_us, p99_us))
        if simulated is not None
    ]


def summarise(found: list[Compared]) -> None:
    """Prints how far the simulation is from LoadGen, by scenario and figure."""
    print(f"\n{'scenario':<16}{'figure':<14}{'models':>6}{'median ratio':>16}{'within bar':>12}{'range':>14}")
    for scenario, figure in dict.fromkeys((one.scenario, one.figure) for one in found):
        of_figure = [one for one in found if (one.scenario, one.figure) == (scenario, figure)]
        ratios = np.array([one.ratio for one in of_figure])
        within = np.mean([one.within for one in of_figure])
        print(
            f"{scenario:<16}{figure:<14}{len(of_figure):>6}{np.median(ratios):>16.3f}{within:>12.0%}"
            f"{ratios.min():>8.2f}{ratios.max():>6.2f}"
        )


def main() -> None:
    """Compares all models that are not in the file of results yet, and prints the ratios and their summary."""
    parser = argparse.ArgumentParser(description="Compare simulated traffic with MLPerf's LoadGen.")
    parser.add_argument("--only", default="", help="part of the names of the models to run")
    parser.add_argument("--seconds", type=float, default=9.0, help="length of a run of the scenario server")
    parser.add_argument("--results", type=Path, default=Path("build/loadgen.jsonl"))
    arguments = parser.parse_args()
    known = arguments.results.read_text().splitlines() if arguments.results.exists() else []
    found = [Compared(**json.loads(line)) for line in known]
    done = {one.model for one in found}
    arguments.results.parent.mkdir(parents=True, exist_ok=True)
    for name in MODELS:
        if arguments.only not in name or name in done:
            continue
        compared = compare(name, arguments.seconds)
        with arguments.results.open("a") as file:
            file.writelines(json.dumps(asdict(one)) + "\n" for one in compared)
        found += compared
        for one in compared:
            print(
                f"{name:<24}{one.scenario:<16}{one.figure:<14}{one.measured:>12.1f}{one.simulated:>12.1f}"
                f"{one.ratio:>7.2f}",
                flush=True,
            )
    if found:
        summarise([one for one in found if arguments.only in one.model])


if __name__ == "__main__":
    main()
