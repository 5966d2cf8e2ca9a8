"""Plants a slowdown of one operator in one of two equal releases, and counts what `compare-runtimes` marks.

    python benchmarks/runtime_regressions.py [--runs N] [--factor F] [--operators A,B] [--rounds N] [--budget SECONDS]
        [--folder DIR] MODELS

Both releases are the ONNX Runtime that is installed here; in one of them every layer of one operator waits after it has
run, until it has taken the factor times as long. Each run is a whole comparison with a results store of its own, in the
folder; the runs take the operators in turn. Prints for each run whether the operator was marked, and what was marked
besides although it did not change: other operators, their layers, whole models (which do not wait), and sums of models
that do not have the operator. With --factor 1 nothing may be marked. If the budget is spent, the same command goes on.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from costmodel.interruption import signals_raised
from costmodel.ir.graph import LayerGraph
from costmodel.ir.sequence import LayerSequence
from costmodel.jobs.runtime_comparison import Change, RuntimeComparison, compare_runtimes
from costmodel.jobs.runtime_comparison.release_process import ReleaseProcess, serve
from costmodel.onnx_io.model import Model
from costmodel.runtimes.base import Runner, Runtime, RuntimeSettings, get_runtime
from costmodel.store.store import Store


@dataclass
class Waiting:
    """A runner that takes `factor` times as long as another one, which it runs."""

    runner: Runner
    factor: float

    def run(self) -> None:
        """Runs the other runner, and waits on the CPU."""
        begin_ns = time.perf_counter_ns()
        self.runner.run()
        end_ns = begin_ns + self.factor * (time.perf_counter_ns() - begin_ns)
        while time.perf_counter_ns() < end_ns:
            pass

    def feed(self) -> None:
        """Rewrites the inputs."""
        self.runner.feed()


class Slowed:
    """A runtime in which the layers of one operator take `factor` times as long, under a version of its own."""

    def __init__(self, runtime: Runtime, label: str, operator: str, factor: float) -> None:
        self.name, self.version = runtime.name, f"{runtime.version}.{label}"
        self._runtime, self._operator, self._factor = runtime, operator, factor

    def lower(self, model: Model, level: str) -> LayerGraph:
        """Returns the layers of a model."""
        return self._runtime.lower(model, level)

    def open_sequence(self, sequence: LayerSequence, settings: RuntimeSettings) -> Runner:
        """Opens a layer, to be timed as usual or slowed."""
        runner = self._runtime.open_sequence(sequence, settings)
        return Waiting(runner, self._factor) if sequence.kind == self._operator else runner

    def open_model(self, model: Model, settings: RuntimeSettings) -> Runner:
        """Opens a whole model, which is not slowed."""
        return self._runtime.open_model(model, settings)

    def fingerprint(self) -> str:
        """Returns what lowering depends on."""
        return self._runtime.fingerprint()


def started(label: str, operator: str, factor: float) -> ReleaseProcess:
    """Starts one of the two releases."""
    return ReleaseProcess([sys.executable, __file__, "serve", label, operator, str(factor)], get_runtime().name)


def compared(store: Store, options: argparse.Namespace, operator: str, budget_s: float | None) -> RuntimeComparison:
    """Does one run, or the rest of it."""
    starts = partial(started, "0", operator, 1.0), partial(started, "1", operator, options.factor)
    return compare_runtimes(
        store, starts, options.models, options.folder / "cache", rounds=options.rounds, budget_s=budget_s
    )


def is_true(change: Change, operator: str, report: RuntimeComparison) -> bool:
    """Returns whether something that is marked contains the planted operator."""
    if change.kind in ("operator", "layer"):
        return change.operator == operator
    having = {one.name.partition(": ")[0] for one in report.changes if one.kind == "layer" and one.operator == operator}
    return change.kind == "sum" and change.name in having


def copy_systems(source: Path, store: Store) -> None:
    """Copies what an earlier run has learnt of this host, so that it is not measured in each run."""
    if source.exists() and not store.systems():
        for system in Store(f"sqlite:///{source}").systems().values():
            store.put_system(system)


def main(arguments: Sequence[str]) -> None:
    """Does the runs, and prints what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--factor", type=float, default=1.3)
    parser.add_argument("--operators", default="Conv,MaxPool,Concat")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--budget", type=float, help="seconds after which no further pair of turns is measured")
    parser.add_argument("--folder", type=Path, default=Path("regressions"))
    options = parser.parse_args(arguments)
    options.folder.mkdir(parents=True, exist_ok=True)
    operators = options.operators.split(",")
    begin_s = time.monotonic()
    found, false, done = 0, 0, 0
    for run in range(options.runs):
        operator = operators[run % len(operators)]
        left_s = None if options.budget is None else options.budget - (time.monotonic() - begin_s)
        if left_s is not None and left_s <= 0:
            break
        store = Store(f"sqlite:///{options.folder / f'run-{run}.db'}")
        copy_systems(options.folder / "run-0.db", store)
        report = compared(store, options, operator, left_s)
        store.close()
        if report.left:
            break
        done += 1
        marked = [change for change in report.changes if change.changed]
        wrong = [change for change in marked if options.factor == 1 or not is_true(change, operator, report)]
        (planted,) = (one for one in report.changes if one.kind == "operator" and one.name == operator)
        found += planted.changed
        false += len(wrong)
        low, high = planted.interval or (0.0, 0.0)
        print(
            f"run {run}: {operator} {planted.ratio:.3f} ({low:.3f} to {high:.3f}), "
            f"{'marked' if planted.changed else 'not marked'}; {len(wrong)} false marks of {len(report.changes)}",
            flush=True,
        )
        for change in wrong:
            print(f"    {change.kind} {change.name} {change.ratio:.3f} {change.interval}")
    print(f"{done} runs: the operator was marked in {found}, and {false} other marks were made")
    if done < options.runs:
        print("run the same command again to go on")


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        label, operator, factor = sys.argv[2:5]
        serve(Slowed(get_runtime(), label, operator, float(factor)))
    else:
        with signals_raised():
            main(sys.argv[1:])
