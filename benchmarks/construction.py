"""Compares ways to time layers in isolation by how well the sum of layers agrees with the time of the model.

    python benchmarks/construction.py [MODEL.onnx ...]

Each way times all layers of a model; the whole model is timed immediately before and after, so that the machine is in
the same state. Prints the table of docs/adr/0005; by default for the nine light models.
"""

import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from costmodel.ir.footprint import read_bytes
from costmodel.ir.sequence import LayerSequence, SequenceLayer, Value
from costmodel.measure.affinity import pinned
from costmodel.measure.call_overhead import LONG_CHAIN_LAYERS, SHORT_CHAIN_LAYERS, call_overhead_us, tiny_chain
from costmodel.measure.capability import reference_sequence
from costmodel.measure.lock import measuring_lock
from costmodel.measure.protocol import Protocol
from costmodel.measure.round_robin import CacheEvictor, TimedNetwork, take_turns
from costmodel.measure.stopwatch import timed_us
from costmodel.onnx_io.model import Model, read_model
from costmodel.partition.decomposition import Decomposition, decompose
from costmodel.paths import find_home
from costmodel.runtimes.base import Runner, RuntimeSettings
from costmodel.runtimes.lowering_cache import lower_cached
from costmodel.runtimes.ort.adapter import OnnxRuntime
from costmodel.runtimes.ort.session import SessionRunner, new_session, session_options
from costmodel.synthetic.values import model_inputs
from costmodel.systems.host import probe_host
from costmodel.training.corpus import corpus_models

