"""Runs MLPerf's LoadGen with one session of ONNX Runtime as the system under test, and records what happens there."""

import os
import queue
import re
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import mlperf_loadgen as lg
import numpy as np
import onnxruntime as ort
from onnx import ModelProto

from costmodel.traffic.scenarios import Scenario

SIZES = (1, 2, 4, 8)
SAMPLES = 64
# Fewest runs that are timed at each batch size.
_FEWEST = 3
# What other processes may take of a CPU, how often a run is repeated for that, and how long each repetition waits at
# most until they take less.
_OTHERS, _ATTEMPTS, _PATIENCE_S = 0.05, 3, 3.0
_LOOK_S = 0.3
_Result = TypeVar("_Result")


def _others(run: Callable[[], _Result]) -> tuple[_Result, float]:
    """Returns the result of a run, and the CPU time of other processes meanwhile over its duration."""
    began, everybody_s, own = time.perf_counter(), _busy_s(), os.times()
    result = run()
    took_s, now = time.perf_counter() - began, os.times()
    return result, (_busy_s() - everybody_s - (now.user + now.system - own.user - own.system)) / took_s


def _busy_s() -> float:
    """Returns the CPU time of all processes of this machine so far, in seconds."""
    user, nice, system = Path("/proc/stat").read_text().split()[1:4]
    return (int(user) + int(nice) + int(system)) / os.sysconf("SC_CLK_TCK")


class Network:
    """A session on one thread, with inputs for each batch size.

    Attributes:
        others: Largest share of a CPU that other processes of this machine took during a run that was kept.
    """

    def __init__(self, proto: ModelProto) -> None:
        self.others = 0.0
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

    def undisturbed(self, run: Callable[[], _Result]) -> _Result:
        """Returns the result of a run, repeated up to twice if other processes took more than 5% of a CPU."""
        for attempt in range(_ATTEMPTS):
            until = time.perf_counter() + _PATIENCE_S
            while _others(lambda: time.sleep(_LOOK_S))[1] > 2 * _OTHERS and time.perf_counter() < until:
                pass
            result, others = _others(run)
            if others <= _OTHERS or attempt == _ATTEMPTS - 1:
                break
        self.others = max(self.others, others)
        return result

    def times_us(self, seconds: float, sizes: tuple[int, ...] = SIZES) -> dict[int, list[float]]:
        """Returns run times in microseconds by batch size; each size has its part of the time, with warm caches."""
        found: dict[int, list[float]] = {size: [] for size in sizes}
        for size, times_us in found.items():
            self.run(size)
            until = time.perf_counter() + seconds / len(sizes)
            while len(times_us) < _FEWEST or time.perf_counter() < until:
                began = time.perf_counter_ns()
                self.run(size)
                times_us.append((time.perf_counter_ns() - began) / 1e3)
        return found


@dataclass(frozen=True)
class Reported:
    """What LoadGen reports of a run, and what the system under test has recorded.

    Attributes:
        latencies_us: Latency of each query, from LoadGen's trace, shape [num_queries].
        samples_per_s: Samples that were answered in a second, as LoadGen reports it.
        arrivals_us: Times at which queries came.
        warm_us: Run times of batches that began as soon as the one before ended.
        generator_us: Latency of each query minus the time from its coming to its completion in the system under test:
            the part of the latency that is the load generator's own, because it counts from the time for which a query
            was scheduled, and its thread sleeps until then. Shape [num_queries].
    """

    latencies_us: np.ndarray
    samples_per_s: float
    arrivals_us: np.ndarray
    warm_us: np.ndarray
    generator_us: np.ndarray


def drive(
    network: Network, scenario: Scenario, seconds: float, *, rate_per_s: float, batch: int, seed: int
) -> Reported:
    """Runs one scenario of LoadGen, with one replica that runs batches of at most `batch` samples of a query.

    The seed determines the times at which LoadGen schedules queries.
    """
    waiting: queue.SimpleQueue[list[int] | None] = queue.SimpleQueue()
    came_ns: list[int] = []
    runs_ns: list[tuple[int, int]] = []
    done_ns: list[int] = []

    def issue(samples: list[lg.QuerySample]) -> None:
        came_ns.append(time.perf_counter_ns())
        waiting.put([sample.id for sample in samples])

    def work() -> None:
        while (samples := waiting.get()) is not None:
            for first in range(0, len(samples), batch):
                part = samples[first : first + batch]
                began_ns = time.perf_counter_ns()
                network.run(len(part))
                runs_ns.append((began_ns, time.perf_counter_ns()))
                lg.QuerySamplesComplete([lg.QuerySampleResponse(one, 0, 0) for one in part])
            done_ns.append(runs_ns[-1][1])

    worker = threading.Thread(target=work)
    worker.start()
    with tempfile.TemporaryDirectory() as folder:
        logs = lg.LogSettings()
        logs.log_output.outdir = folder
        logs.log_output.copy_summary_to_stdout = False
        logs.enable_trace = True
        sut = lg.ConstructSUT(issue, lambda: None)
        qsl = lg.ConstructQSL(SAMPLES, SAMPLES, lambda _: None, lambda _: None)
        lg.StartTestWithLogSettings(sut, qsl, _settings(scenario, seconds, rate_per_s, seed), logs)
        waiting.put(None)
        worker.join()
        lg.DestroyQSL(qsl)
        lg.DestroySUT(sut)
        summary = (Path(folder) / "mlperf_log_summary.txt").read_text()
        latencies_us = _latencies_us((Path(folder) / "mlperf_log_trace.json").read_text())
    began_us, ended_us = np.asarray(runs_ns).T / 1e3
    came_us = np.asarray(came_ns) / 1e3
    waited = came_us[1:] < ended_us[:-1] if len(came_us) == len(ended_us) else np.ones(len(ended_us) - 1, bool)
    return Reported(
        latencies_us,
        _figure(summary, r"[Ss]amples per second *: ([\d.]+)"),
        came_us - came_us[0],
        (ended_us - began_us)[1:][waited],
        latencies_us - (np.asarray(done_ns) / 1e3 - came_us),
    )


def _settings(scenario: Scenario, seconds: float, rate_per_s: float, seed: int) -> lg.TestSettings:
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
    settings.schedule_rng_seed = seed
    if scenario == "server":
        settings.min_query_count = round(seconds * rate_per_s)
        settings.max_duration_ms = 0
    return settings


def _latencies_us(trace: str) -> np.ndarray:
    """Returns the latency of each query, which is complete when its last sample is, in the order of completion."""
    latest: dict[str, float] = {}
    for query, done_ns in re.findall(r'"query_seq":(\d+),[^}]*"complete_ns":(\d+)', trace):
        latest[query] = max(latest.get(query, 0.0), float(done_ns) / 1e3)
    return np.array(list(latest.values()))


def _figure(summary: str, pattern: str) -> float:
    match = re.search(pattern, summary)
    return float(match[1]) if match else float("nan")
