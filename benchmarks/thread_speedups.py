"""Shows how many times as fast whole models run with several threads as with one, from measurements of both.

    python benchmarks/thread_speedups.py data/*.parquet

`costmodel/estimate/thread_speedup.py` holds the constants that the last lines print, by which a setting is priced
from systems with other numbers of threads.
"""

import argparse
import math
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import numpy as np

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


def speedups_of(latencies_us: Mapping[tuple[str, str, int], Mapping[str, float]]) -> dict[tuple[str, int], Speedups]:
    """Returns how many times as fast each model is as with one thread, by kind of processor and number of threads."""
    found: dict[tuple[str, int], Speedups] = {}
    for (kind, cpus, threads), several in sorted(latencies_us.items()):
        one = latencies_us.get((kind, cpus, 1), {})
        both = {name: one[name] / several[name] for name in sorted(one.keys() & several.keys())}
        if threads > 1 and both:
            found[kind, threads] = both
    return found


def fitted_exponent(pairs: Mapping[int, np.ndarray]) -> float:
    """Returns the power of the doublings with which the logarithm of a speedup grows.

    Args:
        pairs: By number of threads, log speedups of models with two threads and with that many, shape [num_models, 2].
    """
    found = []
    for threads, logs in pairs.items():
        slope = (logs[:, 0] * logs[:, 1]).sum() / (logs[:, 0] ** 2).sum()
        found.append(math.log(slope) / math.log(math.log2(threads)))
    return float(np.mean(found))


def main() -> None:
    """Prints a line for each kind of processor and number of threads, and the constants of ONNX Runtime."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("files", type=Path, nargs="+", help="files of `costmodel export --with-models`")
    speedups = speedups_of(model_latencies_us(parser.parse_args().files))
    for (kind, threads), of_kind in speedups.items():
        values = np.array(list(of_kind.values()))
        low, high = np.quantile(values, QUANTILES)
        print(
            f"{kind:28}{threads:3} threads{len(values):5} models  {np.exp(np.log(values).mean()):.2f} times "
            f"({low:.2f} to {high:.2f})"
        )
    speedups = {key: of_kind for key, of_kind in speedups.items() if key[0].endswith(" onnxruntime")}
    pairs = {
        threads: np.log([(two[name], of_kind[name]) for name in two.keys() & of_kind.keys()])
        for (kind, threads), of_kind in speedups.items()
        if threads > 2 and (two := speedups.get((kind, 2), {}))
    }
    if not pairs:
        return
    exponent = fitted_exponent(pairs)
    print(f"\nThe logarithm of a speedup grows with the doublings to the power of {exponent:.2f}.")
    each = [
        (np.log(list(of_kind.values())) / math.log2(threads) ** exponent, len(of_kind))
        for (_, threads), of_kind in speedups.items()
    ]
    logs, weights = np.concatenate([one for one, _ in each]), np.concatenate([[1 / n] * n for _, n in each])
    low, high = np.exp(np.quantile(logs, QUANTILES, weights=weights, method="inverted_cdf"))
    print(
        f"Two threads: {np.exp(np.average(logs, weights=weights)):.2f} times ({low:.2f} to {high:.2f}), by all lines."
    )
    for threads, of_both in pairs.items():
        errors = of_both[:, 1] - math.log2(threads) ** exponent * of_both[:, 0]
        low, high = np.exp(np.quantile(errors, QUANTILES))
        print(
            f"{threads} threads by a model's own speedup with two: {np.abs(np.expm1(-errors)).mean():.1%} mean error, "
            f"{len(errors)} models, found over expected {low:.2f} to {high:.2f}"
        )
        errors = of_both[:, 1] - (math.log2(threads) ** exponent) * np.average(logs, weights=weights)
        print(f"{threads} threads by the typical speedup: {np.abs(np.expm1(-errors)).mean():.1%} mean error")


if __name__ == "__main__":
    main()
