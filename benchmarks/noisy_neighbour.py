"""Compares ways to time models on a noisy machine: without probes of its state, and with one, two or three of them.

    python benchmarks/noisy_neighbour.py MODELS CORPUS_OR_MODEL.onnx ...

A neighbour, another process on the other core and now and then on the same one, computes, fills the last-level cache
or reads memory for half of the time. Each model is measured in layers and end to end, on one thread, in each way, in
random order. The truth is the 20th percentile of runs of the model without the neighbour, before the measurements and
after each of them. The table shows the ratios of the sum of layers, and of the measured model, to the truth: geometric
mean, shares within 5% and 10%, smallest, largest; and how many of the intervals of the sums contain the truth.
"""

import math
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from costmodel.estimate.composition import half_width
from costmodel.estimate.cost import Cost, Uncertainty
from costmodel.ir.sequence import LayerSequence
from costmodel.jobs.benchmark_session import BenchmarkSession
from costmodel.jobs.decomposed_models import DecomposedModel, decompose_models
from costmodel.measure.denormals import denormals_flushed
from costmodel.measure.groups import Group
from costmodel.measure.machine_state import StateProbe, state_probes
from costmodel.measure.protocol import Protocol
from costmodel.measure.stopwatch import timed_us
from costmodel.runtimes.base import Runner, RuntimeSettings, get_runtime
from costmodel.store.store import Store
from costmodel.systems.host import Host
from costmodel.systems.system import System, this_system
from costmodel.training.corpus import corpus_models

# For each way to time: the probes, and whether time that another process had the CPU is left out.
WAYS: dict[str, tuple[tuple[str, ...], bool]] = {
    "no probe": ((), False),
    "no probe, CPU time": ((), True),
    "products": (("products",), True),
    "products, memory": (("products", "memory"), True),
    "products, memory, cache": (("products", "memory", "cache"), True),
}
BEST = "products, memory, cache"  # as `costmodel bench` does
# Short waits, because each model is a session of its own.
PROTOCOL = Protocol(max_wait_us=4_000_000.0)
SLOWEST_US = 60_000.0
SAME_CORE = 0.1
SPELL_S = (1.0, 5.0)


def disturb(kind: str, cpu: int) -> None:
    """Disturbs the machine until the process is killed."""
    os.sched_setaffinity(0, {cpu})
    if kind == "compute":
        square = np.random.default_rng(0).random((96, 96), dtype=np.float32)
        while True:
            square @ square
    data = np.ones((1 << 24) if kind == "memory" else (1 << 20))
    while True:
        data.sum()


def be_a_neighbour(silence: Path) -> None:
    """Starts and ends disturbances at random until the process is killed; none while the file `silence` exists."""
    draw, cpus = random.Random(7), sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cpus[0]})

    def rest() -> None:
        end = time.monotonic() + draw.uniform(*SPELL_S)
        while time.monotonic() < end and not silence.exists():
            time.sleep(0.1)

    while True:
        if silence.exists():
            time.sleep(0.1)
            continue
        cpu = cpus[-1] if draw.random() < SAME_CORE else cpus[0]
        kind = draw.choice(["compute", "memory", "cache"])
        with subprocess.Popen([sys.executable, __file__, "--disturb", kind, str(cpu)]) as process:
            rest()
            process.kill()
        rest()


@contextmanager
def neighbour(silence: Path) -> Iterator[None]:
    """Runs a neighbour until the context ends."""
    with subprocess.Popen([sys.executable, __file__, "--neighbour", str(silence)]) as process:
        try:
            yield
        finally:
            silence.touch()
            time.sleep(0.5)  # the neighbour ends its disturbance
            process.kill()


def quiet_us(runner: Runner, silence: Path) -> list[float]:
    """Times runs of a model without the neighbour."""
    silence.touch()
    time.sleep(0.3)
    with denormals_flushed():  # as while models are measured
        first_us = min(timed_us(runner, time.perf_counter_ns) for _ in range(3))
        times_us = [timed_us(runner, time.perf_counter_ns) for _ in range(max(5, min(40, int(300_000 / first_us))))]
    silence.unlink()
    time.sleep(0.3)
    return times_us


