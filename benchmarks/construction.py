"""How a layer has to be timed alone so that the sum of layers is the time of the model: every way that we know.

    python benchmarks/construction.py [MODEL.onnx ...]

Each way times all layers of a model while the whole model is timed before and after, so that both see the same
machine. The table of docs/adr/0005 is what this prints; by default for the nine light models.
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

from costmodel.cache import lower_cached
from costmodel.decomposition import Decomposition, decompose
from costmodel.groups import read_bytes
from costmodel.home import find_home
from costmodel.host import probe_host
from costmodel.lock import measuring_lock
from costmodel.measurement import Protocol, pinned, reference_sequence, timed_us
from costmodel.model import Model, read_model
from costmodel.overhead import LONG, SHORT, call_overhead_us, tiny_chain
from costmodel.roundrobin import Entry, Sweep, take_turns
from costmodel.runtimes import Runner, RuntimeSettings
from costmodel.runtimes.ort import OnnxRuntime
from costmodel.runtimes.ort_session import SessionRunner, new_session, session_options
from costmodel.sequence import LayerSequence, SequenceLayer, Value
from costmodel.synthesis import model_inputs
from costmodel.training.corpus import corpus_models

SETTINGS = RuntimeSettings()
PROTOCOL = Protocol(passes=12, most_passes=12)
COPIES = 4
PROBES = 8
# Some layers in a row, quick and with small tensors, that also run in one call.
NEIGHBOURS, NEIGHBOURHOODS, QUICK_US, SMALL_BYTES = 4, 12, 250.0, 256 << 10
STATISTICS: dict[str, Callable[[Sequence[float]], float]] = {
    "median": statistics.median,
    "quantile 0.2": lambda times: float(np.quantile(times, 0.2)),
    "minimum": min,
    "trimmed mean 20%": lambda times: float(np.mean(np.sort(times)[len(times) // 5 : len(times) - len(times) // 5])),
}


class Bare:
    """A runner that is not fed before it runs."""

    def __init__(self, runner: Runner) -> None:
        self.run = runner.run

    def feed(self) -> None:
        """Leave the inputs where they are."""


class Subject:
    """One model, its layers and what is open of it."""

    def __init__(self, runtime: OnnxRuntime, model: Model, cut: Decomposition) -> None:
        self.runtime, self.model, self.cut = runtime, model, cut
        self.whole = runtime.open_model(model, SETTINGS)
        self.sequences = list(cut.unique.values())
        self.runners = [runtime.open_sequence(sequence, SETTINGS) for sequence in self.sequences]
        self.reference = runtime.open_sequence(reference_sequence(), SETTINGS)
        self.empty = runtime.open_sequence(tiny_chain(1), SETTINGS)
        footprint = sum(read_bytes(piece.sequence) for piece in cut.pieces)
        own = sum(map(read_bytes, self.sequences))
        self.caches = 2 * (probe_host().l3_bytes or 32 << 20)
        self.missing_bytes = max(0, min(footprint, self.caches) - own)

    def total_us(self, by_signature: dict[str, float]) -> float:
        """Sum over the layers of the model."""
        return sum(by_signature[piece.sequence.signature] for piece in self.cut.pieces)

    def whole_us(self) -> list[float]:
        """A few runs, back to back."""
        self.whole.run()
        return [clock(self.whole) for _ in range(5)]


def joined(sequences: Sequence[LayerSequence]) -> LayerSequence:
    """Sequences side by side in one network, none reading from another."""
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
    """Positions of sequences that are to be run in one call, too: quick and small ones, from all over a model."""
    fit = []
    for start in range(0, len(sequences) - NEIGHBOURS + 1, NEIGHBOURS):
        positions = range(start, start + NEIGHBOURS)
        values = (value for p in positions for value in sequences[p].values if value.role != "constant")
        quick = sum(latencies_us[p] for p in positions) <= QUICK_US
        if quick and all(value.type.nbytes <= SMALL_BYTES for value in values):
            fit.append(positions)
    return fit[:: max(1, -(-len(fit) // NEIGHBOURHOODS))]


def saved_us(together: Sequence[tuple[list[Entry], Entry]]) -> float:
    """What is saved by running neighbours in one call, for each call but one: a call costs that at least."""
    median = statistics.median
    saved = [
        (sum(median(entry.times_us) for entry in alone) - median(one.times_us)) / (len(alone) - 1)
        for alone, one in together
    ]
    return median(saved) if saved else 0.0


def clock(runner: Runner) -> float:
    """Time of one run, in microseconds."""
    return timed_us(runner, time.perf_counter_ns)


def back_to_back(subject: Subject, *, less_call: bool = False) -> float:
    """Each layer over and over: what a simple benchmark does."""
    taken = {}
    for sequence, runner in zip(subject.sequences, subject.runners, strict=True):
        once = min(clock(runner), clock(runner))
        taken[sequence.signature] = statistics.median(clock(runner) for _ in range(max(5, min(40, int(10_000 / once)))))
    clock(subject.empty)
    call = statistics.median(clock(subject.empty) for _ in range(50)) if less_call else 0.0
    return subject.total_us({signature: time_us - call for signature, time_us in taken.items()})


def evicted(subject: Subject) -> float:
    """Every cache is filled with other things before each run; the call is taken off as it is then."""
    sweep = Sweep(subject.caches)

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
    """Several copies of a layer in one call, each with weights of its own; the call is taken off once."""
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
    """Layers take turns; everything that can be said of the same times."""

    def __init__(self, subject: Subject, *, sweeping: bool = True, feeding: bool = True) -> None:
        wrap: Callable[[Runner], Runner] = (lambda runner: runner) if feeding else Bare
        self.subject = subject
        self.entries = [Entry(wrap(runner)) for runner in subject.runners]
        probes = [[Entry(subject.runtime.open_sequence(tiny_chain(n), SETTINGS)) for _ in range(PROBES)]
                  for n in (SHORT, LONG)]  # fmt: skip
        roughly = [min(clock(runner), clock(runner)) for runner in subject.runners]
        self.together = [
            (
                [self.entries[p] for p in positions],
                Entry(wrap(subject.runtime.open_sequence(joined([subject.sequences[p] for p in positions]), SETTINGS))),
            )
            for positions in neighbourhoods(subject.sequences, roughly)
        ]
        spread = [*(probe for pair in zip(*probes, strict=True) for probe in pair), *(one for _, one in self.together)]
        sweep = Sweep(subject.missing_bytes if sweeping else 0)
        take_turns(self.entries, spread, subject.reference, sweep, PROTOCOL, time.perf_counter_ns)
        self.call_us = call_overhead_us(*([t for probe in kind for t in probe.times_us] for kind in probes))
        self.saved_us = min(self.call_us, saved_us(self.together))

    def total_us(self, call_us: float, statistic: Callable[[Sequence[float]], float] = statistics.median) -> float:
        """Sum over the layers of the model, what a call costs taken off each."""
        return self.subject.total_us({
            sequence.signature: max(0.1, statistic(entry.times_us) - call_us)
            for sequence, entry in zip(self.subject.sequences, self.entries, strict=True)
        })  # fmt: skip


def profiled(subject: Subject) -> float:
    """What onnxruntime's own profiler says of each layer in the running model."""
    options = session_options(SETTINGS)
    options.enable_profiling = True
    with TemporaryDirectory() as folder:
        options.profile_file_prefix = str(Path(folder) / "profile")
        session = new_session(str(subject.model.path), options)
        runner = SessionRunner(session, model_inputs(subject.model.inputs))
        for _ in range(8):
            runner.run()
        events = json.loads(Path(session.end_profiling()).read_text())
    by_name: dict[str, list[float]] = {}
    for event in events:
        if event["name"].endswith("_kernel_time"):
            by_name.setdefault(event["name"], []).append(event["dur"])
    return sum(statistics.median(times[2:]) for times in by_name.values())


def ways(subject: Subject) -> dict[str, tuple[float, float]]:
    """For each way (sum of layers / whole model, seconds that it took)."""
    found: dict[str, tuple[float, float]] = {}

    def told(way: str, sums: Callable[[], float]) -> None:
        before = subject.whole_us()
        begin = time.perf_counter()
        total = sums()
        seconds = time.perf_counter() - begin
        found[way] = total / statistics.median(before + subject.whole_us()), seconds

    told("back to back", lambda: back_to_back(subject))
    told("back to back, less an empty call", lambda: back_to_back(subject, less_call=True))
    told("caches emptied before each run, less an empty call", lambda: evicted(subject))
    told(f"{COPIES} copies in a call, less an empty call", lambda: copies(subject))
    told("the profiler in the running model", lambda: profiled(subject))
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
    """Time every model in every way and print the table."""
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
