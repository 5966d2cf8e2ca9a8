"""Times with a stopwatch how long it takes to know the latencies of a corpus on a new system, by models and by layers.

    python benchmarks/wall_clock.py CORPUS [--models N] [--error E] [--state FOLDER] [--minutes M] [--sessions N]

By models: each one is loaded and run until the standard error of its latency is 1%. By layers: each unique layer is
loaded and run once untimed and once timed, as `costmodel bench --quick` does. Both are sessions of `costmodel bench`,
with its waits for a quiet machine, and take turns: layers, models, layers, models. The error of a session is estimated
from the differences between two sessions, that of the models within a session also from its passes.

With an error, such as 0.01, only the layers are measured without which the expected error of the models would exceed
it, as `costmodel bench --error` does, and the regressor of this installation for this system, which must not have been
trained on the corpus, predicts the others: the latency by layers is then the estimate of `costmodel predict`.

After M minutes the command stops between two models; the same command, with the same FOLDER, goes on there, and prints
the table once all sessions are complete. Not timed are what is done once for a system (its capabilities and quiet
times, ten seconds) and what is done once for all systems (cutting the models; a benchmark suite brings the layers to
another machine without the models).
"""

import argparse
import itertools
import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from costmodel.jobs.bench import layers_worth_measuring, with_chosen
from costmodel.jobs.benchmark_session import BenchmarkSession
from costmodel.jobs.decomposed_models import DecomposedModel, decompose_models, measurement_groups
from costmodel.measure.groups import Group
from costmodel.measure.precision import relative_error
from costmodel.measure.protocol import QUICK, Protocol
from costmodel.paths import find_home
from costmodel.runtimes.base import RuntimeSettings, get_runtime
from costmodel.serving.loaded_regressor import Regression
from costmodel.serving.predictor import Predictor
from costmodel.store.store import Store
from costmodel.systems.system import System, this_system
from costmodel.training.corpus import corpus_models

TARGET = 0.01
PROTOCOLS = {
    "layers": QUICK,
    "models": Protocol(passes=2, min_passes=2, max_passes=60, agreement=TARGET, max_group_us=120_000_000.0),
}


class Stopwatch:
    """The sessions of a benchmark, of which each process may time a part.

    Attributes:
        lines: For each model that a session has done: kind and number of the session, name of the model, seconds,
            seconds of waiting, number of networks measured, and names of those that failed.
    """

    def __init__(self, folder: Path, system: System, regression: Regression | None = None) -> None:
        """Opens the state of a benchmark in a folder.

        Args:
            folder: Folder of the state.
            system: This host.
            regression: Regressor of the layers that are not measured; None if all are.
        """
        self._folder, self._system, self._regression = folder, system, regression
        self._file = folder / "times.jsonl"
        self.lines = [json.loads(line) for line in self._file.read_text().splitlines()] if self._file.exists() else []

    def store(self, kind: str, number: int) -> Store:
        """Returns the store with the measurements of a session."""
        return Store(f"sqlite:///{self._folder / f'{kind}-{number}.db'}")

    def run(self, kind: str, number: int, groups: Sequence[Group], deadline_s: float) -> bool:
        """Goes on with a session until it is complete or the time is over; returns whether it is complete."""
        done = {line["model"] for line in self.lines if (line["kind"], line["session"]) == (kind, number)}
        left = [group for group in groups if group.label not in done]
        if not left:
            return True
        store = self.store(kind, number)
        with BenchmarkSession(store, self._system, get_runtime(), protocol=PROTOCOLS[kind]) as session:
            self._system = session.system  # other sessions need not measure the capabilities again
            for group in left:
                if time.monotonic() > deadline_s:
                    return False
                begin = time.perf_counter()
                report = session.run([group])
                line = {
                    "kind": kind, "session": number, "model": group.label, "seconds": time.perf_counter() - begin,
                    "waiting": report.waiting_seconds, "measured": report.measured, "failed": list(report.failed),
                }  # fmt: skip
                self.lines.append(line)
                with self._file.open("a") as file:
                    file.write(json.dumps(line) + "\n")
        return True

    def total(self, kind: str, number: int, what: str) -> float:
        """Returns the sum of a number over the models of a session."""
        return float(sum(line[what] for line in self._of(kind, number)))

    def model_errors(self, number: int) -> list[float]:
        """Returns the standard errors of the models' latencies within a session, as its passes show them."""
        measurements = self.store("models", number).measurements(self._system.name, repeats=False)
        return [relative_error(measurement.pass_times_us) for measurement in measurements]

    def _of(self, kind: str, number: int) -> Iterator[dict[str, Any]]:
        return (line for line in self.lines if (line["kind"], line["session"]) == (kind, number))

    def latencies_us(self, kind: str, number: int, items: Sequence[DecomposedModel]) -> np.ndarray:
        """Returns the latency of each model in microseconds: measured, or the sum over its measured layers."""
        latency_us = self.store(kind, number).latencies_us(self._system.name)
        if kind == "models":
            return np.array([latency_us.get(item.whole.signature, np.nan) for item in items])
        if self._regression is not None:
            predictor = Predictor(self.store(kind, number), self._system, self._regression, settled=True)
            return np.array([one.latency_us for one in predictor.estimate_all([item.decomposition for item in items])])
        return np.array(
            [sum(latency_us.get(s.sequence.signature, np.nan) for s in item.decomposition.segments) for item in items]
        )


