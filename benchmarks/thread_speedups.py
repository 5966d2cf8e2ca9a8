"""Shows how many times as fast whole models run with several threads as with one, from measurements of both.

    python benchmarks/thread_speedups.py data/*zen[45]*.parquet data/intel*.parquet

`costmodel/estimate/thread_speedup.py` holds the constants that the last lines print, by which a setting is priced
from systems with other numbers of threads.
"""

import argparse
import math
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from scipy.optimize import minimize_scalar

from costmodel.store.parquet import read_results

QUANTILES = (0.05, 0.95)

Speedups = Mapping[str, float]


def model_latencies_us(paths: list[Path]) -> dict[tuple[str, str, int], dict[str, float]]:
    """Returns the latency of each model in microseconds, by kind of processor with runtime, number of CPUs and threads.

    Only systems with the usual optimisations count. Of a model that was measured several times, it is the median.
    """
    found: dict[tuple[str, str, int], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for path in paths:
        results = read_results(path)
        settings, host = results.system.settings, results.system.host
        if settings.level != "all" or settings.inter_threads != 1 or host is None:
            continue
        whole = {model.whole: model.name for model in results.models}
        kind = f"{host.microarchitecture} {results.system.runtime}"
        for measurement in results.measurements:
            if measurement.signature in whole:
                of_model = found[kind, f"{host.effective_cpus}c", settings.threads][whole[measurement.signature]]
                of_model.append(measurement.latency_us)
    return {key: {name: float(np.median(us)) for name, us in models.items()} for key, models in found.items()}


def speedups_of(
    latencies_us: Mapping[tuple[str, str, int], Mapping[str, float]],
) -> dict[tuple[str, str, int], Speedups]:
    """Returns how many times as fast each model is as with one thread, by kind of processor, CPUs and threads."""
    found: dict[tuple[str, str, int], Speedups] = {}
    for (kind, cpus, threads), several in sorted(latencies_us.items()):
        one = latencies_us.get((kind, cpus, 1), {})
        both = {name: one[name] / several[name] for name in sorted(one.keys() & several.keys())}
        if threads > 1 and both:
            found[kind, cpus, threads] = both
    return found


def pairs_of(speedups: Mapping[tuple[str, str, int], Speedups]) -> dict[int, np.ndarray]:
    """Returns log speedups of models with two threads and with more, by the larger number, shape [num_models, 2].

    The two are of one kind of processor, not necessarily of hosts with equally many CPUs.
    """
    found: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for (kind, _, threads), of_many in speedups.items():
        for (other_kind, _, two), of_two in speedups.items():
            if threads > two == 2 and kind == other_kind:
                found[threads] += [(of_two[name], of_many[name]) for name in sorted(of_two.keys() & of_many.keys())]
    return {threads: np.log(values) for threads, values in found.items() if values}


def fitted_exponent(pairs: Mapping[int, np.ndarray]) -> float:
    """Returns the power of the doublings with which the logarithm of a speedup grows.

    It is the one by which the latencies with more threads are least wrong on average, each number of threads counting
    alike.
    """

    def error(exponent: float) -> float:
        return float(np.mean([
            np.abs(np.expm1(logs[:, 1] - math.log2(threads) ** exponent * logs[:, 0])).mean()
            for threads, logs in pairs.items()
        ]))  # fmt: skip

    return float(minimize_scalar(error, bounds=(0.0, 1.0), method="bounded").x)


def _errors(name: str, errors: np.ndarray) -> None:
    """Prints how far latencies are off; `errors` are log(speedup found / speedup expected) of models."""
    low, high = np.quantile(errors, QUANTILES)
    print(
        f"{name}: latencies {np.abs(np.expm1(errors)).mean():.1%} off, {len(errors)} models; "
        f"speedup found over expected {math.exp(low):.2f} to {math.exp(high):.2f}, half-width {(high - low) / 2:.2f}"
    )


def main() -> None:
    """Prints a line for each kind of processor and number of threads, and the constants of ONNX Runtime."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("files", type=Path, nargs="+", help="files of `costmodel export --with-models`")
    speedups = speedups_of(model_latencies_us(parser.parse_args().files))
    for (kind, cpus, threads), of_kind in speedups.items():
        values = np.array(list(of_kind.values()))
        low, high = np.quantile(values, QUANTILES)
        print(
            f"{kind:28}{cpus:>4}{threads:3} threads{len(values):5} models  "
            f"{np.exp(np.log(values).mean()):.2f} times ({low:.2f} to {high:.2f})"
        )
    speedups = {key: of_kind for key, of_kind in speedups.items() if key[0].endswith(" onnxruntime")}
    pairs = pairs_of(speedups)
    if not pairs:
        return
    exponent = fitted_exponent(pairs)
    print(f"\nThe logarithm of a speedup grows with the doublings to the power of {exponent:.2f}.")
    each = [
        np.log(list(of_kind.values())) / math.log2(threads) ** exponent for (_, _, threads), of_kind in speedups.items()
    ]
    typical = float(np.mean([logs.mean() for logs in each]))
    low, high = np.transpose([np.quantile(logs, QUANTILES) for logs in each])
    print(
        f"Two threads: {math.exp(typical):.2f} times, the mean of all lines; "
        f"{math.exp(min(low)):.2f} to {math.exp(max(high)):.2f} in each line"
    )
    for threads, logs in pairs.items():
        steps = math.log2(threads) ** exponent
        _errors(f"{threads} threads by a model's own speedup with two", logs[:, 1] - steps * logs[:, 0])
        _errors(f"{threads} threads by the typical speedup", logs[:, 1] - steps * typical)
        _errors(f"2 threads by a model's own speedup with {threads}", logs[:, 0] - logs[:, 1] / steps)


if __name__ == "__main__":
    main()
