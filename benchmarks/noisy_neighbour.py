"""Compares ways to time models on a noisy machine: without probes of its state, and with one, two or three of them.

    python benchmarks/noisy_neighbour.py [--way WAY]... MODELS CORPUS_OR_MODEL.onnx ...

A neighbour, another process on the other core and now and then on the same one, computes, fills the last-level cache
or reads memory for half of the time. Each model is measured in layers and end to end, on one thread, in each way, in
random order. The truth is the 20th percentile of runs of the model without the neighbour, before the measurements and
after each of them. The table shows ratios to the truth (geometric mean, shares within 5% and 10%, smallest, largest) of
the sum of layers, of this sum with the context correction that is learnt from the measured models of other families,
and of the measured model; and how many of the intervals of the corrected sums contain the truth.
"""

import argparse
import math
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from costmodel.estimate.composition import half_width
from costmodel.estimate.context_correction import cache_pressure, small_weights_kb
from costmodel.estimate.cost import Cost, Uncertainty
from costmodel.ir.footprint import read_bytes
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
from costmodel.training.calibration import conformal_quantile
from costmodel.training.context_correction import ModelLayers, fit_context_correction
from costmodel.training.corpus import corpus_models

# For each way to time: the probes, and whether time that another process had the CPU is left out.
WAYS: dict[str, tuple[tuple[str, ...], bool]] = {
    "no probe": ((), False),
    "no probe, CPU time": ((), True),
    "products": (("products",), True),
    "products, memory": (("products", "memory"), True),
    # As `costmodel bench` does:
    "products, memory, cache": (("products", "memory", "cache"), True),
}
# Short waits, because each model is a session of its own.
PROTOCOL = Protocol(max_wait_us=4_000_000.0)
SLOWEST_US = 60_000.0
LEVEL = 0.9
SAME_CORE = 0.1
SPELL_S = (1.0, 5.0)


@dataclass(frozen=True)
class Measured:
    """A model as it was measured in one way.

    Attributes:
        layers: Its layers with their costs.
        costs: The same costs with their intervals.
        whole_us: Latency of the model in microseconds.
        seconds: Time that measuring took.
    """

    layers: ModelLayers
    costs: tuple[Cost, ...]
    whole_us: float
    seconds: float

    @property
    def sum_us(self) -> float:
        """Sum of the costs of the layers in microseconds."""
        return float(self.layers.costs_us.sum())


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


def chosen(names: Sequence[str]) -> Callable[[Callable[[LayerSequence], Runner], Host | None, float], list[StateProbe]]:
    """Returns a function that makes the probes of these names."""
    return lambda *needed: [probe for probe in state_probes(*needed) if probe.name in names]


def main(count: int, names: Sequence[str], ways: Sequence[str]) -> None:
    """Measures, then prints the table."""
    draw, runtime, settings = random.Random(1), get_runtime(), RuntimeSettings()
    system = this_system(runtime, settings)
    models = [model for name in names for model in corpus_models(name)]
    draw.shuffle(models)
    family_of = {model.name: model.family for model in models}
    found: dict[str, list[Measured]] = {way: [] for way in ways}
    names_found: list[str] = []
    truths_us: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        silence = Path(folder) / "silence"
        stores = {way: Store(f"sqlite:///{folder}/{number}.db") for number, way in enumerate(ways)}
        with neighbour(silence):
            for item in decompose_models(models[: 2 * count], runtime, settings.level, Path(folder) / "cache"):
                runner = runtime.open_model(item.model, settings)
                runner.run()
                if timed_us(runner, time.perf_counter_ns) > SLOWEST_US:
                    continue
                truth_us = quiet_us(runner, silence)
                for way in draw.sample(ways, len(ways)):
                    found[way].append(measure(stores[way], item, way, system))
                    truth_us += quiet_us(runner, silence)
                truths_us.append(float(np.quantile(truth_us, 0.2)))
                names_found.append(item.model.name)
                print(item.model.name, *(f"{of[-1].sum_us / truths_us[-1]:.3f}" for of in found.values()), flush=True)
                if len(truths_us) == count:
                    break
    truth = np.array(truths_us)
    columns = ("sum of layers", "corrected", "covered", "whole model", "seconds")
    print(f"{'':26}{columns[0]:>34}{columns[1]:>34}{columns[2]:>9}{columns[3]:>34}{columns[4]:>9}")
    for way, measured in found.items():
        corrected_us, widths = corrected(measured, [family_of[name] for name in names_found])
        covered = f"{(np.abs(np.log(corrected_us / truth)) <= widths).mean():.0%}"
        sums, wholes = (np.array(us) / truth for us in zip(*((of.sum_us, of.whole_us) for of in measured), strict=True))
        seconds = sum(of.seconds for of in measured)
        of_corrected = row_of(corrected_us / truth)
        print(f"{way:26}{row_of(sums):>34}{of_corrected:>34}{covered:>9}{row_of(wholes):>34}{seconds:9.0f}")


def corrected(measured: Sequence[Measured], families: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Returns the corrected sum of each model, and the half-width of its interval in log latency.

    Both are learnt from the measured models of other families, as `costmodel train` learns them from all models.
    """
    sums_us, widths = [], []
    for one, family in zip(measured, families, strict=True):
        others = [other for other, of in zip(measured, families, strict=True) if of != family]
        correction = fit_context_correction([o.layers for o in others], [o.whole_us for o in others])
        errors = [abs(math.log(o.layers.corrected_us(correction).sum() / o.whole_us)) for o in others]
        sums_us.append(one.layers.corrected_us(correction).sum())
        widths.append(half_width(one.costs, Uncertainty(construction=conformal_quantile(np.array(errors), LEVEL))))
    return np.array(sums_us), np.array(widths)


def measure(store: Store, item: DecomposedModel, way: str, system: System) -> Measured:
    """Measures a model in layers and end to end."""
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
    sequences = [p.sequence for p in item.decomposition.segments]
    of_layers = [timings[sequence.signature] for sequence in sequences]
    return Measured(
        ModelLayers(
            np.array([of.latency_us for of in of_layers]),
            tuple(sequence.kind for sequence in sequences),
            cache_pressure(item.footprint_bytes, system.host),
            small_weights_kb(np.array([read_bytes(sequence) for sequence in sequences]), system.host),
        ),
        tuple(Cost(of.latency_us, of.interval_us, "measured", "") for of in of_layers),
        timings[item.whole.signature].latency_us,
        report.seconds,
    )


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
        case arguments:
            parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
            parser.add_argument("--way", action="append", choices=WAYS, help="a way to time (default: all)")
            parser.add_argument("count", type=int, metavar="MODELS")
            parser.add_argument("names", nargs="+", metavar="CORPUS_OR_MODEL.onnx")
            options = parser.parse_args(arguments)
            main(options.count, options.names, options.way or list(WAYS))
