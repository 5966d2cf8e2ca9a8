"""Measures the peak memory of models in processes of their own, and fits and judges its prediction (docs/adr/0023).

    python benchmarks/peak_memory.py measure CORPUS_FOLDER ... [--rounds 3]
    python benchmarks/peak_memory.py simulate CORPUS_FOLDER ...
    python benchmarks/peak_memory.py fit [--write]

`measure` loads each model of the folders with ONNX Runtime on one thread, runs it four times, and stores the peak
resident memory of the process in `data/peak_memory.csv`, with what the simulation says. The heap of each round starts
16 bytes later than that of the round before, because the peak of some models depends on it. It goes on where it
stopped.
`simulate` replaces what the simulation says in that file, after a change of the simulation.
`fit` prints how well the simulation predicts the peak for families that it was not calibrated with; with `--write` it
stores the calibration in `costmodel/estimate/peak_memory.json`. A model counts twice if it was measured on a processor
with AVX-512 and on one without, where blocks of 8 channels instead of 16 need other memory.
"""

import argparse
import csv
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime as ort
from model_sessions import PREPARED, halves, read_rows, run_alone, write_rows
from scipy.optimize import nnls

from costmodel.errors import CostModelError
from costmodel.ir.graph import LayerGraph
from costmodel.memory.buffers import NARROW
from costmodel.memory.session import memory_demand
from costmodel.onnx_io.model import read_model
from costmodel.runtimes.ort.adapter import OnnxRuntime
from costmodel.systems.host import probe_host
from costmodel.training.corpus import corpus_models

ROOT = Path(__file__).parents[1]
DATA = ROOT / "data" / "peak_memory.csv"
CALIBRATION = ROOT / "costmodel" / "estimate" / "peak_memory.json"
CASES = ("mean", "least", "most")
SIMULATED = ("layers", *(f"{case}{suffix}_bytes" for suffix in ("", "_without_source") for case in CASES))
FIELDS = (
    "model", "family", "runtime", "machine", "channels_per_block", "heap_offset_bytes", *SIMULATED, "peak_bytes",
)  # fmt: skip
LEVEL = 0.9
SPLITS = 20

# The process that is measured.
CHILD = f"""{PREPARED}
import ctypes

libc = ctypes.CDLL(None)
libc.malloc.argtypes, libc.malloc.restype = [ctypes.c_size_t], ctypes.c_void_p
kept = libc.malloc(100_000 + int(sys.argv[2]))
session = ort.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
feeds = zeros_for(session)
for _ in range(4):
    session.run(None, feeds)
with open("/proc/self/status") as file:
    print(next(1024 * int(line.split()[1]) for line in file if line.startswith("VmHWM")))
"""


