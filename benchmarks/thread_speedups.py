"""Shows what more threads make of the latencies of models, and how well that follows from their layers.

    python benchmarks/thread_speedups.py data/*zen[45]*.parquet data/intel*.parquet

The last line has the two constants of `costmodel/estimate/thread_speedup.py` that are fitted; settings and machines are
priced by them from systems with other numbers of threads.
"""

import argparse
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from scipy.optimize import minimize

from costmodel.estimate.thread_speedup import ThreadDivision, threads_factor, undivided_share
from costmodel.features.thread_division import divide_work
from costmodel.ir.sequence import LayerSequence
from costmodel.store.parquet import read_results
from costmodel.systems.system import System

QUANTILES = (0.05, 0.95)


@dataclass
class Measured:
    """What files tell of one kind of processor, number of CPUs and number of threads.

    Attributes:
        system: System of one of the files.
        latencies_us: Latency of each sequence in microseconds by signature, the median of several.
        models: For each model by its name, the signature of the whole and those of its layers.
        sequences: Layer sequences by signature.
    """

    system: System
    latencies_us: dict[str, float] = field(default_factory=dict)
    models: dict[str, tuple[str, tuple[str, ...]]] = field(default_factory=dict)
    sequences: dict[str, LayerSequence] = field(default_factory=dict)


@dataclass(frozen=True)
class Threaded:
    """A model that was measured with one thread and with several.

    Attributes:
        costs_us: Costs of its layers with one thread in microseconds, shape [num_layers].
        division: How the threads divide the layers.
        found: Ratio of the latency with these threads to that with one.
    """

    costs_us: np.ndarray
    division: ThreadDivision
    found: float

    @property
    def expected(self) -> float:
        """The ratio that follows from the layers."""
        one = ThreadDivision.even(1, len(self.costs_us))
        return float(self.division.costs_us(self.costs_us, one).sum() / self.costs_us.sum())

    def expected_by(self, efficiency: float, exponent: float) -> float:
        """Returns the ratio that follows from the layers with other constants."""
        power = efficiency * math.log2(self.division.threads) ** (exponent - 1)
        costs_us = self.costs_us / self.division.speedups**power + self.division.waits_us
        return float(costs_us.sum() / self.costs_us.sum())


Key = tuple[str, str, int]
Models = Mapping[str, Threaded]


