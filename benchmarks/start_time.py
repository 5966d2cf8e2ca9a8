"""Measures how long sessions take to load and to run for the first time, and fits and judges the prediction (ADR 26).

    python benchmarks/start_time.py measure CORPUS_FOLDER ... [--every 2] [--rounds 2]
    python benchmarks/start_time.py simulate CORPUS_FOLDER ...
    python benchmarks/start_time.py fit [--write]

`measure` loads models of the folders with ONNX Runtime on one thread, each in a process of its own, and stores in
`data/start_time.csv` how long creating the session, the first run and later runs took, with what the simulation of
memory says. It goes on where it stopped. The machine should be quiet.
`simulate` replaces what the simulation says in that file, after a change of the simulation.
`fit` prints how well the times are predicted for families that the coefficients were not fitted to; with `--write` it
stores the coefficients in `costmodel/estimate/start_time.json`.
"""

import argparse
import csv
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
import onnxruntime as ort
from model_sessions import PREPARED, halves, read_rows, run_alone, write_rows
from scipy.optimize import nnls

from costmodel.errors import CostModelError
from costmodel.estimate.start_time import FIRST_RUN_TERMS, LOAD_TERMS, terms_of
from costmodel.measure.capability import measure_capabilities
from costmodel.memory.session import MemoryDemand, memory_demand
from costmodel.onnx_io.model import read_model
from costmodel.runtimes.base import RuntimeSettings
from costmodel.runtimes.ort.adapter import OnnxRuntime
from costmodel.training.corpus import corpus_models

ROOT = Path(__file__).parents[1]
DATA = ROOT / "data" / "start_time.csv"
COEFFICIENTS = ROOT / "costmodel" / "estimate" / "start_time.json"
DEMAND = (
    "layers",
    "source_nodes",
    "stored_bytes",
    "rewritten_bytes",
    "packed_bytes",
    "load_touched_bytes",
    "first_run_touched_bytes",
)
TIMES = ("load_us", "first_run_us", "later_run_us")
FIELDS = ("model", "family", "runtime", "layer_us", "memory_gbps", *DEMAND, *TIMES)
LEVEL = 0.9
SPLITS = 20

# The process that is measured. It reads the file first, so that the page cache has it.
CHILD = f"""{PREPARED}
import time

open(sys.argv[1], "rb").read()
begin = time.perf_counter()
session = ort.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
times = [time.perf_counter() - begin]
feeds = zeros_for(session)
for _ in range(6):
    begin = time.perf_counter()
    session.run(None, feeds)
    times.append(time.perf_counter() - begin)
print(1e6 * times[0], 1e6 * times[1], 1e6 * sorted(times[3:])[1])
"""