def main() -> None:
    """Parses the command line and runs one of the three commands."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    measuring = commands.add_parser("measure")
    measuring.add_argument("folders", nargs="+")
    measuring.add_argument("--rounds", type=int, default=3)
    commands.add_parser("simulate").add_argument("folders", nargs="+")
    commands.add_parser("fit").add_argument("--write", action="store_true")
    options = parser.parse_args()
    if options.command == "measure":
        measure(options.folders, options.rounds)
    elif options.command == "simulate":
        simulate(options.folders)
    else:
        fit(write=options.write)


def measure(folders: Sequence[str], rounds: int) -> None:
    """Appends a row for each round of each model that has fewer rows."""
    rows = read_rows(DATA)
    machine = probe_host().microarchitecture
    done = [(row["model"], row["runtime"], row["machine"]) for row in rows]
    runtime = OnnxRuntime()
    with DATA.open("a", newline="") as file:
        writer = csv.DictWriter(file, FIELDS)
        if not rows:
            writer.writeheader()
        for model in (model for folder in folders for model in corpus_models(folder)):
            missing = rounds - done.count((model.name, ort.__version__, machine))
            if missing <= 0:
                continue
            try:
                graph = runtime.lower(read_model(model.path), "all")
            except CostModelError as error:
                print(f"{model.name}: {error}")
                continue
            simulated = _simulated(graph, runtime.block)
            for number in range(rounds - missing, rounds):
                peak_bytes = measured_peak(model.path, 16 * number)
                if peak_bytes is None:
                    break
                writer.writerow({
                    "model": model.name, "family": model.family, "runtime": ort.__version__, "machine": machine,
                    "channels_per_block": runtime.block, "heap_offset_bytes": 16 * number, **simulated,
                    "peak_bytes": peak_bytes,
                })  # fmt: skip
                file.flush()
                print(f"{model.name}: {peak_bytes / 1e6:.1f} MB", flush=True)


def simulate(folders: Sequence[str]) -> None:
    """Replaces the simulated columns of the stored rows."""
    rows = read_rows(DATA)
    runtime = OnnxRuntime()
    for model in (model for folder in folders for model in corpus_models(folder)):
        own = [row for row in rows if (row["model"], row["runtime"]) == (model.name, ort.__version__)]
        if own:
            graph = runtime.lower(read_model(model.path), "all")
            simulated = {block: _simulated(graph, int(block)) for block in {row["channels_per_block"] for row in own}}
            for row in own:
                row.update({name: str(value) for name, value in simulated[row["channels_per_block"]].items()})
    write_rows(DATA, FIELDS, rows)


def _simulated(graph: LayerGraph, block: int) -> dict[str, int]:
    """Returns the columns with what the simulation says about a model in blocks of `block` channels."""
    full, plain = memory_demand(graph), memory_demand(replace(graph, source_weights=None))
    assert full is not None
    assert plain is not None
    if block == NARROW:
        full, plain = full.in_narrow_blocks or full, plain.in_narrow_blocks or plain
    peaks = [peak for one in (full, plain) for peak in (one.peak_bytes, one.least_peak_bytes, one.most_peak_bytes)]
    return dict(zip(SIMULATED, (full.layers, *peaks), strict=True))


def measured_peak(path: Path, heap_offset_bytes: int) -> int | None:
    """Returns the peak resident memory of a process that loads and runs a model; None if it fails."""
    printed = run_alone(CHILD, path, str(heap_offset_bytes))
    return None if printed is None else int(printed)


def fit(*, write: bool) -> None:
    """Prints the errors for held-out families, and stores the calibration if `write` is true."""
    stored = [row for row in read_rows(DATA) if row["runtime"] == ort.__version__]
    rows = [row for row in stored if row["mean_bytes"]]
    if len(rows) < len(stored):
        print(f"{len(stored) - len(rows)} measurements are left out: `simulate` has not filled in their models")
    for row in rows:  # on another kind of processor it is another model
        row["model"] += f" in blocks of {row['channels_per_block']}"
    models = sorted({row["model"] for row in rows})
    first = {row["model"]: row for row in reversed(rows)}
    peaks = {name: [int(row["peak_bytes"]) for row in rows if row["model"] == name] for name in models}
    measured = np.array([float(np.median(peaks[name])) for name in models])
    spread = np.array([max(peaks[name]) / min(peaks[name]) - 1 for name in models])
    families = [first[name]["family"] for name in models]
    print(
        f"{len(models)} models (those measured in blocks of 8 and of 16 channels counted twice) of "
        f"{len(set(families))} families, {len(rows)} measurements"
    )
    print(f"{np.mean(spread > 0.1):.1%} of the models differ by more than 10% between their own measurements")
    near = [abs(median / peak - 1) < 0.1 for name, median in zip(models, measured, strict=True) for peak in peaks[name]]
    print(f"{np.mean(near):.1%} of the measurements are within 10% of the median of their model")
    gap = np.array([float(first[name]["most_bytes"]) / float(first[name]["least_bytes"]) for name in models])
    print(f"{np.mean(gap > 1.22):.1%} of the models need over 22% more memory in the worst case than in the best")
    calibration: dict[str, dict[str, object]] = {}
    for name, suffix in (("with_source", ""), ("without_source", "_without_source")):
        layers = [int(first[model]["layers"]) for model in models]
        cases = {
            case: np.column_stack([
                np.ones(len(models)), layers, [float(first[model][f"{case}{suffix}_bytes"]) for model in models]
            ])
            for case in CASES
        }  # fmt: skip
        features = cases["mean"]
        held_out, within, above, below = [], [], [], []
        for seed in range(SPLITS):
            half = halves(families, seed)
            found = {side: _coefficients(features[half != side], measured[half != side]) for side in (False, True)}
            predicted, least, most = (np.where(half, one @ found[True], one @ found[False]) for one in cases.values())
            held_out.append(measured / predicted)
            for name_of_model, median, lower, upper in zip(models, measured, least, most, strict=True):
                if median > 2 * measured.min():  # of smaller models, the process takes most, which is known
                    above += [peak / lower for peak in peaks[name_of_model]]
                    below += [peak / upper for peak in peaks[name_of_model]]
            within.append(np.mean(np.abs(predicted / measured - 1) < 0.1))
        ratios = np.array(held_out)
        error = np.abs(1 / ratios - 1)
        single = np.mean(
            [
                abs(median / ratio / peak - 1) < 0.1
                for one in ratios
                for model, ratio, median in zip(models, one, measured, strict=True)
                for peak in peaks[model]
            ]
        )
        print(
            f"{name}: {np.mean(within):.1%} within 10% of the median measurement ({np.min(within):.1%} to "
            f"{np.max(within):.1%} over {SPLITS} splits), {single:.1%} of single measurements, mean error "
            f"{error.mean():.1%}"
        )
        low, high = np.quantile(above, (1 - LEVEL) / 2), np.quantile(below, (1 + LEVEL) / 2)
        base, per_layer, factor = _coefficients(features, measured)
        calibration[name] = {
            "process_bytes": round(base), "layer_bytes": round(per_layer), "factor": round(factor, 4),
            "interval": [round(low, 4), round(high, 4)],
        }  # fmt: skip
        worst = np.argsort(-np.median(error, axis=0))[:10]
        print("  worst: " + ", ".join(f"{models[i]} {np.median(1 / ratios[:, i]):.2f}" for i in worst))
    print(json.dumps(calibration, indent=2))
    if write:
        version = ".".join(ort.__version__.split(".")[:2])
        known = json.loads(CALIBRATION.read_text()) if CALIBRATION.exists() else {}
        known[f"onnxruntime {version}"] = {"interval_level": LEVEL, "models": len(models), **calibration}
        CALIBRATION.write_text(json.dumps(known, indent=2) + "\n")


def _coefficients(features: np.ndarray, measured: np.ndarray) -> np.ndarray:
    """Returns the non-negative coefficients with the least relative squared error."""
    found, _ = nnls(features / measured[:, None], np.ones(len(measured)))
    return np.asarray(found)


if __name__ == "__main__":
    main()