def read_files(paths: Iterable[Path]) -> dict[Key, Measured]:
    """Returns what files tell, by kind of processor with runtime, number of CPUs and threads.

    Only systems with the usual optimisations count.
    """
    found: dict[Key, Measured] = {}
    times: dict[Key, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for path in paths:
        results = read_results(path)
        settings, host = results.system.settings, results.system.host
        if settings.level != "all" or settings.inter_threads != 1 or host is None:
            continue
        key = f"{host.microarchitecture} {results.system.runtime}", f"{host.effective_cpus}c", settings.threads
        measured = found.setdefault(key, Measured(results.system))
        for measurement in results.measurements:
            times[key][measurement.signature].append(measurement.latency_us)
        layers = {segment.signature for model in results.models for segment in model.segments}
        measured.sequences |= {one: sequence for one, sequence in results.sequences.items() if one in layers}
        measured.models |= {
            model.name: (model.whole, tuple(segment.signature for segment in model.segments))
            for model in results.models
            if model.granularity == 1
        }
    for key, of_key in times.items():
        found[key].latencies_us = {signature: float(np.median(values)) for signature, values in of_key.items()}
    return found


def threaded_models(measured: Mapping[Key, Measured]) -> dict[Key, Models]:
    """Returns the models of which every layer and the whole were measured with one thread, and the whole with more."""
    found = {}
    for (kind, cpus, threads), many in sorted(measured.items()):
        one = measured.get((kind, cpus, 1))
        if threads == 1 or one is None:
            continue
        models = {name: model for name, model in many.models.items() if _is_measured(model, one, many)}
        signatures = sorted({signature for _, layers in models.values() for signature in layers})
        sequences = {**one.sequences, **many.sequences}
        division = divide_work([sequences[signature] for signature in signatures], many.system, threads)
        place = {signature: i for i, signature in enumerate(signatures)}
        found[kind, cpus, threads] = {
            name: Threaded(
                np.array([one.latencies_us[signature] for signature in layers]),
                ThreadDivision(threads, division.speedups[rows], division.waits_us[rows]),
                many.latencies_us[whole] / one.latencies_us[whole],
            )
            for name, (whole, layers) in models.items()
            for rows in [[place[signature] for signature in layers]]
        }
    return {key: models for key, models in found.items() if models}


def _is_measured(model: tuple[str, tuple[str, ...]], one: Measured, many: Measured) -> bool:
    whole, layers = model
    return bool(layers) and whole in many.latencies_us and {whole, *layers} <= one.latencies_us.keys()


def pairs_of(models: Mapping[Key, Models]) -> Iterator[tuple[int, int, list[tuple[Threaded, Threaded]]]]:
    """Yields pairs of numbers of threads, and the models that were measured with both on one kind of processor."""
    for (kind, _, known), of_known in models.items():
        for (other_kind, _, threads), of_other in models.items():
            common = of_known.keys() & of_other.keys()
            if kind == other_kind and known != threads and common:
                yield known, threads, [(of_known[name], of_other[name]) for name in common]


def fitted_constants(models: Iterable[Models]) -> np.ndarray:
    """Returns efficiency and exponent with which latencies are least wrong on average, each number counting alike."""
    by_threads: dict[int, list[Models]] = defaultdict(list)
    for of_key in models:
        by_threads[next(iter(of_key.values())).division.threads].append(of_key)

    def error(constants: np.ndarray) -> float:
        return float(np.mean([
            np.mean([abs(one.expected_by(*constants) / one.found - 1) for of_key in group for one in of_key.values()])
            for group in by_threads.values()
        ]))  # fmt: skip

    found: np.ndarray = minimize(error, (0.9, 0.7), method="Nelder-Mead", options={"xatol": 1e-3, "fatol": 1e-4}).x
    return found


def _errors(name: str, found: Iterable[float], expected: Iterable[float]) -> None:
    """Prints how far expected ratios of latencies are off those found."""
    logs = np.log(np.array([*found]) / np.array([*expected]))
    low, high = np.quantile(logs, QUANTILES)
    print(
        f"{name}: {np.abs(np.expm1(-logs)).mean():5.1%} off, {len(logs)} models; "
        f"latency found over expected {math.exp(low):.2f} to {math.exp(high):.2f}, half-width {(high - low) / 2:.2f}"
    )


def main() -> None:
    """Prints a line for each kind of processor and number of threads, and the constants of ONNX Runtime."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("files", type=Path, nargs="+", help="files of `costmodel export --with-models`")
    models = threaded_models(read_files(parser.parse_args().files))
    for (kind, cpus, threads), of_key in models.items():
        speedups = np.array([1 / one.found for one in of_key.values()])
        low, high = np.quantile(speedups, QUANTILES)
        print(
            f"{kind:28}{cpus:>4}{threads:3} threads{len(speedups):5} models  "
            f"{np.exp(np.log(speedups).mean()):.2f} times as quick ({low:.2f} to {high:.2f})"
        )
    print("\nBy the layers of a model, from their costs with one thread:")
    for (kind, cpus, threads), of_key in models.items():
        found = [one.found for one in of_key.values()]
        _errors(f"{kind:28}{cpus:>4}{threads:3} threads", found, [one.expected for one in of_key.values()])
    models = {key: of_key for key, of_key in models.items() if key[0].endswith(" onnxruntime")}
    if not models:
        return
    print("\nAlso by the model's latency with another number of threads:")
    for known, threads, both in pairs_of(models):
        expected = [
            threads_factor(other.expected, undivided_share(one.found, one.expected, beyond=threads > known))
            for one, other in both
        ]
        _errors(f"{threads:3} threads, {known:2} known", [other.found for _, other in both], expected)
    efficiency, exponent = fitted_constants(models.values())
    print(f"\nTwo threads: speedups of layers to the power of {efficiency:.2f}; power of the doublings {exponent:.2f}")


if __name__ == "__main__":
    main()