def main() -> None:
    """Parses the command line and runs one of the two commands."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    measuring = commands.add_parser("measure")
    measuring.add_argument("folders", nargs="+")
    measuring.add_argument("--every", type=int, default=1)
    measuring.add_argument("--rounds", type=int, default=2)
    commands.add_parser("simulate").add_argument("folders", nargs="+")
    commands.add_parser("fit").add_argument("--write", action="store_true")
    options = parser.parse_args()
    if options.command == "measure":
        measure(options.folders, options.every, options.rounds)
    elif options.command == "simulate":
        simulate(options.folders)
    else:
        fit(write=options.write)


def measure(folders: Sequence[str], every: int, rounds: int) -> None:
    """Appends a row for each round of each of the chosen models that has fewer rows."""
    rows = read_rows(DATA)
    done = [row["model"] for row in rows]
    rates = measure_capabilities(OnnxRuntime(), RuntimeSettings())
    models = [model for folder in folders for model in corpus_models(folder)][::every]
    with DATA.open("a", newline="") as file:
        writer = csv.DictWriter(file, FIELDS)
        if not rows:
            writer.writeheader()
        for number in range(rounds):
            for model in models:
                if done.count(model.name) > number:
                    continue
                times = measured_times(model.path)
                if times is not None:
                    writer.writerow({
                        "model": model.name, "family": model.family, "runtime": ort.__version__,
                        "layer_us": f"{rates['layer_us']:.4f}", "memory_gbps": f"{rates['memory_gbps']:.3f}",
                        **dict.fromkeys(DEMAND, 0), **dict(zip(TIMES, times, strict=True)),
                    })  # fmt: skip
                    file.flush()


def simulate(folders: Sequence[str]) -> None:
    """Fills in what the simulation says about the models of the stored rows."""
    rows = read_rows(DATA)
    runtime = OnnxRuntime()
    for model in (model for folder in folders for model in corpus_models(folder)):
        own = [row for row in rows if row["model"] == model.name]
        if not own:
            continue
        try:
            demand = memory_demand(runtime.lower(read_model(model.path), "all"))
        except CostModelError as error:
            print(f"{model.name}: {error}")
            continue
        assert demand is not None
        for row in own:
            row.update({name: str(asdict(demand)[name]) for name in DEMAND})
    write_rows(DATA, FIELDS, rows)


def measured_times(path: Path) -> tuple[int, int, int] | None:
    """Returns the times of loading, of the first run and of later runs in microseconds; None if the model fails."""
    printed = run_alone(CHILD, path)
    if printed is None:
        return None
    load, first, later = (round(float(text)) for text in printed.split())
    return load, first, later


def fit(*, write: bool) -> None:
    """Prints the errors for held-out families, and stores the coefficients if `write` is true."""
    rows = [row for row in read_rows(DATA) if row["runtime"] == ort.__version__ and int(row["layers"])]
    models = sorted({row["model"] for row in rows})
    of = {name: [row for row in rows if row["model"] == name] for name in models}
    families = [of[name][0]["family"] for name in models]
    times = {time: np.array([np.median([float(row[time]) for row in of[name]]) for name in models]) for time in TIMES}
    terms = [terms_of(_demand(of[name][0]), _rates(of[name][0])) for name in models]
    print(f"{len(models)} models of {len(set(families))} families, {len(rows)} measurements")
    for time in TIMES:
        pairs = [[float(row[time]) for row in of[name]] for name in models]
        apart = np.array([max(pair) / min(pair) - 1 for pair in pairs if len(pair) > 1])
        if len(apart):
            print(f"{time}: two measurements of a model differ by {np.median(apart):.1%} in the median")
    fitted: dict[str, object] = {}
    later = times["later_run_us"]
    for name, names, known in (("load_us", LOAD_TERMS, 0 * later), ("first_run_us", FIRST_RUN_TERMS, later)):
        features = np.array([[one[term] for term in names] for one in terms])
        ratios = []
        for seed in range(SPLITS):
            side = halves(families, seed)
            predicted = np.empty(len(models))
            for held in (False, True):
                found = _coefficients(features[side != held], times[name][side != held], known[side != held])
                predicted[side == held] = features[side == held] @ found + known[side == held]
            ratios.append(times[name] / predicted)
        error = np.abs(1 / np.array(ratios) - 1)
        low, high = np.quantile(ratios, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
        found = _coefficients(features, times[name], known)
        fitted[name] = {
            "coefficients": {term: round(float(one), 5) for term, one in zip(names, found, strict=True)},
            "interval": [round(float(low), 4), round(float(high), 4)],
        }
        print(
            f"{name}: mean error {error.mean():.1%}, {np.mean(error < 0.1):.1%} within 10%, "
            f"{np.mean(error < 0.2):.1%} within 20%, held-out families, {SPLITS} splits"
        )
        worst = np.argsort(-np.median(error, axis=0))[:8]
        print("  worst: " + ", ".join(f"{models[i]} {np.median(1 / np.array(ratios)[:, i]):.2f}" for i in worst))
    print(json.dumps(fitted, indent=2))
    if write:
        version = ".".join(ort.__version__.split(".")[:2])
        known_versions = json.loads(COEFFICIENTS.read_text()) if COEFFICIENTS.exists() else {}
        known_versions[f"onnxruntime {version}"] = {"interval_level": LEVEL, "models": len(models), **fitted}
        COEFFICIENTS.write_text(json.dumps(known_versions, indent=2) + "\n")


def _demand(row: dict[str, str]) -> MemoryDemand:
    """Returns what the simulation says about the model of a row, as far as start times depend on it."""
    unused = ("load_bytes", "run_bytes", "peak_bytes", "least_peak_bytes", "most_peak_bytes")
    return MemoryDemand(**dict.fromkeys(unused, 0), **{name: int(row[name]) for name in DEMAND}, from_source=True)


def _rates(row: dict[str, str]) -> dict[str, float]:
    return {"layer_us": float(row["layer_us"]), "memory_gbps": float(row["memory_gbps"])}


def _coefficients(features: np.ndarray, times_us: np.ndarray, known_us: np.ndarray) -> np.ndarray:
    """Returns the non-negative coefficients with the least relative squared error of the sum with the known part."""
    found, _ = nnls(features / times_us[:, None], (times_us - known_us) / times_us)
    return np.asarray(found)


if __name__ == "__main__":
    main()