SETTINGS = RuntimeSettings()
PROTOCOL = Protocol(passes=12, max_passes=12)
COPIES = 4
PROBES = 8
# Limits of the neighbourhoods: consecutive quick layers with small tensors that are also run in one call.
NEIGHBOURS, NEIGHBOURHOODS, QUICK_US, SMALL_BYTES = 4, 12, 250.0, 256 << 10
STATISTICS: dict[str, Callable[[Sequence[float]], float]] = {
    "median": statistics.median,
    "quantile 0.2": lambda times: float(np.quantile(times, 0.2)),
    "minimum": min,
    "trimmed mean 20%": lambda times: float(np.mean(np.sort(times)[len(times) // 5 : len(times) - len(times) // 5])),
}


class Bare:
    """A runner whose inputs are not rewritten before each run."""

    def __init__(self, runner: Runner) -> None:
        self.run = runner.run

    def feed(self) -> None:
        """Leaves the inputs as they are."""


class Subject:
    """A model with its layers, and the open sessions of both."""

    def __init__(self, runtime: OnnxRuntime, model: Model, cut: Decomposition) -> None:
        self.runtime, self.model, self.cut = runtime, model, cut
        self.whole = runtime.open_model(model, SETTINGS)
        self.sequences = list(cut.unique.values())
        self.runners = [runtime.open_sequence(sequence, SETTINGS) for sequence in self.sequences]
        self.reference = runtime.open_sequence(reference_sequence(), SETTINGS)
        self.empty = runtime.open_sequence(tiny_chain(1), SETTINGS)
        footprint = sum(read_bytes(segment.sequence) for segment in cut.segments)
        own = sum(map(read_bytes, self.sequences))
        self.caches = 2 * (probe_host().l3_bytes or 32 << 20)
        self.missing_bytes = max(0, min(footprint, self.caches) - own)

    def total_us(self, by_signature: dict[str, float]) -> float:
        """Returns the sum of latencies over the layers of the model."""
        return sum(by_signature[segment.sequence.signature] for segment in self.cut.segments)

    def whole_us(self) -> list[float]:
        """Times a few runs of the whole model, back to back."""
        self.whole.run()
        return [clock(self.whole) for _ in range(5)]


def joined(sequences: Sequence[LayerSequence]) -> LayerSequence:
    """Joins sequences into one network in which none reads from another."""
    layers: list[SequenceLayer] = []
    values: list[Value] = []
    outputs: list[int] = []
    for sequence in sequences:
        first = len(values)

        def shifted(indices: tuple[int, ...], by: int = first) -> tuple[int, ...]:
            return tuple(i + by if i >= 0 else i for i in indices)

        layers += [
            replace(layer, inputs=shifted(layer.inputs), outputs=shifted(layer.outputs)) for layer in sequence.layers
        ]
        values += sequence.values
        outputs += shifted(sequence.outputs)
    return LayerSequence(tuple(layers), tuple(values), tuple(outputs))


def neighbourhoods(sequences: Sequence[LayerSequence], latencies_us: Sequence[float]) -> list[range]:
    """Chooses consecutive quick and small sequences, spread over a model, to be run in one call, too."""
    fit = []
    for start in range(0, len(sequences) - NEIGHBOURS + 1, NEIGHBOURS):
        positions = range(start, start + NEIGHBOURS)
        values = (value for p in positions for value in sequences[p].values if value.role != "constant")
        quick = sum(latencies_us[p] for p in positions) <= QUICK_US
        if quick and all(value.type.nbytes <= SMALL_BYTES for value in values):
            fit.append(positions)
    return fit[:: max(1, -(-len(fit) // NEIGHBOURHOODS))]


def saved_us(together: Sequence[tuple[list[TimedNetwork], TimedNetwork]]) -> float:
    """Time that running neighbours in one call saves for each call that is left out: a lower bound of call overhead."""
    median = statistics.median
    saved = [
        (sum(median(entry.times_us) for entry in alone) - median(one.times_us)) / (len(alone) - 1)
        for alone, one in together
    ]
    return median(saved) if saved else 0.0


def clock(runner: Runner) -> float:
    """Times one run, in microseconds."""
    return timed_us(runner, time.perf_counter_ns)


def back_to_back(subject: Subject, *, less_call: bool = False) -> float:
    """Times each layer in consecutive runs, as a simple benchmark does; returns the sum of layers."""
    taken = {}
    for sequence, runner in zip(subject.sequences, subject.runners, strict=True):
        once = min(clock(runner), clock(runner))
        taken[sequence.signature] = statistics.median(clock(runner) for _ in range(max(5, min(40, int(10_000 / once)))))
    clock(subject.empty)
    call = statistics.median(clock(subject.empty) for _ in range(50)) if less_call else 0.0
    return subject.total_us({signature: time_us - call for signature, time_us in taken.items()})


def evicted(subject: Subject) -> float:
    """Times each layer with evicted caches, minus the call overhead in the same state; returns the sum of layers."""
    sweep = CacheEvictor(subject.caches)

    def cold_us(runner: Runner) -> float:
        times = []
        for _ in range(5):
            sweep.run()
            times.append(clock(runner))
        return statistics.median(times)

    call = cold_us(subject.empty)
    return subject.total_us(
        {s.signature: cold_us(r) - call for s, r in zip(subject.sequences, subject.runners, strict=True)}
    )


def copies(subject: Subject) -> float:
    """Times copies of a layer with own weights in one call, minus the call overhead; returns the sum of layers."""
    clock(subject.empty)
    call = statistics.median(clock(subject.empty) for _ in range(50))
    taken = {}
    for sequence in subject.sequences:
        runner = subject.runtime.open_sequence(joined([sequence] * COPIES), SETTINGS)
        once = min(clock(runner), clock(runner))
        times = [clock(runner) for _ in range(max(3, min(20, int(20_000 / once))))]
        taken[sequence.signature] = (statistics.median(times) - call) / COPIES
    return subject.total_us(taken)


class InTurn:
    """The layers of a model timed in laps, and the sums that different statistics make of the same times."""

    def __init__(self, subject: Subject, *, sweeping: bool = True, feeding: bool = True) -> None:
        wrap: Callable[[Runner], Runner] = (lambda runner: runner) if feeding else Bare
        self.subject = subject
        self.entries = [TimedNetwork(wrap(runner)) for runner in subject.runners]
        probes = [[TimedNetwork(subject.runtime.open_sequence(tiny_chain(n), SETTINGS)) for _ in range(PROBES)]
                  for n in (SHORT_CHAIN_LAYERS, LONG_CHAIN_LAYERS)]  # fmt: skip
        roughly = [min(clock(runner), clock(runner)) for runner in subject.runners]
        self.together = [
            (
                [self.entries[p] for p in positions],
                TimedNetwork(
                    wrap(subject.runtime.open_sequence(joined([subject.sequences[p] for p in positions]), SETTINGS))
                ),
            )
            for positions in neighbourhoods(subject.sequences, roughly)
        ]
        spread = [*(probe for pair in zip(*probes, strict=True) for probe in pair), *(one for _, one in self.together)]
        sweep = CacheEvictor(subject.missing_bytes if sweeping else 0)
        take_turns(self.entries, spread, subject.reference, sweep, PROTOCOL, time.perf_counter_ns)
        self.call_us = call_overhead_us(*([t for probe in kind for t in probe.times_us] for kind in probes))
        self.saved_us = min(self.call_us, saved_us(self.together))

    def total_us(self, call_us: float, statistic: Callable[[Sequence[float]], float] = statistics.median) -> float:
        """Returns the sum of the layers of the model, each minus the call overhead."""
        return self.subject.total_us({
            sequence.signature: max(0.1, statistic(entry.times_us) - call_us)
            for sequence, entry in zip(self.subject.sequences, self.entries, strict=True)
        })  # fmt: skip


def profiled(subject: Subject) -> float:
    """Sum of layers according to the profiler of onnxruntime in the running model."""
    options = session_options(SETTINGS)
    options.enable_profiling = True
    with TemporaryDirectory() as folder:
        options.profile_file_prefix = str(Path(folder) / "profile")
        session = new_session(str(subject.model.path), options)
        runner = SessionRunner(session, model_inputs(subject.model))
        for _ in range(8):
            runner.run()
        events = json.loads(Path(session.end_profiling()).read_text())
    by_name: dict[str, list[float]] = {}
    for event in events:
        if event["name"].endswith("_kernel_time"):
            by_name.setdefault(event["name"], []).append(event["dur"])
    return sum(statistics.median(times[2:]) for times in by_name.values())


def ways(subject: Subject) -> dict[str, tuple[float, float]]:
    """Times a model in each way; returns by way the ratio of the sum of layers to the model, and the seconds taken."""
    found: dict[str, tuple[float, float]] = {}

    def record(way: str, sums: Callable[[], float]) -> None:
        before = subject.whole_us()
        begin = time.perf_counter()
        total = sums()
        seconds = time.perf_counter() - begin
        found[way] = total / statistics.median(before + subject.whole_us()), seconds

    record("back to back", lambda: back_to_back(subject))
    record("back to back, less an empty call", lambda: back_to_back(subject, less_call=True))
    record("caches emptied before each run, less an empty call", lambda: evicted(subject))
    record(f"{COPIES} copies in a call, less an empty call", lambda: copies(subject))
    record("the profiler in the running model", lambda: profiled(subject))
    for label, options in {
        "in turn": {}, "in turn, weights as near as they come": {"sweeping": False},
        "in turn, inputs not written anew": {"feeding": False},
    }.items():  # fmt: skip
        before = subject.whole_us()
        begin = time.perf_counter()
        turns = InTurn(subject, **options)
        seconds = time.perf_counter() - begin
        times = before + subject.whole_us()
        if not options:
            whole = statistics.median(times)
            found[f"{label}, call included"] = turns.total_us(0.0) / whole, seconds
            found[f"{label}, less a call by neighbours"] = turns.total_us(turns.saved_us) / whole, seconds
            half = (turns.saved_us + turns.call_us) / 2
            found[f"{label}, less a call half-way between these"] = turns.total_us(half) / whole, seconds
            for name, statistic in STATISTICS.items():
                found[f"{label}, less a call by tiny chains: {name}"] = (
                    turns.total_us(turns.call_us, statistic) / statistic(times), seconds
                )  # fmt: skip
        else:
            found[label] = turns.total_us(turns.call_us) / statistics.median(times), seconds
    return found


def main(paths: Sequence[Path]) -> None:
    """Times every model in every way and prints the table."""
    runtime = OnnxRuntime()
    rows: dict[str, list[tuple[float, float]]] = {}
    chosen = paths or [item.path for item in corpus_models("light")]
    with measuring_lock(), pinned(SETTINGS.threads):
        for path in chosen:
            model = read_model(path)
            graph = lower_cached(runtime, model, SETTINGS.level, find_home().cache)
            for way, result in ways(Subject(runtime, model, decompose(model.name, graph))).items():
                rows.setdefault(way, []).append(result)
            print(f"{model.name} done", file=sys.stderr)
    print(f"{len(chosen)} models, {SETTINGS.threads} thread\n")
    print(f"{'how a layer is timed':58} {'geomean':>8} {'within 5%':>9} {'10%':>5} {'range':>13} {'seconds':>8}")
    for way, results in rows.items():
        ratios = np.array([ratio for ratio, _ in results])
        off = np.abs(ratios - 1)
        print(
            f"{way:58} {np.exp(np.log(ratios).mean()):8.3f} {np.mean(off <= 0.05):9.0%} {np.mean(off <= 0.1):5.0%} "
            f"{ratios.min():6.2f} {ratios.max():6.2f} {sum(seconds for _, seconds in results):8.0f}"
        )


if __name__ == "__main__":
    main([Path(argument) for argument in sys.argv[1:]])