def chosen(names: Sequence[str]) -> Callable[[Callable[[LayerSequence], Runner], Host | None], list[StateProbe]]:
    """Returns a function that makes the probes of these names."""
    return lambda open_sequence, host: [probe for probe in state_probes(open_sequence, host) if probe.name in names]


def main(count: int, names: Sequence[str]) -> None:
    """Measures, then prints the table."""
    draw, runtime, settings = random.Random(1), get_runtime(), RuntimeSettings()
    system = this_system(runtime, settings)
    models = [model for name in names for model in corpus_models(name)]
    draw.shuffle(models)
    ratios: dict[str, list[tuple[float, float, float, bool]]] = {way: [] for way in WAYS}
    with tempfile.TemporaryDirectory() as folder:
        silence = Path(folder) / "silence"
        stores = {way: Store(f"sqlite:///{folder}/{number}.db") for number, way in enumerate(WAYS)}
        with neighbour(silence):
            for item in decompose_models(models[: 2 * count], runtime, settings.level, Path(folder) / "cache"):
                runner = runtime.open_model(item.model, settings)
                runner.run()
                if timed_us(runner, time.perf_counter_ns) > SLOWEST_US:
                    continue
                truth_us = quiet_us(runner, silence)
                found = {}
                for way in draw.sample(list(WAYS), len(WAYS)):
                    found[way] = measure(stores[way], item, way, system)
                    truth_us += quiet_us(runner, silence)
                true_us = float(np.quantile(truth_us, 0.2))
                for way, (sum_us, width, whole_us, seconds) in found.items():
                    covered = abs(math.log(sum_us / true_us)) <= width
                    ratios[way].append((sum_us / true_us, whole_us / true_us, seconds, covered))
                print(item.model.name, f"{found[BEST][0] / true_us:.3f} {found[BEST][2] / true_us:.3f}", flush=True)
                if len(ratios["no probe"]) == count:
                    break
    print(f"{'':26}{'sum of layers':>34}{'covered':>9}{'whole model':>34}{'seconds':>9}")
    for way, rows in ratios.items():
        table = np.array(rows)
        covered = f"{table[:, 3].mean():.0%}"
        print(f"{way:26}{row_of(table[:, 0]):>34}{covered:>9}{row_of(table[:, 1]):>34}{table[:, 2].sum():9.0f}")


def measure(store: Store, item: DecomposedModel, way: str, system: System) -> tuple[float, float, float, float]:
    """Measures a model in layers and end to end.

    Returns:
        The sum of layers in microseconds, the half-width of its interval in log latency, the latency of the model in
        microseconds, and the seconds that measuring took.
    """
    probes, on_cpu = WAYS[way]
    layers = {p.sequence.signature: p.sequence for p in item.decomposition.segments}
    group = Group(item.model.name, tuple(layers.values()), item.whole, item.model, item.footprint_bytes)
    with BenchmarkSession(
        store,
        system,
        get_runtime(),
        protocol=PROTOCOL,
        probes=chosen(probes),
        cpu_ns=time.thread_time_ns if on_cpu else time.perf_counter_ns,
    ) as session:
        report = session.run([group], again=True)
    timings = store.timings(session.system.name)
    of_layers = [timings[p.sequence.signature] for p in item.decomposition.segments]
    costs = [Cost(of.latency_us, of.interval_us, "measured", "") for of in of_layers]
    width = half_width(costs, Uncertainty())
    return sum(of.latency_us for of in of_layers), width, timings[item.whole.signature].latency_us, report.seconds


def row_of(ratio: np.ndarray) -> str:
    """Formats geometric mean, share within 5% and 10%, and range of ratios."""
    within = [f"{(np.abs(ratio - 1) <= limit).mean():.0%}" for limit in (0.05, 0.1)]
    return f"{np.exp(np.log(ratio).mean()):.3f}  {within[0]:>4} {within[1]:>4}  {ratio.min():.2f} {ratio.max():.2f}"


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["--disturb", kind, cpu]:
            disturb(kind, int(cpu))
        case ["--neighbour", silence]:
            be_a_neighbour(Path(silence))
        case [count, *names] if names:
            main(int(count), names)
        case _:
            sys.exit(__doc__)