def deviation(ratios: np.ndarray) -> float:
    """Standard deviation of log(ratio), from the median absolute deviation around 0."""
    return float(1.4826 * np.nanmedian(np.abs(np.log(ratios))))


def report(watch: Stopwatch, items: Sequence[DecomposedModel], sessions: int) -> Iterator[str]:
    """Yields the lines of the table."""
    yield f"{'':8}{'seconds':>9}{'no waits':>10}{'error':>8}"
    seconds, quick = {}, {}
    for kind in PROTOCOLS:
        numbers = range(sessions)
        seconds[kind] = [watch.total(kind, number, "seconds") for number in numbers]
        quick[kind] = [
            watch.total(kind, number, "seconds") - watch.total(kind, number, "waiting") for number in numbers
        ]
        found = [watch.latencies_us(kind, number, items) for number in numbers]
        pairs = [deviation(one / other) / 2**0.5 for one, other in itertools.combinations(found, 2)]
        error = f"{np.mean(pairs):.2%}" if pairs else ""
        yield f"{kind:8}{np.mean(seconds[kind]):9.1f}{np.mean(quick[kind]):10.1f}{error:>8}"
    ratios = np.array(seconds["models"]) / seconds["layers"]
    each = ", ".join(f"{ratio:.1f}" for ratio in ratios)
    yield f"ratio {np.sum(seconds['models']) / np.sum(seconds['layers']):.1f} (each session: {each})"
    yield f"ratio without waits {np.sum(quick['models']) / np.sum(quick['layers']):.1f}"
    models, layers = (
        np.mean([np.log(watch.latencies_us(kind, number, items)) for number in range(sessions)], axis=0)
        for kind in ("models", "layers")
    )
    off = np.exp(layers - models)[np.isfinite(layers - models)]
    yield (
        f"sum of layers / latency of model: geometric mean {np.exp(np.log(off).mean()):.3f}, "
        f"{np.mean(np.abs(off - 1) <= 0.05):.0%} within 5%, {np.mean(np.abs(off - 1) <= 0.1):.0%} within 10%"
    )
    within = np.median([error for number in range(sessions) for error in watch.model_errors(number)])
    yield f"error: typical standard deviation between sessions; standard error of models within a session {within:.2%}"


def main() -> None:
    """Times the sessions that are not complete, and prints the table once all are."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("corpus")
    parser.add_argument("--models", type=int, default=1000, help="number of models, the first ones by name")
    parser.add_argument("--error", type=float, help="expected error of the models for which layers are measured")
    parser.add_argument("--state", type=Path, help="folder in which the benchmark goes on; a new one by default")
    parser.add_argument("--minutes", type=float, default=1e9, help="minutes after which to stop between two models")
    parser.add_argument("--sessions", type=int, default=2, help="number of sessions of each kind")
    given = parser.parse_args()
    begin = time.monotonic()
    folder = given.state or Path(tempfile.mkdtemp(prefix="costmodel-wall-clock-"))
    folder.mkdir(parents=True, exist_ok=True)
    runtime, settings = get_runtime(), RuntimeSettings()
    system = this_system(runtime, settings)
    items = decompose_models(corpus_models(given.corpus)[: given.models], runtime, settings.level, folder / "cache")
    cutting_s = time.monotonic() - begin
    layers = [replace(group, whole=None) for item in items for group in measurement_groups(item, (1,))]
    regression, choice = None, None
    begin_choice = time.perf_counter()
    if given.error is not None:
        home = find_home()
        predictor = Predictor.load(Store(home.store_url), home.bundles_of(None), system.name)
        regression, system = predictor.regression, predictor.system
        choice = layers_worth_measuring(items, predictor, given.error)
        layers = with_chosen(layers, choice.signatures)
    choosing_s = time.perf_counter() - begin_choice
    groups = {
        "layers": layers,
        "models": [Group(item.model.name, (), item.whole, item.model, item.footprint_bytes) for item in items],
    }
    watch = Stopwatch(folder, system, regression)
    for number, kind in itertools.product(range(given.sessions), PROTOCOLS):
        if not watch.run(kind, number, groups[kind], begin + 60 * given.minutes):
            print(f"{len(watch.lines)} of {2 * given.sessions * len(items)} done: run it again with --state {folder}")
            return
    unique = int(watch.total("layers", 0, "measured"))
    print(f"{system.name}, {given.corpus}: {len(items)} models, {unique} unique layers, cutting {cutting_s:.1f} s")
    if choice is not None:
        print(f"expected error of the models: {choice}; choosing {choosing_s:.1f} s")
    failed = {name for line in watch.lines for name in line["failed"]}
    print(
        "\n".join(report(watch, items, given.sessions)) + ("\nfailed: " + ", ".join(sorted(failed)) if failed else "")
    )


if __name__ == "__main__":
    main()
