"""Shows how many times as fast whole models run with two threads as with one, from measurements of both.

    python benchmarks/thread_doubling.py data/*.parquet

`serving/tuning/nearest.py` holds the geometric mean and the bounds, by which a setting is priced from a system with
another number of threads.
"""

import argparse
from collections import defaultdict
from pathlib import Path

import numpy as np

from costmodel.store.parquet import read_results

QUANTILES = (0.05, 0.95)


def model_latencies_us(paths: list[Path]) -> dict[tuple[str, int], dict[str, float]]:
    """Returns the latency of each model in microseconds, by host with runtime, and number of threads.

    Only systems with the usual optimisations count. Of a model that was measured several times, it is the median.
    """
    found: dict[tuple[str, int], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for path in paths:
        results = read_results(path)
        settings = results.system.settings
        if settings.level != "all" or settings.inter_threads != 1 or results.system.host is None:
            continue
        whole = {model.whole: model.name for model in results.models}
        key = f"{results.system.host.microarchitecture} {results.system.runtime}", settings.threads
        for measurement in results.measurements:
            if measurement.signature in whole:
                found[key][whole[measurement.signature]].append(measurement.latency_us)
    return {key: {name: float(np.median(us)) for name, us in models.items()} for key, models in found.items()}


def main() -> None:
    """Prints a line for each host and runtime, and one for all of ONNX Runtime."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("files", type=Path, nargs="+", help="files of `costmodel export --with-models`")
    found = model_latencies_us(parser.parse_args().files)
    ratios = {
        host: np.array([one[name] / two[name] for name in one.keys() & two.keys()])
        for (host, threads), one in sorted(found.items())
        if threads == 1 and (two := found.get((host, 2), {}))
    }
    ratios["all of onnxruntime"] = np.concatenate([r for host, r in ratios.items() if host.endswith(" onnxruntime")])
    for host, of_host in ratios.items():
        low, high = np.quantile(of_host, QUANTILES)
        print(f"{host:32}{len(of_host):5} models  {np.exp(np.log(of_host).mean()):.2f} times ({low:.2f} to {high:.2f})")


if __name__ == "__main__":
    main()
