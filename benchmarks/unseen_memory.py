"""Judges predicted peak memory and load time on models on which they were not calibrated (ADR 23, ADR 26).

    python benchmarks/unseen_memory.py FOLDER ... [--rounds 3] [--memory-only]

The folders are those of `unseen_models.py` and `others.py`. Each model is measured in processes of its own; printed is
how far the predictions with the shipped coefficients are off. The time of the first run needs latencies of the system
and is not judged here.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from peak_memory import measured_peak
from start_time import measured_times

from costmodel.errors import CostModelError
from costmodel.estimate.peak_memory import predict_peak_memory
from costmodel.estimate.start_time import predict_start_time
from costmodel.measure.capability import measure_capabilities
from costmodel.memory.session import memory_demand
from costmodel.onnx_io.model import read_model
from costmodel.runtimes.base import RuntimeSettings
from costmodel.runtimes.ort.adapter import OnnxRuntime
from costmodel.systems.host import probe_host
from costmodel.systems.system import System


def main() -> None:
    """Parses the command line and judges the models."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+", metavar="FOLDER")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--memory-only", action="store_true", help="for a machine that is not quiet")
    options = parser.parse_args()
    judge(options.folders, options.rounds, timed=not options.memory_only)


def judge(folders: Sequence[Path], rounds: int, *, timed: bool) -> None:
    """Prints the errors of the predictions for each model, and in all."""
    runtime, settings = OnnxRuntime(), RuntimeSettings()
    rates = measure_capabilities(runtime, settings)
    system = System("here", probe_host(), runtime.name, runtime.version, settings, rates)
    peaks, loads, inside = [], [], []
    for path in sorted(path for folder in folders for path in folder.rglob("*.onnx")):
        try:
            demand = memory_demand(runtime.lower(read_model(path), "all"))
        except CostModelError as error:
            print(f"{path.stem}: {error}")
            continue
        peak, start = predict_peak_memory(demand, system), predict_start_time(demand, system, 0.0, (0.0, 0.0))
        assert peak is not None
        assert start is not None
        found = [one for number in range(rounds) if (one := measured_peak(path, 16 * number)) is not None]
        if not found:
            continue
        peaks.append(peak.peak_memory_bytes / np.median(found))
        times = [one[0] for _ in range(rounds if timed else 0) if (one := measured_times(path)) is not None]
        loads += [start.load_time_us / np.median(times)] if times else []
        low, high = peak.interval_bytes
        inside.append([low <= one <= high for one in found])
        load = f", load {loads[-1]:.2f}" if times else ""
        print(f"{path.stem}: peak {peaks[-1]:.3f} of {[round(one / 1e6) for one in found]} MB{load}")
    for name, ratios in (("peak memory", peaks), ("load time", loads)):
        if not ratios:
            continue
        error = np.abs(np.array(ratios) - 1)
        print(
            f"{name}: {len(ratios)} models, mean error {error.mean():.1%}, {np.mean(error < 0.1):.1%} within 10%, "
            f"{np.mean(error < 0.2):.1%} within 20%"
        )
    print(f"{np.mean(np.concatenate(inside)):.1%} of the measured peaks are inside of their intervals")


if __name__ == "__main__":
    main()
